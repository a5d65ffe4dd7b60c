// Package nvml simulates NVIDIA's management library, twice over one description:
// Machine says what a node's GPUs are and what is wrong with them. Library serves
// it in this process to the agent, without cgo, for nodes that are simulated.
// Build makes libnvidia-ml.so.1 from fake/nvml.c, which serves the same Machine
// through dlopen to a real agent; Machine.WriteConfig scripts it while it runs.
//
// What is left out: everything that changes a GPU, and every call that the agent
// does not make.
package nvml
