// Package deviceplugin is a device plugin for a real kubelet that does what a script says, over
// the same gRPC API as NVIDIA's.
//
// The script is a file that is read again and again: which resources there are, which devices
// each has, which of them are unhealthy, and how long the plugin takes to register. Each
// resource has a server and a socket of its own, as NVIDIA's plugin has. When the kubelet
// restarts, which a new kubelet.sock tells, all register anew.
//
// What the kubelet allocates is written to a record, with the time: it is the kubelet's own word
// on when a container with devices was about to start.
//
// What is left out: topology, preferred allocation, CDI.
package deviceplugin
