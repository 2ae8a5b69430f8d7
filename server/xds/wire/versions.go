package wire

import (
	"hash/maphash"
	"iter"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Versions are the initial_resource_versions of a request, perhaps a hundred thousand. They stay encoded, in gRPC's
// buffers, so that a name takes no memory of its own.
type Versions struct {
	parts       [][]byte // of the decoded request that has them, each of whole fields
	memory      mem.BufferSlice
	Fingerprint Fingerprint
}

// Free releases the memory. It may be called on nil.
func (v *Versions) Free() {
	if v != nil {
		v.memory.Free()
		*v = Versions{}
	}
}

// Size returns the size in bytes of the decoded requests with the versions.
func (v *Versions) Size() (size int) {
	for _, part := range v.parts {
		size += len(part)
	}
	return size
}

// Entries yields the encoded entries, for MapEntry. If a name occurs twice, the last one counts.
func (v *Versions) Entries() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, b := range v.parts {
			for len(b) > 0 {
				entry, rest, ok := nextInitial(b)
				if b = rest; ok && !yield(entry) {
					return
				}
			}
		}
	}
}

// The number and the tag of initial_resource_versions in a delta request.
const (
	initialField = 5
	initialTag   = initialField<<3 | byte(protowire.BytesType)
)

// shortInitial returns the end of the first field of a delta request, if it is an entry of initial_resource_versions
// shorter than 128 bytes, as nearly all are; else zero.
func shortInitial(request []byte) (end int) {
	if len(request) < 2 || request[0] != initialTag || request[1] >= 0x80 || len(request) < 2+int(request[1]) {
		return 0
	}
	return 2 + int(request[1])
}

// nextInitial cuts the first field off a request that decodes without an error, and reports whether it is an entry of
// initial_resource_versions.
func nextInitial(request []byte) (entry, rest []byte, ok bool) {
	if end := shortInitial(request); end > 0 {
		return request[2:end], request[end:], true
	}
	number, wireType, size := protowire.ConsumeTag(request)
	request = request[size:]
	if number != initialField || wireType != protowire.BytesType {
		return nil, request[protowire.ConsumeFieldValue(number, wireType, request):], false
	}
	entry, size = protowire.ConsumeBytes(request)
	return entry, request[size:], true
}

// Fingerprint identifies a set of names and versions: the sum of a hash of each, as clients encode it in
// initial_resource_versions. A client that resumes with the fingerprint of a state has that state, so its versions need
// no lookup. No client knows the seed, so two sets have the same fingerprint once in 2^64 times.
type Fingerprint struct {
	count int
	sum   uint64
}

var fingerprintSeed = maphash.MakeSeed()

// plus returns the fingerprint with one more encoded entry.
func (f Fingerprint) plus(entry []byte) Fingerprint {
	return Fingerprint{f.count + 1, f.sum + maphash.Bytes(fingerprintSeed, entry)}
}

// Plus returns the fingerprint with one more name and version.
func (f Fingerprint) Plus(name, version string) Fingerprint {
	return f.plus(AppendMapEntry(make([]byte, 0, 128), name, version))
}

// Minus returns the fingerprint without a name and version of the set.
func (f Fingerprint) Minus(name, version string) Fingerprint {
	single := Fingerprint{}.Plus(name, version)
	return Fingerprint{f.count - single.count, f.sum - single.sum}
}
