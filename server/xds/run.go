package xds

import "google.golang.org/protobuf/encoding/protowire"

// maxChunk bounds a delta response in bytes: clients by default refuse messages over 4 MiB.
var maxChunk = 2 << 20 // a variable for tests

// run is entries encoded one after the other, so that any stretch of them can be sent unchanged.
type run struct {
	bytes []byte
	ends  []int // of each entry in bytes
}

// span is a stretch of a run: entries from start up to, and without, end.
type span struct{ start, end int }

func encodeRun(entries []*Entry, f form) *run {
	r := &run{ends: make([]int, len(entries))}
	run, size := make([]*Entry, len(entries)), 0
	for i, e := range entries {
		if run[i] = e; e.Encoder != nil {
			run[i] = &Entry{Name: e.Name, Version: e.Version, Any: e.Content()}
		}
		size += run[i].size(f)
		r.ends[i] = size
	}
	r.bytes = make([]byte, 0, size)
	for _, e := range run {
		r.bytes = e.append(r.bytes, f)
	}
	return r
}

// offset is where entry i begins.
func (r *run) offset(i int) int {
	if i == 0 {
		return 0
	}
	return r.ends[i-1]
}

// bodies encodes stretches of r and removed, in chunks: one empty body without entries.
func (r *run) bodies(spans []span, removed []string) []*body { return r.cut(maxChunk, spans, removed) }

// cut returns bodies of at most limit bytes, or with a single resource.
func (r *run) cut(limit int, spans []span, removed []string) []*body {
	c := newChunks(limit)
	c.spans(r, spans)
	c.removals(removed)
	return c.bodies
}

func sizeRemoved(name string) int { return 1 + protowire.SizeBytes(len(name)) }

// chunks are the bodies of a response that is being cut; the last may have room.
type chunks struct {
	limit  int
	bodies []*body
}

func newChunks(limit int) *chunks { return &chunks{limit, []*body{{}}} }

// page adds a page in the shared encoding, unless it must be cut.
func (c *chunks) page(p *page) {
	encoded := p.encoded(formDelta)
	if encoded.len() > c.limit { // entries of many kilobytes
		c.entries(p.entries)
		return
	}
	c.room(encoded.len())
	c.last().add(encoded, len(p.entries))
}

// entries encodes and adds entries.
func (c *chunks) entries(entries []*Entry) {
	c.spans(encodeRun(entries, formDelta), []span{{0, len(entries)}})
}

// spans adds stretches of a run.
func (c *chunks) spans(r *run, spans []span) {
	for _, s := range spans {
		for i := s.start; i < s.end; {
			from, to := r.offset(i), i+1
			room := c.room(r.ends[i] - from)
			for to < s.end && r.ends[to]-from <= room {
				to++
			}
			c.add(r.bytes[from:r.ends[to-1]], to-i)
			i = to
		}
	}
}

// removals adds the names of removed resources.
func (c *chunks) removals(removed []string) {
	for len(removed) > 0 {
		size, n := 0, 0
		room := c.room(sizeRemoved(removed[0]))
		for n == 0 || n < len(removed) && size+sizeRemoved(removed[n]) <= room {
			size += sizeRemoved(removed[n])
			n++
		}
		b := make([]byte, 0, size)
		for _, name := range removed[:n] {
			b = protowire.AppendTag(b, deltaRemoved, protowire.BytesType)
			b = protowire.AppendString(b, name)
		}
		c.add(b, n)
		removed = removed[n:]
	}
}

// room returns how many bytes can be added to the last chunk. It begins a new one if size bytes, which cannot be cut,
// do not fit.
func (c *chunks) room(size int) int {
	last := c.last()
	if last.size > 0 && last.size+size > c.limit {
		last = &body{}
		c.bodies = append(c.bodies, last)
	}
	return c.limit - last.size
}

func (c *chunks) add(b []byte, count int) { c.last().add(newEncoded(b), count) }

func (c *chunks) last() *body { return c.bodies[len(c.bodies)-1] }
