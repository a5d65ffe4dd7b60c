//go:build cgo && race

package nvml_test

// underRace tells that the race detector multiplies the memory of this binary, and so of the
// agent that it plays.
const underRace = true
