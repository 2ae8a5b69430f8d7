package xds

import (
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// body is the part of a response that streams can share: all fields but version, type URL, nonce and control plane,
// which are in a header for each stream. Protobuf allows fields in any order, and repeated fields in pieces, so a
// message is its header followed by the pieces of its body.
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

// chunkMark is a header of delta streams. It says that of the chunks of a large response only the last has a
// system_version_info: the client is at that version then. The protocol itself has no sign that a client has all of a
// type for the first time. Package adsc uses it.
var chunkMark = metadata.Pairs("xds-delta-chunks", "version-at-end")

// sotwBody encodes a whole state for a SotW stream. It is not cut: absence deletes.
func (s *state) sotwBody() *body {
	b := &body{parts: make([]*encoded, 0, len(s.pages))}
	for _, p := range s.pages {
		b.add(p.encoded(formSotW), len(p.entries))
	}
	return b
}

// sotwBodyOf encodes entries for a SotW stream.
func sotwBodyOf(entries []*Entry) *body {
	if len(entries) == 0 {
		return emptyBody
	}
	b := &body{}
	b.add(encode(entries, formSotW), len(entries))
	return b
}

// deltaBodiesAll encodes a whole state for a delta stream, in chunks.
func (s *state) deltaBodiesAll() []*body {
	chunks := newChunks(maxChunk)
	for _, p := range s.pages {
		chunks.page(p)
	}
	return chunks.bodies
}

// deltaBodiesOf encodes puts (entries of s, in order) and removed. Pages wholly in puts use the shared encoding.
func (s *state) deltaBodiesOf(puts []*Entry, removed []string) []*body {
	chunks := newChunks(maxChunk)
	ownEntries := puts // encoded for this stream only
	if len(puts) >= minPage {
		ownEntries = nil
		for _, page := range s.pages {
			for len(puts) > 0 && puts[0].Name < page.first {
				ownEntries, puts = append(ownEntries, puts[0]), puts[1:]
			}
			if n := len(page.entries); len(puts) >= n && slices.Equal(puts[:n], page.entries) {
				chunks.page(page)
				puts = puts[n:]
			}
		}
		ownEntries = append(ownEntries, puts...)
	}
	chunks.entries(ownEntries)
	chunks.removals(removed)
	return chunks.bodies
}

// frame is an encoded response to one stream, which the codec passes through.
type frame struct{ data mem.BufferSlice }

// newFrame joins the header of a stream with a body, both compressed if zip says so.
func newFrame(header []byte, b *body, zip bool) *frame {
	data := make(mem.BufferSlice, 0, 2+len(b.parts))
	if zip {
		data, header = append(data, zipMark), stored(header)
	}
	data = append(data, mem.SliceBuffer(header))
	for _, encoded := range b.parts {
		if zip {
			encoded = encoded.zipped()
		}
		data = append(data, encoded.buf)
	}
	return &frame{data}
}

// size is the number of bytes on the wire, without gRPC's prefix.
func (f *frame) size() int {
	n := f.data.Len()
	if isZipMark(f.data[0].ReadOnlyData()) {
		n -= zipMark.Len()
	}
	return n
}
