//go:build unix && !linux

package controlplane

import "syscall"

// processAttributes puts a child into a group of its own; these systems have no signal
// on the death of a parent.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
