// Package realnode runs one real node on a Linux machine: a real kubelet and containerd in a
// machine of namespaces (package guest), which joins the sandbox's control plane and may stand
// for one instance of the simulated EC2.
//
// What KWOK leaves out is all there: containers from images, the device-plugin protocol, mounts,
// service account tokens, restarts and reboots. GPUs are not: the machine has device nodes and a
// fake libnvidia-ml.so.1, which NVIDIA's container runtime, played by a wrapper of runc, gives to
// containers that ask for GPUs.
//
// It needs root, containerd, runc and CNI plugins; Check says what is missing and which package
// has it. Nothing of it is left after Stop, and nothing after the death of the program that
// started it, however it dies.
package realnode
