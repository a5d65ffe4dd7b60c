// Package planner answers what karpenter-gpu would launch for pods that wait.
//
// It runs the scheduler and the right-sizing of the controller in memory, over
// instance types that the GPU catalogue knows and that GPUPools have been applied
// to, exactly as the controller stacks them. Beside the decision it gives what
// stock Karpenter would do with the same input, a price that no set of nodes can
// undercut, and for each pod without a node the reason and the nearest change that
// would give it one.
//
// It launches nothing, and it does not know what is in stock at the cloud: every
// offering counts as available.
package planner
