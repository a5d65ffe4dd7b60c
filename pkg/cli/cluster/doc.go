// Package cluster reads what a plan is made from out of a live cluster: the same kinds
// as pkg/cli/manifest reads from files, and the nodes, NodeClaims and pods that are
// there. It only reads.
package cluster
