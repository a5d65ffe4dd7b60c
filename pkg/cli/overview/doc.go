// Package overview says how the GPUPools of a cluster stand: which nodes they have and in
// which state, what is left on them, what they cost, and what is wrong.
//
// Amounts and prices of a pool are those that the controller wrote into its status, so
// that they agree with kubectl get gpupool and with the metrics. The state of a single node
// is read from the node by the code that the controller uses. What pods hold is counted
// here from their requests.
//
// It takes objects and returns values: pkg/cli/cluster reads the objects, pkg/cli/printer
// writes the values.
package overview
