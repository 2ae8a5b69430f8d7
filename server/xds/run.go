package xds

import "google.golang.org/protobuf/encoding/protowire"

// maxChunk bounds a delta response in bytes: clients by default refuse messages over 4 MiB.
var maxChunk = 2 << 20 // a variable for tests

// run is entries encoded one after the other, so that any stretch of them can be sent unchanged.
type run struct {
	bytes []byte
	ends  []int // of each entry in bytes
}

// span is a stretch of a run: the entries from start, without end.
type span struct{ start, end int }

func encodeRun(entries []*Entry, format form) *run {
	result := &run{ends: make([]int, len(entries))}
	contents, size := make([]*Entry, len(entries)), 0
	for i, entry := range entries {
		if contents[i] = entry; entry.Encoder != nil {
			contents[i] = &Entry{Name: entry.Name, Version: entry.Version, Any: entry.Content()}
		}
		size += contents[i].size(format)
		result.ends[i] = size
	}
	result.bytes = make([]byte, 0, size)
	for _, entry := range contents {
		result.bytes = entry.append(result.bytes, format)
	}
	return result
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
func (c *chunks) page(shared *page) {
	encoded := shared.encoded(formDelta)
	if encoded.len() > c.limit { // entries of many kilobytes
		c.entries(shared.entries)
		return
	}
	c.room(encoded.len())
	c.last().add(encoded, len(shared.entries))
}

// entries encodes and adds entries.
func (c *chunks) entries(entries []*Entry) {
	c.spans(encodeRun(entries, formDelta), []span{{0, len(entries)}})
}

// spans adds stretches of a run.
func (c *chunks) spans(source *run, spans []span) {
	for _, stretch := range spans {
		for i := stretch.start; i < stretch.end; {
			from, to := source.offset(i), i+1
			room := c.room(source.ends[i] - from)
			for to < stretch.end && source.ends[to]-from <= room {
				to++
			}
			c.add(source.bytes[from:source.ends[to-1]], to-i)
			i = to
		}
	}
}

// removals adds the names of removed resources.
func (c *chunks) removals(removed []string) {
	for len(removed) > 0 {
		size, count := 0, 0
		room := c.room(sizeRemoved(removed[0]))
		for count == 0 || count < len(removed) && size+sizeRemoved(removed[count]) <= room {
			size += sizeRemoved(removed[count])
			count++
		}
		encoded := make([]byte, 0, size)
		for _, name := range removed[:count] {
			encoded = protowire.AppendTag(encoded, deltaRemoved, protowire.BytesType)
			encoded = protowire.AppendString(encoded, name)
		}
		c.add(encoded, count)
		removed = removed[count:]
	}
}

// room returns the free bytes of the last chunk. It begins a new chunk if size bytes, which cannot be cut, do not fit.
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
