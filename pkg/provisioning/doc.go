// Package provisioning makes Karpenter launch the cheapest set of nodes for the
// pods of GPU pools, and holds the pool's caps and limits.
//
// It takes the place of Karpenter's controller "provisioner". Karpenter's own
// scheduler still decides first. The pods of the new NodeClaims of a pool are then
// packed again by pkg/gpu/fleet, and each planned node is formed as a NodeClaim by
// the scheduler's own placement code, pod by pod, with its instance types
// restricted: taints, affinity, topology, host ports, volumes, daemon overhead,
// reserved offerings and minValues hold as they do in stock. The stock decision
// stands unless every pod of it is placed and the price is strictly lower; on any
// error it stands.
//
// Nothing is kept between rounds but which launches failed and which NodeClaims
// were asked for a moment ago, so that a crash at any point leaves what a crash
// of Karpenter leaves. designs/0003-right-sizing.md weighs the other ways.
package provisioning
