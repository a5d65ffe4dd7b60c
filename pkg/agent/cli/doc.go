// Package cli is the command line of the node agent: flags, the loop as a service,
// and one check for people and boot scripts. It is apart from cmd/agent so that
// tests run it with a simulated library.
//
// Exit codes of --once: 0 verified, 1 not verified, 2 usage, 3 driver absent. As a
// service it returns 0 when it was told to stop and 1 on an error at the start.
package cli
