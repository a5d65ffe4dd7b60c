// Package converter turns manifests of other times and other projects into karpenter.sh/v1
// NodePools and GPUPools: NodePools and EC2NodeClasses of v1beta1, and TensorFusion's
// TensorFusionClusters and GPUPools.
//
// Nothing is dropped silently. A conversion takes the fields that it understands out of
// a copy of the object; whatever is left at the end is reported, with the reason where one
// is known. What is carried over with another meaning is reported too. NodePools and
// GPUPools of the result are held to the rules that an API server would hold them to;
// EC2NodeClasses are not.
//
// It reads no cluster: status, and what only a cluster knows, such as the defaults of
// another project's chart, are not looked up.
package converter
