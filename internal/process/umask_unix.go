//go:build unix

package process

import (
	"sync"
	"syscall"
)

// umask is held while that of the process is another one.
var umask sync.Mutex //nolint:gochecknoglobals // it is one of the process

// closed calls make with a file mode creation mask by which only the owner can use what is made. Other files that are made meanwhile have
// fewer rights, too.
func closed(make func()) {
	umask.Lock()
	defer umask.Unlock()
	before := syscall.Umask(0o177)
	defer syscall.Umask(before)
	make()
}
