package xds

import (
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// body is what several streams are sent alike: every field of a response but version, type URL, nonce and control
// plane, which stand in a header of the stream's own. The order of fields is free in protobuf, and repeated fields may
// be given in pieces, so a message is its header followed by the pieces of its body.
type body struct {
	parts []*encoded
	size  int
	count int // resources and removals
}

func (b *body) add(e *encoded, count int) {
	b.parts = append(b.parts, e)
	b.size += e.len()
	b.count += count
}

var emptyBody = &body{}

// chunkMark is the header of delta streams which tells that of the responses that a large one was cut into only the last
// has a system_version_info: the client is at that version then, and not before. Without it a client cannot know when it
// has all of a type for the first time, for which the protocol has no mark. Package adsc makes use of it.
var chunkMark = metadata.Pairs("xds-delta-chunks", "version-at-end")

// sotwBody is the whole of a state for a SotW stream: it cannot be cut, since what is absent from it is deleted.
func (s *state) sotwBody(f form) *body {
	b := &body{parts: make([]*encoded, 0, len(s.pages))}
	for _, p := range s.pages {
		b.add(p.encoded(f), len(p.entries))
	}
	return b
}

// sotwBodyOf holds just entries.
func sotwBodyOf(entries []*Entry, f form) *body {
	if len(entries) == 0 {
		return emptyBody
	}
	b := &body{}
	b.add(encode(entries, f, false), len(entries))
	return b
}

// deltaBodiesAll is the whole of a state for a delta stream, in chunks.
func (s *state) deltaBodiesAll(f form) []*body {
	c := newChunks(maxChunk)
	for _, p := range s.pages {
		c.page(p, f)
	}
	return c.bodies
}

// deltaBodiesOf holds puts, which are entries of s in order of name, and removed. Pages of which everything is put are encoded for
// all streams: a client that brings along something outdated, or asks for a name besides everything, has no copy of its own.
func (s *state) deltaBodiesOf(puts []*Entry, removed []string, f form) []*body {
	c := newChunks(maxChunk)
	own := puts // that are encoded for this stream
	if len(puts) >= minPage {
		own = nil
		for _, p := range s.pages {
			for len(puts) > 0 && puts[0].Name < p.first() {
				own, puts = append(own, puts[0]), puts[1:]
			}
			if n := len(p.entries); len(puts) >= n && slices.Equal(puts[:n], p.entries) {
				c.page(p, f)
				puts = puts[n:]
			}
		}
		own = append(own, puts...)
	}
	c.entries(own, f)
	c.removals(removed)
	return c.bodies
}

// frame is a response on its way to one stream, the type that the codec passes through.
type frame struct {
	data mem.BufferSlice
	info *ResponseInfo // for a hook, or nil
}

// newFrame joins the header of a stream with a body.
func newFrame(header []byte, b *body) *frame {
	data := make(mem.BufferSlice, 0, 1+len(b.parts))
	data = append(data, mem.SliceBuffer(header))
	for _, p := range b.parts {
		data = append(data, p.buf)
	}
	return &frame{data: data}
}

// size is the number of bytes on the wire, without those that gRPC puts before a message.
func (f *frame) size() int {
	n := f.data.Len()
	if isZipMark(f.data[0].ReadOnlyData()) {
		n -= zipMark.Len()
	}
	return n
}

// newZippedFrame is newFrame for a stream whose messages are compressed.
func newZippedFrame(header []byte, b *body) *frame {
	data := make(mem.BufferSlice, 0, 2+len(b.parts))
	data = append(data, zipMark, mem.SliceBuffer(stored(header)))
	for _, p := range b.parts {
		data = append(data, p.zipped().buf)
	}
	return &frame{data: data}
}
