// Package fleet chooses the cheapest set of nodes for a set of pods.
//
// The model is vector bin packing with typed bins: a Class is a number of equal
// pods with integer requests over named resources and a set of shapes that it
// may run on; a Shape is a kind of node with what it can allocate and its price
// per hour. A Plan says how many nodes of which shape to open and which pods go
// on each. The problem is NP-hard, so Solve is a heuristic (column generation,
// rounding, then ruin and recreate) that also returns a proven lower bound, so
// that every answer carries the distance that it can be from the best one.
//
// The package knows nothing of clusters. Constraints between pods enter as
// Class.MaxPerNode, or as a resource of which a node has one (a host port).
// Topology spread, volumes and order of capacity types are left to the caller,
// which formulates one Problem for each case and checks the plan that it gets.
package fleet
