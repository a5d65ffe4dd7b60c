// Package mig knows how NVIDIA GPUs split into MIG partitions, and which
// partitions to cut for a demand.
//
// A [Geometry] describes one GPU model: its [Profile]s, the memory units at
// which an instance of each may start, per-profile maxima and the budget of
// media engines. Instances occupy memory units, not compute slices: two 3g
// fill an 8-unit GPU although 3+3 leaves a compute slice free. A [Layout] is a
// named multiset of profiles that one GPU can hold; names follow mig-parted. A
// [Plan] covers a demand with the fewest GPUs, and a [NodeLayout] says which
// GPUs of a node carry which layout, rendered by [PartedConfig].
//
// Profile names depend on the memory that a board reports, so they are treated
// as observed: see [Geometry.Observed]. The figures come from data/mig.yaml,
// with a source each. Prices, nodes and live repartitioning are left out.
package mig
