package derive

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"

	"tributary/resource"
	"tributary/sources"
)

// Put decodes an object, and keeps it instead of an earlier version. If it is invalid, the earlier version stays.
func (s *Set) Put(apiVersion, kind string, origin resource.Origin, text []byte) error {
	var head struct {
		Metadata struct{ Name, Namespace string }
	}
	_ = json.Unmarshal(text, &head) // or decode reports the error
	key := unscoped(resource.Key{
		Kind: resource.Kind(kind), Namespace: cmp.Or(head.Metadata.Namespace, "default"), Name: head.Metadata.Name,
	})
	parsed := resource.Other{APIVersion: apiVersion, JSON: slices.Clone(text)}
	o, err := decode(sources.Other{Other: parsed, Key: key, Origin: origin})
	if err == nil {
		s.put(key.String(), &group{objects: []*object{o}})
	}
	return err
}

// Delete forgets an object that was Put. Its namespace is as it was put: empty for the default one.
func (s *Set) Delete(kind, namespace, name string) {
	s.Remove(unscoped(resource.Key{Kind: resource.Kind(kind), Namespace: cmp.Or(namespace, "default"), Name: name}).String())
}

// Problem is a fault of an object.
type Problem string

func (p Problem) Error() string { return string(p) }

// Derive returns the derived objects, and the faults.
func (s *Set) Derive() (resources []*resource.Resource, problems []Problem) {
	s.place()
	content := s.derive()
	for _, text := range content.Warnings {
		problems = append(problems, Problem(text))
	}
	return content.Resources, problems
}

// Shape returns the shape of the spec of a kind.
func Shape(kind string) any { return specs()[kind] }

// WithoutDefaults has objects decoded without defaults, as istiod's own tests do.
func WithoutDefaults(t testing.TB) {
	t.Helper()
	filled := defaults
	defaults = func() map[string]any { return nil }
	t.Cleanup(func() { defaults = filled })
}
