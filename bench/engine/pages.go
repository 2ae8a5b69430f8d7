package engine

import "google.golang.org/grpc/mem"

// pageLen is how many elements lie together in one buffer: enough that a response is few buffers, few enough that a change
// copies little.
const pageLen = 64

// pages is a list of encoded elements, kept as few buffers that are shared by all streams. A page is replaced when an
// element of it changes, and is never written to.
type pages struct {
	elements [][]byte
	joined   []mem.Buffer // nil where it has to be made again
}

// set puts an element at i, which is at most one past the end.
func (p *pages) set(i int, element []byte) {
	if i == len(p.elements) {
		p.elements = append(p.elements, nil)
		if i%pageLen == 0 {
			p.joined = append(p.joined, nil)
		}
	}
	p.elements[i] = element
	p.joined[i/pageLen] = nil
}

func (p *pages) get(i int) []byte { return p.elements[i] }

// buffers returns all elements, with room for one buffer more.
func (p *pages) buffers() mem.BufferSlice {
	out := make(mem.BufferSlice, 0, len(p.joined)+1)
	for n, page := range p.joined {
		if page == nil {
			page = mem.SliceBuffer(p.join(n))
			p.joined[n] = page
		}
		out = append(out, page)
	}
	return out
}

func (p *pages) join(n int) []byte {
	elements := p.elements[n*pageLen : min((n+1)*pageLen, len(p.elements))]
	size := 0
	for _, e := range elements {
		size += len(e)
	}
	out := make([]byte, 0, size)
	for i, e := range elements {
		start := len(out)
		out = append(out, e...)
		elements[i] = out[start:len(out):len(out)] // so that the bytes are held once
	}
	return out
}
