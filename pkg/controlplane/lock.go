package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockDir takes a directory for this process. The kernel gives the lock back when the
// process ends, however it ends.
func lockDir(dir string) (unlock func() error, err error) {
	path := filepath.Join(dir, "lock")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock, %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path) // only for the message
		return nil, errors.Join(fmt.Errorf("Dir: %s is in use by the control plane of process %s (%w): stop that one or choose another directory",
			dir, strings.TrimSpace(string(holder)), err), file.Close())
	}
	if err := errors.Join(file.Truncate(0), writePid(file)); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the lock, %w", err), file.Close())
	}
	return file.Close, nil
}

func writePid(file *os.File) error {
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}
