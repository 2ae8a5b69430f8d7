package file

import (
	"slices"

	"tributary/resource"
)

// maxRemembered is of how many documents it is known what became of them. It bounds memory: 300 bytes each.
const maxRemembered = 50_000

// memory is what is known of files that have changed since they were first read, so that their next change costs no more than what
// changes. The others cost nothing. It is owned by the loop.
type memory struct {
	files map[string]*resource.Decoded
	order []string // the one that changed last is the last
	size  int      // documents
}

func newMemory() *memory { return &memory{files: make(map[string]*resource.Decoded)} }

// of returns what is known of a file, or nil.
func (m *memory) of(path string) *resource.Decoded { return m.files[path] }

// set takes note of what became of a file, and forgets those that have not changed for the longest time if there are too many; nil forgets
// it.
func (m *memory) set(path string, d *resource.Decoded) {
	if old := m.files[path]; old != nil {
		m.size -= old.Size()
		delete(m.files, path)
		m.order = slices.DeleteFunc(m.order, func(p string) bool { return p == path })
	}
	if d == nil || d.Size() > maxRemembered {
		return
	}
	m.files[path], m.order, m.size = d, append(m.order, path), m.size+d.Size()
	for m.size > maxRemembered {
		m.set(m.order[0], nil)
	}
}
