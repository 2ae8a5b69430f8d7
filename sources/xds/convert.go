package xds

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
	mcp "istio.io/api/mcp/v1alpha1"

	"tributary/adsc"
	"tributary/resource"
)

// istiodNamespace is where istiod has objects that it read from files that name no namespace. It sends them as "/name".
const istiodNamespace = "default"

// bareName is the name of the only resource of a kind without names. Delta servers give it any name.
const bareName = "istio"

// nameIn returns the server's name of a resource, even if the resource cannot be decoded; empty without one.
func nameIn(schema *resource.Schema, object adsc.Resource) string {
	name := object.Name
	switch {
	case name != "":
	case schema.Bare:
		name = bareName
	default:
		name = innerName(object.Body)
	}
	if name == unnamed {
		return "" // reserved for the group of resources without names
	}
	return name
}

// innerName returns metadata.name of an encoded mcp.Resource, even if the following fields are broken.
func innerName(body *anypb.Any) string {
	if !body.MessageIs((*mcp.Resource)(nil)) {
		return ""
	}
	const metadata, name = 1, 1
	return string(field(field(body.GetValue(), metadata), name))
}

// field returns the value of a field of type bytes, message or string, or nil.
func field(b []byte, want protowire.Number) []byte {
	for len(b) > 0 {
		number, wireType, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		if number == want && wireType == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b)
			return v
		}
		if n = protowire.ConsumeFieldValue(number, wireType, b); n < 0 {
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

// Decode decodes a resource that a server sent under typeURL.
func Decode(typeURL string, body *anypb.Any) (*resource.Resource, error) {
	if body == nil {
		return nil, errors.New("it contains no resource")
	}
	if strings.HasPrefix(innerName(body), "/") {
		var message mcp.Resource
		if err := body.UnmarshalTo(&message); err == nil {
			message.Metadata.Name = istiodNamespace + message.GetMetadata().GetName()
			if named, err := anypb.New(&message); err == nil {
				body = named
			}
		}
	}
	return resource.DecodeMCP(typeURL, body)
}

// isForRevision reports whether r applies to a revision of Istio. All resources apply without a revision.
func isForRevision(r *resource.Resource, revision string) bool {
	label := r.Labels()[resource.RevisionLabel]
	return revision == "" || label == "" || label == revision
}

// kind is a requested kind of resources.
type kind struct {
	schema *resource.Schema
	// typeURLs are its aliases, the preferred one first. A tributary answers all of them alike. An istiod knows one of
	// them, depending on its version, and answers the others without resources.
	typeURLs []string
}

// serviceRegistry is Istio's name of service resources in meshConfig.configSources.
const serviceRegistry = "SERVICE_REGISTRY"

// subscribedKinds returns the kinds that subscribedResources names, in order of kind.
func subscribedKinds(subscribed []string) ([]kind, error) {
	var kinds []kind
	if len(subscribed) == 0 {
		for _, schema := range resource.Schemas() {
			kinds = append(kinds, kind{schema, schema.TypeURLs()})
		}
		return kinds, nil
	}
	for _, name := range subscribed {
		named, err := kindOf(name)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(kinds, func(o kind) bool { return o.schema == named.schema }) {
			return nil, fmt.Errorf("%q: %s is named twice", name, named.schema.Kind)
		}
		kinds = append(kinds, named)
	}
	return kinds, nil
}

func kindOf(name string) (kind, error) {
	if name == serviceRegistry {
		name = string(resource.ServiceEntry)
	}
	if schema, ok := resource.SchemaByTypeURL(name); ok {
		return kind{schema, []string{name}}, nil
	}
	if schema, ok := resource.SchemaByName(name); ok {
		return kind{schema, schema.TypeURLs()}, nil
	}
	return kind{}, fmt.Errorf(
		"%q: want a kind such as ServiceEntry, a type URL such as networking.istio.io/v1/ServiceEntry, or %s",
		name, serviceRegistry)
}

// isTributary reports whether a control plane identifies itself as a tributary, which answers all aliases alike.
func isTributary(controlPlane string) bool {
	var id struct{ Component string }
	return json.Unmarshal([]byte(controlPlane), &id) == nil && id.Component == "tributary"
}

// groupOf returns the group of a resource, which is also the place in its origin.
func groupOf(typeURL, name string) string { return typeURL + " " + name }

// splitGroup is the inverse of groupOf.
func splitGroup(group string) (typeURL, name string) {
	typeURL, name, _ = strings.Cut(group, " ")
	return typeURL, name
}
