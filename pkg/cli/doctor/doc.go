// Package doctor examines a cluster, or manifests, for what keeps GPUPools from doing what
// they promise: definitions, the controller and its feature gates, GPUPools and NodePools,
// the gate of unverified nodes, NVIDIA's software, and what pods ask for.
//
// Each check reads Facts and adds Findings. A finding has a severity, a reason that the
// documentation lists, a sentence that says what follows from the fault, and, where one
// command mends it, that command, ready to be pasted. A check that lacks the facts to
// decide says nothing: with manifests alone, what is not among them may be in the cluster.
//
// Whatever the controller decides by code of its own is decided here by the same code: the
// rules of GPUPools, instance types, DaemonSets that would deadlock the gate, the nearest
// possible label. The package reads no cluster and no file, and takes the time from its
// caller.
package doctor
