package lastgood

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
)

// The file format of bbolt, version 2 (go.etcd.io/bbolt/internal/common, v1.5.0; unchanged since Bolt 1.0), as far as it
// is needed to read buckets.
//
// Files are not read with bbolt, because it takes them on trust: it checks a sum only over the meta pages, maps files that
// may be shorter than they say, follows offsets outside of a page, and runs in circles forever if a branch refers to a
// page above it. None of that can be recovered from in process. Here every page is read at most once, and nothing
// outside of the page that it belongs to.
const (
	pageSize   = 4096 // with which the files are made
	pageHeader = 16   // id 8, flags 2, count 2, overflow 4
	element    = 16   // branch: pos 4, key size 4, page 8; leaf: flags 4, pos 4, key size 4, value size 4
	bucketSize = 16   // root page 8, sequence 8

	branchPage = 0x01
	leafPage   = 0x02
	metaPage   = 0x04
	bucketLeaf = 0x01

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	metaSum     = 56 // offset of the checksum in a meta

	noFreelist = ^uint64(0) // in the place of its page: which pages are free is found out by looking
)

// native is the byte order of the file: that of the machine. A file from another kind of machine has a wrong magic number.
var native = binary.NativeEndian

// pages is a bbolt file in memory.
type pages struct {
	data []byte
	end  uint64 // the first page behind those of the file
	seen map[uint64]bool
	used uint64 // pages that were read
	// trusting says that bbolt would take something on trust that is not read here, or that is wrong: a list of the pages
	// that are free, or keys of a branch that do not lead to what is below.
	trusting bool
}

// openPages returns the file, and the root page of its newest valid state.
func openPages(data []byte) (*pages, uint64, error) {
	var best []byte
	for i := range 2 {
		if m := metaOf(data, i); m != nil && (best == nil || native.Uint64(m[48:]) > native.Uint64(best[48:])) {
			best = m
		}
	}
	if best == nil {
		return nil, 0, damaged("neither of its first two pages is a valid beginning")
	}
	p := &pages{data: data, end: native.Uint64(best[40:]), seen: make(map[uint64]bool), trusting: native.Uint64(best[32:]) != noFreelist}
	if p.end > uint64(len(data)/pageSize) {
		return nil, 0, damaged("it has %d bytes, and must have at least %d pages of %d", len(data), p.end, pageSize)
	}
	return p, native.Uint64(best[16:]), nil
}

// metaOf returns the meta in page i if it is valid.
func metaOf(data []byte, i int) []byte {
	if len(data) < (i+1)*pageSize {
		return nil
	}
	p := data[i*pageSize:]
	m := p[pageHeader:]
	sum := fnv.New64a()
	sum.Write(m[:metaSum])
	if native.Uint16(p[8:])&metaPage == 0 || native.Uint32(m) != boltMagic || native.Uint32(m[4:]) != boltVersion ||
		native.Uint32(m[8:]) != pageSize || native.Uint64(m[metaSum:]) != sum.Sum64() {
		return nil
	}
	return m
}

// content calls f for each pair of a bucket, in order of the keys. It may be called once.
type content func(f func(key, value []byte) error) error

// buckets returns the buckets in the tree at root.
func (p *pages) buckets(root uint64) (map[string]content, error) {
	all := make(map[string]content)
	err := p.walk(root, bounds{}, func(flags uint32, key, value []byte) error {
		if flags&bucketLeaf == 0 || len(value) < bucketSize {
			return damaged("%q is no bucket", key)
		}
		top, inline := native.Uint64(value), value[bucketSize:]
		all[string(key)] = func(f func(key, value []byte) error) error {
			visit := func(flags uint32, key, value []byte) error {
				if flags != 0 {
					return damaged("%q is no record", key)
				}
				return f(key, value)
			}
			if top == 0 {
				return p.page(inline, bounds{}, visit)
			}
			return p.walk(top, bounds{}, visit)
		}
		return nil
	})
	return all, err
}

// visitor is called for each element of a leaf, in order of the keys.
type visitor func(flags uint32, key, value []byte) error

// bounds are those of the keys below a page: from the first to the one before the second. Nil is no bound.
type bounds struct{ from, to []byte }

func (b bounds) have(key []byte) bool {
	return bytes.Compare(b.from, key) <= 0 && (b.to == nil || bytes.Compare(key, b.to) < 0)
}

// walk visits the tree below page id.
func (p *pages) walk(id uint64, b bounds, visit visitor) error {
	if id < 2 || id >= p.end {
		return damaged("it refers to page %d of %d", id, p.end)
	}
	page := p.data[id*pageSize:]
	count := uint64(native.Uint32(page[12:])) + 1
	size := count * pageSize
	if native.Uint64(page) != id || id*pageSize+size > p.end*pageSize {
		return damaged("page %d has a wrong header", id)
	}
	for n := id; n < id+count; n++ {
		if p.seen[n] {
			return damaged("it refers to page %d twice", n)
		}
		p.seen[n] = true
	}
	p.used += count
	return p.page(page[:size], b, visit)
}

// reusable reports whether the file, of which everything was read and found whole, can be written to as it is: nothing in
// it is taken on trust, and not most of it is empty.
func (p *pages) reusable() bool { return !p.trusting && p.end <= 2*p.used+slack }

// slack is how many pages a file may have that are empty, however small it is.
const slack = 64

// page visits what is in, or below, one page.
func (p *pages) page(page []byte, b bounds, visit visitor) error {
	if len(page) < pageHeader {
		return damaged("a page has no header")
	}
	flags, count := native.Uint16(page[8:]), int(native.Uint16(page[10:]))
	if len(page) < pageHeader+count*element {
		return damaged("a page has too many elements")
	}
	var last []byte
	var below uint64 // the page that last leads to
	for i := range count {
		at := pageHeader + i*element
		e := page[at:]
		var key, value []byte
		var ok bool
		switch flags {
		case branchPage:
			key, ok = within(e, native.Uint32(e), native.Uint32(e[4:]))
		case leafPage:
			pos, n := native.Uint32(e[4:]), native.Uint32(e[8:])
			if key, ok = within(e, pos, n); ok {
				value, ok = within(e, pos+n, native.Uint32(e[12:]))
			}
		}
		if !ok || i > 0 && bytes.Compare(last, key) >= 0 {
			return damaged("a page has a wrong element")
		}
		p.trusting = p.trusting || !b.have(key)
		var err error
		switch {
		case flags == leafPage:
			err = visit(native.Uint32(e), key, value)
		case i > 0:
			err = p.walk(below, bounds{last, key}, visit)
		}
		if err != nil {
			return err
		}
		last, below = key, native.Uint64(e[8:])
	}
	if flags == branchPage && count > 0 {
		return p.walk(below, bounds{last, b.to}, visit)
	}
	return nil
}

// within returns n bytes at pos of b, if it has them.
func within(b []byte, pos, n uint32) ([]byte, bool) {
	if uint64(pos)+uint64(n) > uint64(len(b)) {
		return nil, false
	}
	return b[pos : pos+n], true
}
