//go:build unix

package process

import (
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// groupOf is the group of a file, -1 if that is not known.
func groupOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Gid)
	}
	return -1
}

// mayGive reports whether this process may give its files to a group.
func mayGive(group int) bool {
	all, err := os.Getgroups()
	return os.Geteuid() == 0 || err == nil && slices.Contains(append(all, os.Getegid()), group) || hasChown()
}

// hasChown reports whether the process has CAP_CHOWN, as far as that can be found out.
func hasChown() bool {
	text, _ := os.ReadFile("/proc/self/status") // without it, no
	_, rest, _ := strings.Cut(string(text), "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	rights, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && rights&1 != 0
}
