//go:build unix

package transport

import "syscall"

// Descriptors returns how many files and connections the process may have open; -1 if that is not limited or not known.
func Descriptors() int {
	var limit syscall.Rlimit // Go has raised it to the hard limit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return -1
	}
	return int(limit.Cur) //nolint:gosec,unconvert // it is small; it is signed on some systems
}
