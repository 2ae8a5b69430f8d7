//go:build unix && !aix && !solaris

package lastgood

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// acquire locks f until it is closed, be it by the end of the process.
func acquire(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return err
}
