package zookeeper

import (
	"fmt"
	"sync"
)

// What a ZooKeeper may have us keep. What is more is not taken, and what was known of it stays; all else goes on.
const (
	maxNames = 100_000   // below one node: interfaces, providers of one of them, applications, instances of one of them
	maxKept  = 256 << 20 // bytes of all names and contents
)

// kept is how much is kept of all nodes.
type kept struct {
	mu    sync.Mutex
	bytes int
}

// afford notes that a node has a content of that many names and bytes now, in place of what it had, unless that is too much.
func (k *kept) afford(path string, names, before, now int) error {
	if names > maxNames {
		return fmt.Errorf("%q: there are %d names below it, and more than %d are not taken", path, names, maxNames)
	}
	if !k.change(before, now) {
		return fmt.Errorf("%q: with its %d bytes all of ZooKeeper's would be more than the %d that are taken", path, now, maxKept)
	}
	return nil
}

// change notes how many bytes a node has; ok is false, and nothing changes, if that is more than before and too much.
func (k *kept) change(before, now int) (ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if after := k.bytes - before + now; now <= before || after <= maxKept {
		k.bytes = after
		return true
	}
	return false
}
