//go:build unix

package file

import (
	"io/fs"
	"syscall"
)

// identity returns the device and inode of a file, which change when another file takes its name.
func identity(fi fs.FileInfo) (dev, id uint64) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), st.Ino //nolint:unconvert // the type of Dev differs between systems
	}
	return 0, 0
}
