//go:build cgo && (race || asan)

package nvml_test

// instrumented tells that the race detector or AddressSanitizer multiplies the memory of this
// binary, and so of the agent that it plays.
const instrumented = true
