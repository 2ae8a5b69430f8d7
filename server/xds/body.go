package xds

import (
	"slices"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// body is the part of a response that streams share: all fields but version, type URL, nonce and control plane, which
// each stream sends in a header. Protobuf allows fields in any order and repeated fields in pieces, so a message is its
// header followed by the pieces of its body.
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

// chunkMark is a header of delta streams. It declares that only the last chunk of a large response has a
// system_version_info: the client is at that version then. The protocol itself does not mark the end of the first
// content of a type. Package adsc reads the mark.
var chunkMark = metadata.Pairs("xds-delta-chunks", "version-at-end")

// sotwBody encodes a whole state for a SotW stream. It is not cut: absence deletes.
func (s *state) sotwBody() *body {
	result := &body{parts: make([]*encoded, 0, len(s.pages))}
	for _, page := range s.pages {
		result.add(page.encoded(formSotW), len(page.entries))
	}
	return result
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

// newFrame joins the header of a stream with a body, and compresses both if compress is true.
func newFrame(header []byte, content *body, compress bool) *frame {
	data := make(mem.BufferSlice, 0, 2+len(content.parts))
	if compress {
		data, header = append(data, zipMark), stored(header)
	}
	data = append(data, mem.SliceBuffer(header))
	for _, encoded := range content.parts {
		if compress {
			encoded = encoded.zipped()
		}
		data = append(data, encoded.buf)
	}
	return &frame{data}
}

// size is the number of bytes on the wire, without gRPC's prefix.
func (f *frame) size() int {
	size := f.data.Len()
	if isZipMark(f.data[0].ReadOnlyData()) {
		size -= zipMark.Len()
	}
	return size
}
