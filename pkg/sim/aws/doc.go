// Package aws simulates the part of AWS that Karpenter's AWS provider talks to:
// one HTTP server on loopback that the unmodified controller binary reaches
// through AWS_ENDPOINT_URL with any static credentials.
//
// The model is a single account in one region: instance types with real shapes
// and prices, zones with a subnet each, launch templates, instant fleets,
// on-demand, spot and reserved capacity, and a clock that boots, interrupts and
// ends instances. Options.Launcher turns a booted instance into a Node. Every
// outcome follows from Options.Seed, the order of calls and the injected clock.
//
// Faults (AddFault, Interrupt, Fail, or HTTP under /_sim/) make capacity scarce,
// calls fail and machines die. Report says what a run launched, spent and left
// behind. With Options.StatePath the account survives a restart of the process.
//
// EC2 answers in the query protocol, IAM and STS in the AWS query protocol, SSM,
// SQS and Pricing in JSON, EKS in REST JSON. Left out on purpose: request
// signatures are not checked, instances start through CreateFleet of type
// instant alone, and no answer is eventually consistent.
package aws
