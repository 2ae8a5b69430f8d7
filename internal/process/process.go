// Package process connects the program to its system: locks of files (flock), listeners (listen), and the service
// manager (systemd).
package process

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrLocked says that another process has the lock.
var ErrLocked = errors.New("locked")

// Lock locks f until it is closed, also by the end of the process.
func Lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// OtherOwner returns the user that owns a file, unless it is the user of this process or root.
func OtherOwner(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid == 0 || int(stat.Uid) == os.Geteuid() {
		return ""
	}
	return strconv.FormatUint(uint64(stat.Uid), 10)
}
