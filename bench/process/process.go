// Package process returns the CPU and memory of this or another process.
package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// CPU returns the user and system time of this process, to the microsecond.
func CPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// ResetPeak makes the peak that Memory returns count from now. Where that cannot be had the peak is that of the process's
// whole life.
func ResetPeak(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// Memory returns the resident set of a process in bytes, now and at its peak. They are zero where there is no /proc.
func Memory(pid int) (rss, peak uint64) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range bytes.Lines(status) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseUint(string(fields[1]), 10, 64)
		switch string(fields[0]) {
		case "VmRSS:":
			rss = kib << 10
		case "VmHWM:":
			peak = kib << 10
		}
	}
	return rss, peak
}

// Load returns the load averages of the machine over 1, 5 and 15 minutes, as text. It is empty where there is no /proc.
func Load() string {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := bytes.Fields(load)
	return string(bytes.Join(fields[:min(3, len(fields))], []byte(" ")))
}
