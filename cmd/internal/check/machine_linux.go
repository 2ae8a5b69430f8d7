package check

import "golang.org/x/sys/unix"

// clockSynchronized asks the kernel, as timedatectl does.
func clockSynchronized() (synchronized, known bool) {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return false, false
	}
	return state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0, true
}

// freeBytes is how much a user may write to the disk of path.
func freeBytes(path string) (free uint64, known bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil || s.Bsize <= 0 {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true
}
