// Package process is about processes and the system that they run on: locks of files (flock), what servers listen on (listen), how one
// process takes over from another (upgrade, start), and the manager of the service (systemd).
package process

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process has the lock.
var ErrLocked = errors.New("locked")

// Lock locks f until it is closed, be it by the end of the process.
func Lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}
