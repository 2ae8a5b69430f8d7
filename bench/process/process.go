package role

import (
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"
	"syscall"
	"time"
)

// Usage is what a server process has used.
type Usage struct {
	CPU        time.Duration // user and system, since the process started
	RSS        uint64        // bytes, now
	PeakRSS    uint64        // bytes, since the last Begin
	Allocs     uint64        // heap objects, since the process started
	AllocBytes uint64
	Received   uint64 // messages from clients
	Sent       uint64 // messages to clients
	Streams    int64  // open now
}

// processCPU returns the CPU time of this process.
func processCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// resetPeak makes peakRSS count from now. It is Linux's; elsewhere the peak is that of the process's whole life.
func resetPeak() {
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}

// memory returns the resident set now and at its peak, in bytes.
func memory() (rss, peak uint64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			return 0, 0
		}
		return uint64(usage.Maxrss), uint64(usage.Maxrss)
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

// allocations returns the number and the bytes of all heap allocations so far.
func allocations() (objects, size uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}
