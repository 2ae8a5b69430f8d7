package main

import (
	"slices"
	"strings"

	"tributary/cmd/internal/client"
	"tributary/internal/words"
	"tributary/resource"
)

func schemaNamed(name string) (*resource.Schema, error) {
	if schema, ok := resource.SchemaByName(name); ok {
		return schema, nil
	}
	return nil, usage("unknown kind %q%s; known: %s", name,
		words.Suggestion(name, append(resource.KindNames(), envoyTypeNames()...)), strings.Join(kinds(), ", "))
}

// envoyTypeNames are the names of the types that get and watch accept in addition to kinds.
func envoyTypeNames() []string {
	return words.Each(client.EnvoyTypes(), func(t client.EnvoyType) string { return t.Name })
}

// kinds returns all kinds as arguments name them, such as "serviceentries (se)".
func kinds() (names []string) {
	for _, s := range resource.Schemas() {
		name := s.Plural
		singular := strings.ToLower(string(s.Kind))
		short := slices.DeleteFunc(slices.Clone(s.ShortNames), func(n string) bool { return n == singular })
		if len(short) > 0 {
			name += " (" + strings.Join(short, ", ") + ")"
		}
		names = append(names, name)
	}
	return names
}
