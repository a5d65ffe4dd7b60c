// Package readiness keeps nodes of a GPUPool from work until they are what was
// bought.
//
// Three parts share its rules. The Provider decorates a CloudProvider: nodes start
// with the taint of the gate, offerings whose nodes failed lately are set aside,
// launches are held back while all nodes of a pool fail alike, and repair knows the
// agent's condition. The Hook holds registration back where the pool asks for it,
// and closes the gate of nodes that started without the taint. The Verifier decides,
// from a Node, its NodeClaim and its pool, whether the node is verified; controllers
// act on its verdicts.
//
// The report of the agent is untrusted: the node could have written anything. It can
// keep its own node from work, and it cannot open the gate with more or less than the
// catalogue, the layout and the kubelet's resources agree on.
//
// Importing the package tells Karpenter's scheduler that the gate's taint goes by
// itself.
package readiness
