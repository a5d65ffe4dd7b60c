// Package health decides what the observed state of a node's GPUs means.
//
// The model is three values and two functions. A Sample is what was observed
// on the node: facts, and for every probe that gave none the reason why. Judge
// turns a Sample, a Policy, the Memory of earlier verdicts and the present time
// into a Verdict and the next Memory. A Report is the compact, versioned form
// in which a Verdict leaves the node; Compare holds a Report against what the
// machine was bought to be.
//
// A fault has one Reason from a documented list. Fatal faults fence the node,
// warnings inform. Faults that can flap must persist before they count, and
// every fault of a verified node must stay away for a while before it is
// forgotten; XID faults stay until the boot ID changes.
//
// The package reads no clock, file or library. It leaves out what to do about a
// fault: an Action is a hint for whoever repairs nodes.
package health
