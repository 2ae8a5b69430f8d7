package xds

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tributary/resource"
)

// kind is a kind of resources that is asked for.
type kind struct {
	schema *resource.Schema
	// typeURLs are its aliases, the preferred one first. A tributary answers all of them alike. istiod knows one, and
	// which one depends on its age; the others it answers with nothing.
	typeURLs []string
}

// serviceRegistry is what Istio calls the resources that stand for services in meshConfig.configSources.
const serviceRegistry = "SERVICE_REGISTRY"

// wanted returns the kinds that subscribedResources names, in order of kind.
func wanted(subscribed []string) ([]kind, error) {
	var kinds []kind
	if len(subscribed) == 0 {
		for _, schema := range resource.Schemas() {
			kinds = append(kinds, kind{schema, aliases(schema)})
		}
		return kinds, nil
	}
	for _, name := range subscribed {
		k, err := kindOf(name)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(kinds, func(o kind) bool { return o.schema == k.schema }) {
			return nil, fmt.Errorf("%q: %s is there already", name, k.schema.Kind)
		}
		kinds = append(kinds, k)
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
		return kind{schema, aliases(schema)}, nil
	}
	return kind{}, fmt.Errorf("%q: want a kind such as ServiceEntry, a type URL such as networking.istio.io/v1/ServiceEntry, or %s", name,
		serviceRegistry)
}

func aliases(s *resource.Schema) []string {
	urls := make([]string, len(s.Versions))
	for i, v := range s.Versions {
		urls[i] = s.Group + "/" + v + "/" + string(s.Kind)
	}
	return urls
}

// isTributary reports whether a control plane identifies itself as one of ours, which answers all aliases alike.
func isTributary(controlPlane string) bool {
	var id struct{ Component string }
	return json.Unmarshal([]byte(controlPlane), &id) == nil && id.Component == "tributary"
}

// groupOf returns the group of a resource, which is also the place that it is said to come from.
func groupOf(typeURL, name string) string { return typeURL + " " + name }

// splitGroup is the inverse of groupOf.
func splitGroup(group string) (typeURL, name string) {
	typeURL, name, _ = strings.Cut(group, " ")
	return typeURL, name
}
