//go:build cgo && !race && !asan

package nvml_test

const instrumented = false
