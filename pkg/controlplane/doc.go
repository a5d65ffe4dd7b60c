// Package controlplane runs a real Kubernetes control plane on one machine: etcd,
// kube-apiserver, kube-scheduler and kube-controller-manager from their own
// binaries, and KWOK in place of kubelets. Tests and the sandbox start one with
// [Start] and end it with [ControlPlane.Stop].
//
// Everything listens on loopback, everything written lies in Options.Dir, RBAC is
// on, and users are client certificates signed by the plane's own CA. Each start
// registers its undo and Stop runs them in reverse. [Process] does the same for
// any other child, such as the controller under test.
//
// KWOK plays the kubelet of every Node annotated [NodeAnnotation]; what it does
// and leaves to its caller is told at [NodeAnnotation], [RunForAnnotation] and
// [SetNodeDown]. The package neither downloads nor builds binaries: the Makefile
// target controlplane builds them.
package controlplane
