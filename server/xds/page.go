package xds

import (
	"sort"
	"sync/atomic"
	"weak"

	"google.golang.org/grpc/mem"
)

// page is a run of entries in order of name, never empty. Its encoded forms are made when first asked for and are held
// weakly: they live while a response that uses them is being sent, and until the next garbage collection after it.
type page struct {
	entries []*Entry
	sotw    atomic.Pointer[weak.Pointer[encoded]]
	delta   atomic.Pointer[weak.Pointer[encoded]]
}

// encoded is a run of bytes of a response, ready to be sent any number of times.
type encoded struct{ buf mem.Buffer }

func newEncoded(b []byte) *encoded { return &encoded{buf: mem.SliceBuffer(b)} }

func (e *encoded) len() int { return e.buf.Len() }

func (p *page) first() string { return p.entries[0].Name }

func (p *page) get(name string) *Entry {
	i := sort.Search(len(p.entries), func(i int) bool { return p.entries[i].Name >= name })
	if i < len(p.entries) && p.entries[i].Name == name {
		return p.entries[i]
	}
	return nil
}

// encodedSotW returns the page as elements of DiscoveryResponse.resources.
func (p *page) encodedSotW() *encoded { return p.encoded(&p.sotw, encodeSotW) }

// encodedDelta returns the page as elements of DeltaDiscoveryResponse.resources.
func (p *page) encodedDelta() *encoded { return p.encoded(&p.delta, encodeDelta) }

func (p *page) encoded(cache *atomic.Pointer[weak.Pointer[encoded]], encode func([]*Entry) *encoded) *encoded {
	if w := cache.Load(); w != nil {
		if e := w.Value(); e != nil {
			return e
		}
	}
	e := encode(p.entries) // two streams may both do it; either result serves
	w := weak.Make(e)
	cache.Store(&w)
	return e
}

func encodeSotW(entries []*Entry) *encoded {
	size := 0
	for _, e := range entries {
		size += e.sizeSotW()
	}
	b := make([]byte, 0, size)
	for _, e := range entries {
		b = e.appendSotW(b)
	}
	return newEncoded(b)
}

func encodeDelta(entries []*Entry) *encoded {
	size := 0
	for _, e := range entries {
		size += e.sizeDelta()
	}
	b := make([]byte, 0, size)
	for _, e := range entries {
		b = e.appendDelta(b)
	}
	return newEncoded(b)
}
