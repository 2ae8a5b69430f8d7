//go:build unix

package file

import (
	"io/fs"
	"syscall"
)

// identity returns the device and inode of a file, which change when another file takes its name.
func identity(fi fs.FileInfo) inode {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return inode{dev: uint64(st.Dev), id: st.Ino} //nolint:unconvert // the type of Dev differs between systems
	}
	return inode{}
}
