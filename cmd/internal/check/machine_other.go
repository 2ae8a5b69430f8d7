//go:build !linux

package check

func clockSynchronized() (synchronized, known bool) { return false, false }

func freeBytes(string) (free uint64, known bool) { return 0, false }
