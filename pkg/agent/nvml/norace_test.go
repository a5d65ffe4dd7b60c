//go:build cgo && !race

package nvml_test

const underRace = false
