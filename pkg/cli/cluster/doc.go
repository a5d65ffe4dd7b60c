// Package cluster reads what the verbs work on out of a live cluster: for a plan the same
// kinds as pkg/cli/manifest reads from files, with the nodes, NodeClaims and pods that are
// there; for status and doctor the objects that package overview and package doctor look
// at. It only reads.
package cluster
