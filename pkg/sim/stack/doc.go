// Package stack puts a sandbox together: a real control plane, Karpenter's and our CRDs, the
// simulated AWS, the simulated NVIDIA node software, and a controller as a process of its own: the
// very binary that users run, or the stock one for comparison.
//
// Start brings all of it up and Stop takes it down in reverse. A Stack is a scenario.World, so that
// the scenario engine can play on it; what the engine sees comes from informers and from the
// simulator's own account, and nothing here tells the controller more than a real cluster would.
package stack
