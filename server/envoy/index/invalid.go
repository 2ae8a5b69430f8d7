package index

import (
	"slices"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// SetInvalid sets the security objects of which a source has no valid version, in order. What they ask for, and of which clients, is not
// known.
func (m *Mesh) SetInvalid(keys []resource.Key, touched map[string]struct{}) {
	for _, key := range m.Invalid {
		m.Selectors.set(invalidKey(key), nil)
	}
	for _, key := range keys {
		s := make(Selectors)
		s.namespaces(key.Namespace)
		m.Selectors.set(invalidKey(key), s)
	}
	m.Invalid = keys
	secureAnew(touched)
}

// invalidKey is a key of SelectorIndex that no object has.
func invalidKey(key resource.Key) resource.Key {
	key.Kind = "invalid " + key.Kind
	return key
}

// invalidFor returns the objects without a valid version that may be for clients in a namespace.
func (m *Mesh) invalidFor(namespace string) (keys []resource.Key) {
	return slices.DeleteFunc(slices.Clone(m.Invalid), func(key resource.Key) bool {
		return key.Namespace != namespace && key.Namespace != model.RootNamespace
	})
}
