package derive

import (
	"cmp"

	"tributary/resource"
)

// Put decodes an object, and keeps it instead of an earlier version. If it is invalid, the earlier version stays.
func (s *Set) Put(apiVersion, kind string, origin resource.Origin, json []byte) error {
	o, err := s.opts.decode(apiVersion, resource.Kind(kind), origin, json)
	if err == nil {
		s.put(o.key().String(), &group{objects: []*object{o}})
	}
	return err
}

// Delete forgets an object that was Put. Its namespace is as it was put: empty for the default one.
func (s *Set) Delete(kind, namespace, name string) {
	if k := kindNamed(resource.Kind(kind)); k != nil && k.Namespaced {
		namespace = cmp.Or(namespace, s.opts.DefaultNamespace)
	}
	s.Remove(resource.Key{Kind: resource.Kind(kind), Namespace: namespace, Name: name}.String())
}

// Problem is what is wrong with an object.
type Problem string

func (p Problem) Error() string { return string(p) }

// Derive returns what the objects become, and what is wrong with them.
func (s *Set) Derive() (resources []*resource.Resource, problems []Problem) {
	s.place()
	resources, texts := s.derive()
	for _, text := range texts {
		problems = append(problems, Problem(text))
	}
	return resources, problems
}
