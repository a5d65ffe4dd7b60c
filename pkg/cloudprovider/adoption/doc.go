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
// again and collected as ever.
//
// The same holds for launches of this process. The provider's garbage collection
// ends every instance that is 30 seconds old and that no NodeClaim in the cache
// carries. In a burst on a busy machine the provider ID is written later than
// that: of a hundred launches at once sixty-four were ended in one sweep, their
// NodeClaims followed by way of the interruption queue, and as many were bought
// again. List therefore shows an instance of this process only once the cache has
// its NodeClaim with the provider ID, or no longer has the NodeClaim.
//
// A failed look means no adoption, never a failed
// launch. Ambiguous answers within a running process are not adopted: another
// launch under way could own the instance.
package adoption
