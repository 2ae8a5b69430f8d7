package relay

import (
	"reflect"
	"slices"
	"strings"
)

// changes are the names of the sources that a new configuration adds, changes and removes.
type changes struct {
	added, changed, removed []string
	reordered               bool     // the common sources have another order
	settings                []string // other changed settings that are in force
}

// changesOf returns the changes from the active sources to the next ones.
func changesOf(activeSources, next []*activeSource) (result changes) {
	for _, active := range next {
		switch previous := named(activeSources, active.config.Name); {
		case previous == nil:
			result.added = append(result.added, active.config.Name)
		case !reflect.DeepEqual(previous.config, active.config):
			result.changed = append(result.changed, active.config.Name)
		}
	}
	for _, active := range activeSources {
		if named(next, active.config.Name) == nil {
			result.removed = append(result.removed, active.config.Name)
		}
	}
	result.reordered = !slices.Equal(shared(activeSources, next), shared(next, activeSources))
	return result
}

// shared returns the names of sources that have a candidate of the same name, in order.
func shared(sources, candidates []*activeSource) (names []string) {
	for _, source := range sources {
		if named(candidates, source.config.Name) != nil {
			names = append(names, source.config.Name)
		}
	}
	return names
}

// attributes returns the changes for the log.
func (c changes) attributes() (attrs []any) {
	for _, group := range c.groups() {
		if len(group.names) > 0 {
			attrs = append(attrs, group.kind, group.names)
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

// changeGroup are the names of the sources with a kind of change.
type changeGroup struct {
	kind  string
	names []string
}

func (c changes) groups() []changeGroup {
	return []changeGroup{{"added", c.added}, {"changed", c.changed}, {"removed", c.removed}}
}

// lines describes the changes for people.
func (c changes) lines(file string) []string {
	lines := []string{file + " is in force"}
	for _, group := range c.groups() {
		if len(group.names) > 0 {
			lines = append(lines, group.kind+": "+strings.Join(group.names, ", "))
		}
	}
	if c.reordered {
		lines = append(lines, "the order of the sources changed: of objects with the same key and precedence, "+
			"that of the first source is served")
	}
	if len(c.settings) > 0 {
		lines = append(lines, "changed settings: "+strings.Join(c.settings, ", "))
	}
	if len(lines) == 1 {
		lines = append(lines, "no source is added, changed or removed")
	}
	return lines
}
