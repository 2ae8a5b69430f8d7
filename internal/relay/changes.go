package relay

import (
	"reflect"
	"slices"
	"strings"
)

// changes are the names of the sources that a new configuration adds, changes and removes, and "old → new" for each that it
// gives a name that no source had before.
type changes struct {
	added, changed, renamed, removed []string
	reordered                        bool     // those that both have stand in another order
	settings                         []string // others that are in force at once and differ
}

// changesOf says how next differs from old.
func changesOf(old, next []*activeSource) (c changes) {
	called := func(all []*activeSource, name string) *activeSource {
		if i := slices.IndexFunc(all, func(f *activeSource) bool { return f.config.Name == name }); i >= 0 {
			return all[i]
		}
		return nil
	}
	var moved []string
	for _, n := range next {
		name := n.config.Name
		was := called(old, name)
		if was != nil {
			if !reflect.DeepEqual(was.config, n.config) {
				c.changed = append(c.changed, name)
			}
			continue
		}
		i := slices.IndexFunc(old, func(o *activeSource) bool { return o.table == n.table })
		if i >= 0 && called(next, old[i].config.Name) == nil {
			moved = append(moved, old[i].config.Name)
			c.renamed = append(c.renamed, old[i].config.Name+" → "+name)
			continue
		}
		c.added = append(c.added, name)
	}
	for _, o := range old {
		if name := o.config.Name; called(next, name) == nil && !slices.Contains(moved, name) {
			c.removed = append(c.removed, name)
		}
	}
	c.reordered = !slices.Equal(shared(old, next), shared(next, old))
	return c
}

// shared returns the names of those of some that others have too, in order.
func shared(some, others []*activeSource) (names []string) {
	for _, f := range some {
		if slices.ContainsFunc(others, func(o *activeSource) bool { return o.config.Name == f.config.Name }) {
			names = append(names, f.config.Name)
		}
	}
	return names
}

// attributes say the same to the log.
func (c changes) attributes() (attrs []any) {
	for _, did := range c.sorts() {
		if len(did.names) > 0 {
			attrs = append(attrs, did.what, did.names)
		}
	}
	if c.reordered {
		attrs = append(attrs, "reordered", true)
	}
	if len(c.settings) > 0 {
		attrs = append(attrs, "settings", c.settings)
	}
	if len(attrs) == 0 {
		attrs = []any{"sources", "as they were"}
	}
	return attrs
}

// sorted are names of sources, by what was done to them.
type sorted struct {
	what  string
	names []string
}

func (c changes) sorts() []sorted {
	return []sorted{{"added", c.added}, {"changed", c.changed}, {"renamed", c.renamed}, {"removed", c.removed}}
}

// lines say what was changed, for people.
func (c changes) lines(file string) []string {
	lines := []string{file + " is in force"}
	for _, did := range c.sorts() {
		if len(did.names) > 0 {
			lines = append(lines, did.what+": "+strings.Join(did.names, ", "))
		}
	}
	if c.reordered {
		lines = append(lines, "the order of the sources is another: of what several have with the same precedence, that of the first is served")
	}
	if len(c.settings) > 0 {
		lines = append(lines, "changed settings: "+strings.Join(c.settings, ", "))
	}
	if len(lines) == 1 {
		lines = append(lines, "no source is added, changed or removed")
	}
	return lines
}
