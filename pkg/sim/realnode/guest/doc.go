// Package guest is the software of a real node's machine that is no part of Kubernetes: what
// its power supply, its init system and NVIDIA's container runtime are on a machine of metal.
//
// A machine is a set of namespaces of this kernel (processes, mounts, network, host name, IPC,
// control groups) with a root file system of its own. All of it lives in processes and goes with
// them: when the first process ends, in whatever way, the kernel ends all others and drops
// mounts, bridges, interfaces and sockets. Only control groups outlive processes; a janitor,
// which is started first and waits for the end of everything else, removes those.
//
//	host program ── supervise ── init (process 1 of the machine) ── containerd, kubelet, shims
//	                         └── sweep (janitor)
//
// One binary plays all parts. Main tells them apart by the name or the first argument.
//
// What is left out: a kernel of its own. Kernel settings that the kubelet would change are
// covered by files of the machine, so that the host's stay as they are.
package guest
