// Package node simulates NVIDIA's software on the nodes of a sandbox.
//
// KWOK plays the kubelet of a node, but nothing on it loads a driver, registers devices or writes
// labels. This package does: for each KWOK node whose instance type carries NVIDIA GPUs it plays
// the driver, the device plugin, NFD and GFD, and mig-manager, with a delay for each, drawn by node
// name, and with faults that tests and scenarios inject.
//
// A Machine is the model of one node: from the time since its boot, the labels that steer it and
// the faults that match it follows what its software shows, as a plain value. The Stack watches
// Nodes, asks the machines and writes the difference to the API server. Further software of a node,
// such as an agent or a DRA driver, joins as an Operand, which runs once on each machine.
//
// Left out: DaemonSet pods (so their requests take no room) and what happens inside containers.
package node
