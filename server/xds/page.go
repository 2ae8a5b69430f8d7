package xds

import (
	"sort"
	"sync"
	"weak"

	"google.golang.org/grpc/mem"
)

// page is a run of entries in order of name, never empty. Its encoded forms are made on demand and held weakly.
type page struct {
	first   string // the name of the first entry
	entries []*Entry
	cache   [forms]weakCache[encoded]
	zips    [forms]zip
}

// encoded is a run of bytes of a response, which can be sent any number of times.
type encoded struct {
	buf mem.Buffer
	zip *zip // its compressed form, if streams share it; else nil
}

func newEncoded(b []byte) *encoded { return &encoded{buf: mem.SliceBuffer(b)} }

func (e *encoded) len() int { return e.buf.Len() }

func (p *page) get(name string) *Entry {
	i := sort.Search(len(p.entries), func(i int) bool { return p.entries[i].Name >= name })
	if i < len(p.entries) && p.entries[i].Name == name {
		return p.entries[i]
	}
	return nil
}

// encoded returns the page in a form.
func (p *page) encoded(f form) *encoded {
	return p.cache[f].get(func() *encoded {
		e := encode(p.entries, f)
		e.zip = &p.zips[f]
		return e
	})
}

// weakCache keeps a value until the first garbage collection after its last use. Then get builds it again.
type weakCache[T any] struct {
	mu    sync.Mutex
	value weak.Pointer[T]
}

// get returns the value, or makes it while other callers wait.
func (w *weakCache[T]) get(build func() *T) *T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.value.Value(); v != nil {
		return v
	}
	v := build()
	w.value = weak.Make(v)
	return v
}
