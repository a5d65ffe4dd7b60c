// Package upstream holds the decorator against the AWS provider's and KWOK's own
// code: launches that end in a CreateFleet call, and what GetInstanceTypes costs
// beside theirs. It is apart from the decorator because its tests link the AWS SDK.
package upstream
