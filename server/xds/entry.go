package xds

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// Entry is one resource of a collection. It is immutable once it was applied.
type Entry struct {
	Name    string
	Version string // opaque; an entry with the version of its predecessor is not a change
	// Any is the encoded google.protobuf.Any that goes on the wire.
	Any []byte
	// Child is the name under which a client asks for the resource that belongs to this one in the child type of the
	// collection: for a Cluster, the name of its ClusterLoadAssignment. Empty if there is none.
	Child string
}

// Field numbers of envoy.service.discovery.v3.
const (
	sotwVersion      = 1 // DiscoveryResponse
	sotwControlPlane = 6

	deltaVersion      = 1 // DeltaDiscoveryResponse
	deltaRemoved      = 6
	deltaControlPlane = 7

	respResources = 2 // both
	respTypeURL   = 4
	respNonce     = 5

	resourceVersion = 1 // Resource
	resourceBody    = 2
	resourceName    = 3
)

// appendSotW appends e as an element of DiscoveryResponse.resources.
func (e *Entry) appendSotW(b []byte) []byte {
	b = protowire.AppendTag(b, respResources, protowire.BytesType)
	return protowire.AppendBytes(b, e.Any)
}

func (e *Entry) sizeSotW() int { return 1 + protowire.SizeBytes(len(e.Any)) }

// appendDelta appends e as an element of DeltaDiscoveryResponse.resources.
func (e *Entry) appendDelta(b []byte) []byte {
	b = protowire.AppendTag(b, respResources, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(e.sizeResource()))
	b = protowire.AppendTag(b, resourceVersion, protowire.BytesType)
	b = protowire.AppendString(b, e.Version)
	b = protowire.AppendTag(b, resourceBody, protowire.BytesType)
	b = protowire.AppendBytes(b, e.Any)
	b = protowire.AppendTag(b, resourceName, protowire.BytesType)
	return protowire.AppendString(b, e.Name)
}

func (e *Entry) sizeResource() int {
	return 3 + protowire.SizeBytes(len(e.Version)) + protowire.SizeBytes(len(e.Any)) + protowire.SizeBytes(len(e.Name))
}

func (e *Entry) sizeDelta() int { return 1 + protowire.SizeBytes(e.sizeResource()) }

// setHash is a hash of a set of entries that does not depend on their order: the sum of a hash of each, so that one
// entry is added or taken away in constant time. Replicas with equal content agree on it.
type setHash [2]uint64

func (h setHash) add(e *Entry) setHash {
	a := e.hash()
	return setHash{h[0] + a[0], h[1] + a[1]}
}

func (h setHash) remove(e *Entry) setHash {
	a := e.hash()
	return setHash{h[0] - a[0], h[1] - a[1]}
}

// String returns the hash as 22 characters.
func (h setHash) String() string {
	b := binary.BigEndian.AppendUint64(nil, h[0])
	b = binary.BigEndian.AppendUint64(b, h[1])
	return base64.RawURLEncoding.EncodeToString(b)
}

// hash covers name and version: the version stands for the content.
func (e *Entry) hash() setHash {
	b := make([]byte, 0, 128)
	b = append(append(append(b, e.Name...), 0), e.Version...)
	sum := sha256.Sum256(b)
	return setHash{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:16])}
}
