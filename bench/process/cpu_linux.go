package process

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPUOf returns the user and system time of another process, to the nanosecond. Only Linux tells.
func CPUOf(pid int) (time.Duration, error) {
	// The clock of a process, as clock_getcpuclockid(3) makes it: the complement of the id, and 2 for "all that it used".
	clock := int32(^pid)<<3 | 2
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
