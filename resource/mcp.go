package resource

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
	mcp "istio.io/api/mcp/v1alpha1"
)

// MCPTypeURL is the type URL of the Any that carries a resource: the same for all kinds but those that are Bare.
const MCPTypeURL = typePrefix + "istio.mcp.v1alpha1.Resource"

// typePrefix begins the type URLs of messages.
const typePrefix = "type.googleapis.com/"

// The numbers of the fields of google.protobuf.Any and Timestamp, istio.mcp.v1alpha1.Resource and Metadata, and of the
// entries of a map.
const (
	anyTypeURL, anyValue                                                                   = 1, 2
	timestampSeconds, timestampNanos                                                       = 1, 2
	resourceMetadata, resourceBody                                                         = 1, 2
	metadataName, metadataCreateTime, metadataVersion, metadataLabels, metadataAnnotations = 1, 2, 3, 4, 5
	mapKey, mapValue                                                                       = 1, 2
)

// EncodeMCP returns a resource in the form for istiod: the encoded google.protobuf.Any that is an element of
// DiscoveryResponse.resources. Its type is MCPTypeURL, or for a Bare kind that of the spec. The bytes are the same for
// the same resource in every process: the deterministic encoding of proto.Marshal.
//
// A resource without a creation time has 1970: istiod up to 1.13 refuses one without, and later ones assume 1970. The
// year 1, of a zero time.Time, would sort before every real object in conflicts.
func EncodeMCP(resource *Resource) ([]byte, error) {
	schema, ok := schemaByKind[resource.key.Kind]
	if !ok {
		return nil, fmt.Errorf("encode %s: unknown kind", resource.key)
	}
	var space [3][1024]byte // spares allocations for most
	head := appendText(space[0][:0], anyTypeURL, typePrefix, string(schema.Message))
	if len(resource.body) > 0 {
		head = appendHeader(head, anyValue, len(resource.body))
	}
	if !schema.Bare {
		meta := appendMetadata(space[1][:0], resource)
		value := append(appendHeader(space[2][:0], resourceMetadata, len(meta)), meta...)
		value = append(appendHeader(value, resourceBody, len(head)+len(resource.body)), head...)
		head = appendText(space[0][:0], anyTypeURL, MCPTypeURL)
		head = append(appendHeader(head, anyValue, len(value)+len(resource.body)), value...)
	}
	return bytes.Join([][]byte{head, resource.body}, nil), nil
}

// appendMetadata appends the fields of an istio.mcp.v1alpha1.Metadata.
func appendMetadata(b []byte, resource *Resource) []byte {
	b = appendText(b, metadataName, resource.key.Namespace, "/", resource.key.Name)
	var created [2 * (1 + binary.MaxVarintLen64)]byte
	date := appendVarint(appendVarint(created[:0], timestampSeconds, uint64(resource.created.seconds)), timestampNanos,
		uint64(resource.created.nanos))
	b = append(appendHeader(b, metadataCreateTime, len(date)), date...)
	b = appendText(b, metadataVersion, resource.version)
	return appendMap(appendMap(b, metadataLabels, resource.labels), metadataAnnotations, resource.annotations)
}

// DecodeMCP reads the resource in an element of DiscoveryResponse.resources. The kind is that of typeURL, the
// subscribed type ("networking.istio.io/v1/ServiceEntry", in any of its versions). The body is kept as received and is
// not checked: Validate does that. A creation time of 1970 or of the year 1, which istiod sends for objects read from
// files, counts as none. The version of the sender is not kept.
func DecodeMCP(typeURL string, element *anypb.Any) (*Resource, error) {
	schema, ok := SchemaByTypeURL(typeURL)
	if !ok {
		return nil, fmt.Errorf("unknown type URL %q", typeURL)
	}
	if schema.Bare {
		if err := checkBodyURL(schema, element.GetTypeUrl()); err != nil {
			return nil, err
		}
		return FromBody(Meta{Key: Key{Kind: schema.Kind, Name: meshConfigName}}, element.GetValue()), nil
	}
	if got := messageName(element.GetTypeUrl()); got != messageName(MCPTypeURL) {
		return nil, fmt.Errorf("%s: resource of type %q, want %s", schema.Kind, element.GetTypeUrl(), MCPTypeURL)
	}
	var resource mcp.Resource
	if err := element.UnmarshalTo(&resource); err != nil {
		return nil, fmt.Errorf("%s: decode: %w", schema.Kind, err)
	}
	namespace, name, ok := strings.Cut(resource.GetMetadata().GetName(), "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%s: the name is %q, want \"namespace/name\"", schema.Kind, resource.GetMetadata().GetName())
	}
	meta := Meta{
		Key:         Key{Kind: schema.Kind, Namespace: namespace, Name: name},
		Labels:      resource.GetMetadata().GetLabels(),
		Annotations: resource.GetMetadata().GetAnnotations(),
	}
	if resource.GetBody() == nil {
		return nil, fmt.Errorf("%s: no body", meta.Key)
	}
	if err := checkBodyURL(schema, resource.GetBody().GetTypeUrl()); err != nil {
		return nil, fmt.Errorf("%s: %w", meta.Key, err)
	}
	if timestamp := resource.GetMetadata().GetCreateTime(); timestamp != nil {
		if err := timestamp.CheckValid(); err != nil {
			return nil, fmt.Errorf("%s: create_time: %w", meta.Key, err)
		}
		meta.Created = timestamp.AsTime()
	}
	return FromBody(meta, resource.GetBody().GetValue()), nil
}

// checkBodyURL checks that url names the message of the schema, in any version of its package: all are the same on the
// wire, and senders differ.
func checkBodyURL(schema *Schema, url string) error {
	got, want := messageName(url), string(schema.Message)
	if got == want || sansVersion(got) == sansVersion(want) {
		return nil
	}
	if got == "" {
		return errors.New("the body has no type")
	}
	return fmt.Errorf("the body is of type %q, want %s", url, schema.BodyTypeURL())
}

// messageName returns the part of a type URL after the last slash.
func messageName(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

// sansVersion returns a message name "istio.networking.v1alpha3.Gateway" without its version.
func sansVersion(name string) string {
	last := strings.LastIndexByte(name, '.')
	if last < 0 {
		return name
	}
	version := strings.LastIndexByte(name[:last], '.')
	if version < 0 || !strings.HasPrefix(name[version+1:last], "v") {
		return name
	}
	return name[:version] + name[last:]
}

// The following functions omit empty fields, as protobuf does.

// appendText is for a string given in parts.
func appendText(b []byte, number protowire.Number, parts ...string) []byte {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	if size == 0 {
		return b
	}
	b = appendHeader(b, number, size)
	for _, part := range parts {
		b = append(b, part...)
	}
	return b
}

func appendVarint(b []byte, number protowire.Number, value uint64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), value)
}

// appendHeader begins a message or string of size bytes.
func appendHeader(b []byte, num protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.BytesType), uint64(size))
}

// appendMap appends the entries of a map. Keys and values are encoded even if empty.
func appendMap(b []byte, number protowire.Number, entries map[string]string) []byte {
	if len(entries) == 0 {
		return b
	}
	var space [16]string // spares an allocation
	for _, key := range appendSortedKeys(space[:0], entries) {
		// A tag has one byte.
		b = appendHeader(b, number, 2+protowire.SizeBytes(len(key))+protowire.SizeBytes(len(entries[key])))
		b = append(appendHeader(b, mapKey, len(key)), key...)
		b = append(appendHeader(b, mapValue, len(entries[key])), entries[key]...)
	}
	return b
}
