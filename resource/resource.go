// Package resource defines the value that all parts of tributary exchange: a mesh configuration object, identified by
// Key, carried as its encoded protobuf body, versioned by its content.
package resource

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
)

// Key identifies a resource within a store. It is comparable and ordered by Compare.
type Key struct {
	Kind      Kind
	Namespace string // empty for a cluster-scoped kind
	Name      string
}

// String returns "Kind ns/name", the form used in messages.
func (k Key) String() string { return string(k.Kind) + " " + k.FullName() }

// FullName returns "namespace/name": the name of the resource on the wire (MCP). MeshConfig, which is cluster-scoped,
// has an empty namespace and is named without the slash.
func (k Key) FullName() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Compare orders keys by kind, namespace and name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Ref is a Key as it is written in JSON; empty for none.
type Ref struct {
	Kind      Kind   `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Key returns the key.
func (r Ref) Key() Key { return Key(r) }

// Origin is the place that a resource came from, for people.
type Origin struct {
	Source string // name of the config source
	Place  string // a place that a person can open: "rules/reviews.yaml:14", "consul dc1 service reviews"
	Group  string // of the source: its unit of publishing, such as a file
	Rules  string // the effective transforms of the source, separated by "; "
}

// String returns the place, prefixed by the source if there is one.
func (o Origin) String() string {
	if o.Source == "" {
		return o.Place
	}
	return fmt.Sprintf("%s: %s", o.Source, o.Place)
}

// Resource is one object. It is immutable: neither its maps nor its body may be changed. The With… methods make
// variants that share unchanged parts. It is safe for concurrent use.
//
// The spec is in encoded form, as received or deterministically encoded, so that fields outside of this program's
// protobuf definitions survive, and so that a store of 100,000 objects has each once.
type Resource struct {
	key         Key
	labels      map[string]string
	annotations map[string]string
	body        []byte
	version     string
	created     instant // the object's own time, or the one that Ranked gave it
	seen        int64   // in nanoseconds after 1970; 0 if unknown
	origin      Origin
	original    *Resource // before the transforms of its source; nil without a difference
	verdict     *verdict  // the result of Validate; nil before the first call
}

// Meta has all parts of a resource but its spec.
type Meta struct {
	Key         Key
	Labels      map[string]string
	Annotations map[string]string
	Created     time.Time // zero if it has none
	Seen        time.Time // when it was first seen here; zero if unknown
	Origin      Origin
}

// New makes a resource of meta and spec, which must be of the message type of the kind's schema. The maps of meta are
// taken over. The version is the content hash.
func New(meta Meta, spec proto.Message) (*Resource, error) {
	schema, ok := SchemaOf(meta.Key.Kind)
	if !ok {
		return nil, fmt.Errorf("unknown kind %q", meta.Key.Kind)
	}
	if got := spec.ProtoReflect().Descriptor().FullName(); got != schema.Message {
		return nil, fmt.Errorf("%s: spec is a %s, want %s", meta.Key, got, schema.Message)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: encode spec: %w", meta.Key, err)
	}
	return FromBody(meta, body), nil
}

// FromBody makes a resource of an encoded spec, which is not decoded or checked. The maps of meta and body are taken
// over.
func FromBody(meta Meta, body []byte) *Resource {
	resource := &Resource{
		key: meta.Key, labels: meta.Labels, annotations: meta.Annotations,
		body: body, created: instantOf(meta.Created), seen: nanosOf(meta.Seen), origin: meta.Origin,
	}
	resource.version = versionOf(contentHash(resource.labels, resource.annotations, resource.body), resource.created)
	return resource
}

// Key returns the identity of the resource.
func (r *Resource) Key() Key { return r.key }

// RevisionLabel restricts an object to one revision of Istio.
const RevisionLabel = "istio.io/rev"

// Labels returns the labels, which must not be modified.
func (r *Resource) Labels() map[string]string { return r.labels }

// Annotations returns the annotations, which must not be modified.
func (r *Resource) Annotations() map[string]string { return r.annotations }

// Body returns the encoded spec, which must not be modified.
func (r *Resource) Body() []byte { return r.body }

// Version is a hash of labels, annotations and body, and the time of creation: equal for equal content in every
// process, opaque otherwise.
func (r *Resource) Version() string { return r.version }

// Created is the time of creation for clients, or zero. It is content: the object's own, or a rank; see Ranked.
func (r *Resource) Created() time.Time { return r.created.time() }

// Seen is when the object was first seen here, between 1678 and 2262, or zero. It is shown to people, and neither
// compared nor served.
func (r *Resource) Seen() time.Time {
	if r.seen == 0 {
		return time.Time{}
	}
	return time.Unix(0, r.seen).UTC()
}

// Origin returns the place that the resource came from.
func (r *Resource) Origin() Origin { return r.origin }

// Meta returns all but the spec. Its maps must not be modified.
func (r *Resource) Meta() Meta {
	return Meta{
		Key: r.key, Labels: r.labels, Annotations: r.annotations, Created: r.Created(), Seen: r.Seen(),
		Origin: r.origin,
	}
}

// WithCreated returns r with another time of creation, and so of another version.
func (r *Resource) WithCreated(t time.Time) *Resource {
	c := *r
	c.created = instantOf(t)
	c.version = versionOf(r.version[:hashLen], c.created)
	return &c
}

// WithSeen returns r first seen at another time; the version stays.
func (r *Resource) WithSeen(t time.Time) *Resource {
	c := *r
	c.seen = nanosOf(t)
	return &c
}

// WithOrigin returns r with another origin; the version stays.
func (r *Resource) WithOrigin(o Origin) *Resource {
	c := *r
	c.origin = o
	return &c
}

// Original returns r before the transforms of its source, or nil without a difference.
func (r *Resource) Original() *Resource { return r.original }

// WithOriginal returns r made of another resource; the version stays.
func (r *Resource) WithOriginal(original *Resource) *Resource {
	c := *r
	c.original = original
	return &c
}

// SameOrigin reports whether two resources come from the same place and have the same original.
func SameOrigin(a, b *Resource) bool { return a.origin == b.origin && Equal(a.original, b.original) }

// Spec decodes the body into a new message of the kind's type, which the caller owns.
func (r *Resource) Spec() (proto.Message, error) {
	schema, ok := SchemaOf(r.key.Kind)
	if !ok {
		return nil, fmt.Errorf("unknown kind %q", r.key.Kind)
	}
	spec := schema.NewSpec()
	if err := proto.Unmarshal(r.body, spec); err != nil {
		return nil, fmt.Errorf("%s: decode spec: %w", r.key, err)
	}
	return spec, nil
}

// Equal reports whether two resources have the same key and content.
func Equal(first, second *Resource) bool {
	if first == nil || second == nil {
		return first == second
	}
	return first.key == second.key && first.version == second.version
}

// appendSortedKeys appends the keys of m in order.
func appendSortedKeys(keys []string, m map[string]string) []string {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// hashLen is the length of a content hash.
const hashLen = 22

// contentHash returns 128 bits of SHA-256 over labels, annotations and body, each length-prefixed, as hashLen
// characters.
func contentHash(labels, annotations map[string]string, body []byte) string {
	var space [1024]byte // spares allocations for most
	encoded := space[:0]
	var keys [16]string
	for _, values := range []map[string]string{labels, annotations} {
		encoded = binary.AppendUvarint(encoded, uint64(len(values)))
		for _, key := range appendSortedKeys(keys[:0], values) {
			encoded = appendString(encoded, key)
			encoded = appendString(encoded, values[key])
		}
	}
	encoded = append(encoded, body...)
	sum := sha256.Sum256(encoded)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// versionOf returns the version of a content hash and a time of creation. The time is not part of the hash, so that it
// can change without a new hash.
func versionOf(hash string, created instant) string {
	if created == (instant{}) {
		return hash
	}
	var space [48]byte
	version := append(space[:0], hash...)
	version = strconv.AppendInt(append(version, '.'), created.seconds, 36)
	if created.nanos != 0 {
		version = strconv.AppendInt(append(version, '.'), int64(created.nanos), 36)
	}
	return string(version)
}
