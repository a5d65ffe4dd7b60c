// Package parity holds the tests that compare the offline provider with the AWS
// provider. It is apart because they link the AWS SDK, which the offline provider
// must not.
package parity
