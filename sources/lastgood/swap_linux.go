package lastgood

import "golang.org/x/sys/unix"

// swap exchanges two files in one step.
func swap(first, second string) error {
	return unix.Renameat2(unix.AT_FDCWD, first, unix.AT_FDCWD, second, unix.RENAME_EXCHANGE)
}
