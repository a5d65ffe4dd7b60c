// Package pools holds GPUPools in the form in which launches need them.
//
// A controller resolves each GPUPool against its NodePools, the GPU catalogue
// and the MIG geometries, and swaps the result into a Store. The decorated
// CloudProvider and the provisioner read it from there on every scheduling
// round, without a lock and without the API server. What is in a Store is
// immutable.
//
// A NodePool whose GPUPool is missing or invalid has no Pool: it behaves as
// plain Karpenter. A NodePool that the controller has not looked at yet is
// something else, see Store.Evaluated: deciding about it would launch nodes of
// the wrong kind.
package pools
