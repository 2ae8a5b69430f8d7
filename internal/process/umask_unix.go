//go:build unix

package process

import (
	"sync"
	"syscall"
)

// umask is held while that of the process is another one.
var umask sync.Mutex //nolint:gochecknoglobals // it is one of the process

// closed calls make with a file mode creation mask by which nobody but the owner can use what is made. What else is made meanwhile has fewer rights than
// it would have, too.
func closed(make func()) {
	umask.Lock()
	defer umask.Unlock()
	before := syscall.Umask(0o177)
	defer syscall.Umask(before)
	make()
}
