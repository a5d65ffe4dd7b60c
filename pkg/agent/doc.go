// Package agent runs on every GPU node: it samples the GPUs through NVML, judges
// the sample by pkg/gpu/health and publishes the verdict as a condition and an
// annotation of its own Node.
//
// The parts, in reading order: Library and Host are the narrow interfaces to the
// driver and the machine (library.go); caller makes calls that may never return
// safe to wait for (caller.go); Sampler turns one round of calls into a
// health.Sample (sampler.go); Agent is the loop (agent.go); NodePublisher writes
// to the API server (publisher.go).
//
// The package itself does not link NVML: nvml/ alone imports go-nvml, and
// pkg/sim/nvml simulates it. It changes no setting of a GPU and no field of the
// Node but its own condition and annotation.
package agent
