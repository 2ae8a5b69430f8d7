package xds

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Entry is one resource of a collection. It must not be changed after a commit has it.
type Entry struct {
	Name string
	// Version is opaque; if empty, it is derived from the content. An entry with the version of its predecessor counts as
	// unchanged, and a client that resumes with the version does not get the entry. So never use a version for two
	// contents, not even across a restart: an Envoy would keep the old content.
	Version string
	// Any is the encoded google.protobuf.Any that goes on the wire.
	Any []byte
	// Encoder, if not nil, returns the same Any at each call: its inputs are in memory anyway.
	Encoder interface{ EncodeAny() []byte }
	// Child is the name of the resource of the child type that belongs to this one: for a Cluster, the name of its
	// ClusterLoadAssignment. Empty if there is none.
	Child string

	unknown  bool // reports the name as missing: see Type.Aliases
	fallback bool // is sent instead of one that the client rejects: see Type.Fallback
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
	resourceAliases = 4
)

// form is the encoding of an entry as an element of a response's resources.
type form int

const (
	formSotW  form = iota // the Any itself
	formDelta             // a Resource
	forms
)

// Content returns the Any.
func (e *Entry) Content() []byte {
	if e.Encoder != nil {
		return e.Encoder.EncodeAny()
	}
	return e.Any
}

// encode concatenates entries in one form.
func encode(entries []*Entry, f form) *encoded { return newEncoded(encodeRun(entries, f).bytes) }

func (e *Entry) append(b []byte, f form) []byte {
	b = protowire.AppendTag(b, respResources, protowire.BytesType)
	if f == formSotW {
		return protowire.AppendBytes(b, e.Any)
	}
	b = protowire.AppendVarint(b, uint64(e.sizeResource()))
	if e.unknown {
		b = protowire.AppendTag(b, resourceName, protowire.BytesType)
		b = protowire.AppendString(b, e.Name)
		b = protowire.AppendTag(b, resourceAliases, protowire.BytesType)
		return protowire.AppendString(b, e.Name)
	}
	b = protowire.AppendTag(b, resourceVersion, protowire.BytesType)
	b = protowire.AppendString(b, e.Version)
	b = protowire.AppendTag(b, resourceBody, protowire.BytesType)
	b = protowire.AppendBytes(b, e.Any)
	b = protowire.AppendTag(b, resourceName, protowire.BytesType)
	return protowire.AppendString(b, e.Name)
}

// size is the number of bytes that append adds.
func (e *Entry) size(f form) int {
	if f == formSotW {
		return 1 + protowire.SizeBytes(len(e.Any))
	}
	return 1 + protowire.SizeBytes(e.sizeResource())
}

// sizeResource is the size of the Resource message of e.
func (e *Entry) sizeResource() int {
	if e.unknown {
		return 2 * (1 + protowire.SizeBytes(len(e.Name)))
	}
	return 3 + protowire.SizeBytes(len(e.Version)) + protowire.SizeBytes(len(e.Any)) + protowire.SizeBytes(len(e.Name))
}

// setHash is a hash of a set of entries in any order: the sum of a hash of each, so that an entry is added or removed
// in constant time. Replicas with equal content have equal hashes.
type setHash [2]uint64

func (h setHash) plus(e setHash) setHash  { return setHash{h[0] + e[0], h[1] + e[1]} }
func (h setHash) minus(e setHash) setHash { return setHash{h[0] - e[0], h[1] - e[1]} }

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

// validate returns an error if no client could decode the entry.
func (e *Entry) validate() error {
	switch {
	case e == nil:
		return errors.New("entry is nil")
	case e.Name == "" || e.Name == "*":
		return fmt.Errorf("entry name is %q", e.Name)
	}
	for rest := e.Any; len(rest) > 0; {
		num, typ, size := protowire.ConsumeField(rest)
		if size < 0 || num <= 2 && typ != protowire.BytesType {
			return fmt.Errorf("%s: Any is not an encoded google.protobuf.Any", e.Name)
		}
		rest = rest[size:]
	}
	return nil
}

// versioned returns the entry with a version, derived from the content if it has none.
func versioned(entry *Entry) *Entry {
	if entry.Version != "" {
		return entry
	}
	clone := *entry
	clone.Version = VersionOf(entry.Content())
	return &clone
}

// NewEntry returns the entry of an Envoy resource, or of any other message with a name, by NameOf, VersionOf and
// ChildOf.
func NewEntry(message proto.Message) (*Entry, error) {
	name := NameOf(message)
	if name == "" {
		return nil, fmt.Errorf("resource %s has no name", message.ProtoReflect().Descriptor().FullName())
	}
	var body anypb.Any
	if err := anypb.MarshalFrom(&body, message, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("encode resource %q: %w", name, err)
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(&body)
	if err != nil {
		return nil, fmt.Errorf("encode resource %q: %w", name, err)
	}
	return &Entry{Name: name, Version: VersionOf(encoded), Any: encoded, Child: ChildOf(message)}, nil
}

// NameOf returns the name of a resource: the cluster of a ClusterLoadAssignment, and the name field of any other
// message; empty if there is none.
func NameOf(message proto.Message) string {
	if e, ok := message.(*endpointv3.ClusterLoadAssignment); ok {
		return e.GetClusterName()
	}
	if named, ok := message.(interface{ GetName() string }); ok {
		return named.GetName()
	}
	return ""
}

// ChildOf returns the name under which a client subscribes to the endpoints of a cluster; empty if it does not, or m is
// not a cluster.
func ChildOf(m proto.Message) string {
	cluster, ok := m.(*clusterv3.Cluster)
	if !ok || cluster.GetType() != clusterv3.Cluster_EDS {
		return ""
	}
	if name := cluster.GetEdsClusterConfig().GetServiceName(); name != "" {
		return name
	}
	return cluster.GetName()
}

// VersionOf returns a version derived from content: equal bytes always have equal versions.
func VersionOf(content []byte) string {
	sum := sha256.Sum256(content)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}
