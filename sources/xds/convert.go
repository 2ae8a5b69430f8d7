package xds

import (
	"errors"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
	mcp "istio.io/api/mcp/v1alpha1"

	"tributary/adsc"
	"tributary/resource"
)

// revisionLabel is the label by which a resource belongs to one revision of Istio.
const revisionLabel = "istio.io/rev"

// istiodNamespace is where istiod has objects that it read from files that name no namespace. It sends them as "/name".
const istiodNamespace = "default"

// bareName is the name of the only resource of a kind whose resources have none. A delta server gives it one all the same,
// whichever it likes.
const bareName = "istio"

// nameIn returns the name by which the server knows a resource, also one that cannot be decoded, or nothing.
func nameIn(schema *resource.Schema, r adsc.Resource) string {
	name := r.Name
	switch {
	case name != "":
	case schema.Bare:
		name = bareName
	default:
		name = innerName(r.Body)
	}
	if name == unnamed {
		return "" // it is the name of the group of those that have none
	}
	return name
}

// innerName returns metadata.name of an encoded mcp.Resource, even if what follows it is broken.
func innerName(a *anypb.Any) string {
	if !a.MessageIs((*mcp.Resource)(nil)) {
		return ""
	}
	const metadata, name = 1, 1
	return string(field(field(a.GetValue(), metadata), name))
}

// field returns the value of a field of type bytes, message or string, or nil.
func field(b []byte, want protowire.Number) []byte {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		if num == want && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			return v
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return nil
		}
		b = b[n:]
	}
	return nil
}

// keyOf returns the key that a name stands for, or the zero key.
func keyOf(schema *resource.Schema, name string) resource.Key {
	if schema.Bare {
		return resource.Key{Kind: schema.Kind, Name: bareName}
	}
	namespace, name, ok := strings.Cut(name, "/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return resource.Key{}
	}
	if namespace == "" {
		namespace = istiodNamespace
	}
	return resource.Key{Kind: schema.Kind, Namespace: namespace, Name: name}
}

// decode makes a resource of what a server sent under typeURL.
func decode(typeURL string, body *anypb.Any) (*resource.Resource, error) {
	if body == nil {
		return nil, errors.New("there is no resource in it")
	}
	if strings.HasPrefix(innerName(body), "/") {
		var m mcp.Resource
		if err := body.UnmarshalTo(&m); err == nil {
			m.Metadata.Name = istiodNamespace + m.GetMetadata().GetName()
			if named, err := anypb.New(&m); err == nil {
				body = named
			}
		}
	}
	return resource.DecodeMCP(typeURL, body)
}

// forRevision reports whether r is meant for a revision of Istio; all are for none in particular.
func forRevision(r *resource.Resource, revision string) bool {
	label := r.Labels()[revisionLabel]
	return revision == "" || label == "" || label == revision
}
