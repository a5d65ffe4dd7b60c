// Package manifest reads what a plan is made from: NodePools, GPUPools,
// EC2NodeClasses, workloads and the objects that workloads refer to, from YAML or
// JSON files.
//
// Input is held to what an API server holds it to: unknown and repeated fields are
// errors, and NodePools and GPUPools pass the schema and the CEL rules of their
// CustomResourceDefinitions, which are compiled in. Every error names the file, the
// document in it and the field. Kinds that have no part in a plan are listed as
// ignored, never dropped silently.
//
// Workloads become the pods that their controllers would create.
package manifest
