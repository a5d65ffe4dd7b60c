// Package adoption gives instances that a crashed controller bought, and could
// not write down, to the NodeClaims that they were bought for.
//
// A controller that dies between the cloud's answer and the write of the
// NodeClaim's provider ID leaves an instance that no NodeClaim knows. Stock
// Karpenter buys a second one and garbage collects the first, so that one crash
// in a burst of 40 launches can cost 40 instances. The decorator looks once,
// before the first Create or List of a process: instances without a NodeClaim at that
// moment cannot belong to a launch of this process. Each is handed to a
// NodeClaim of the same NodePool whose requirements it meets.
//
// Until then the instance is withheld from List, so that the provider's garbage
// collection does not end it first; what nobody wants within [Window] is shown
// again and collected as ever. A failed look means no adoption, never a failed
// launch. Ambiguous answers within a running process are not adopted: another
// launch under way could own the instance.
package adoption
