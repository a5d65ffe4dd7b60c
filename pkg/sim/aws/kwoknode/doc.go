// Package kwoknode makes the Nodes of simulated instances: a Launcher creates the
// object that a kubelet on the instance would register, for KWOK to play from then
// on, and removes it as the cloud controller manager would.
//
// What the Node carries comes from the launch template's user data (nodeadm of
// AL2023, bootstrap.sh of AL2, Bottlerocket's settings) and from the instance: labels,
// taints, provider ID, capacity and allocatable. Devices are left out: a device
// plugin adds them later, finding the instance by the node's labels.
//
// Capacity follows the AWS provider's own estimate, so that a node is neither
// larger nor smaller than Karpenter expects: memory less an overhead of 7.5 %, pods
// by network interfaces, kubelet reservations by the formulas of EKS.
package kwoknode
