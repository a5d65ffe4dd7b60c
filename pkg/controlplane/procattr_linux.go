package controlplane

import "syscall"

// processAttributes puts a child into a group of its own and binds its life to ours.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
