// Package controllers lists what runs beside Karpenter's own controllers: those that
// resolve GPUPools and tell how they fare ([Pools]), those that gate, judge and repair
// nodes ([Readiness]), the one that holds capacity ready ([Warm]) and the one that removes
// empty nodes ([Reclaim]). Each controller has a directory of its own, named after its
// object and then its job; the operator starts all of them.
package controllers
