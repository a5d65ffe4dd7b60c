// Package cli holds the commands of kubectl gpupool, one file for each verb, apart
// from main so that tests can run them with their own streams and clock.
//
// A verb is a struct of options with two steps: complete checks flags and fills in
// what follows from them, and run does the work. Answers go to standard output
// through pkg/cli/printer, everything else to standard error. A verb ends with nil or
// with an error that ExitCode maps to the exit code of the process.
//
// New adds the verbs; a new one is a file here with a constructor like newPlan.
package cli
