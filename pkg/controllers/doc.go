// Package controllers lists what runs beside Karpenter's own controllers: those that
// resolve GPUPools and tell how they fare ([Pools]), and those that gate, judge and
// repair nodes ([Readiness]). Each controller has a directory of its own, named after
// its object and then its job; the operator starts both lists.
package controllers
