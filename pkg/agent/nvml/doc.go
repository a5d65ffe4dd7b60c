// Package nvml implements agent.Library with go-nvml. It is the one package that
// links C: with cgo disabled it compiles to a library that is never found.
//
// A symbol that the loaded library lacks is never called, since calling it ends
// the process; such a check is not supported. Return codes become agent errors
// here and nowhere else. Only calls that read are made.
package nvml
