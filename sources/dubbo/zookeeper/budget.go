package zookeeper

import (
	"fmt"
	"sync"
)

// The limits of what we keep of a ZooKeeper. A node over a limit keeps its earlier content.
const (
	maxNames = 100_000   // below one node: interfaces, providers of one of them, applications, instances of one of them
	maxKept  = 256 << 20 // bytes of all names and contents
)

// kept counts the bytes kept of all nodes.
type kept struct {
	mu    sync.Mutex
	bytes int
}

// reserve counts the new content of a node in place of the one before, or returns an error if that exceeds a limit.
func (k *kept) reserve(path string, names, before, now int) error {
	if names > maxNames {
		return fmt.Errorf("%q: its %d children are over the limit of %d", path, names, maxNames)
	}
	if !k.change(before, now) {
		return fmt.Errorf("%q: its %d bytes are over the limit of %d bytes kept from ZooKeeper", path, now, maxKept)
	}
	return nil
}

// change counts the new bytes of a node. If they are more than before and exceed the limit, ok is false and nothing changes.
func (k *kept) change(before, now int) (ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if after := k.bytes - before + now; now <= before || after <= maxKept {
		k.bytes = after
		return true
	}
	return false
}
