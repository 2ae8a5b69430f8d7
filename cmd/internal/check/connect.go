package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/config"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
)

// connect looks at what a source has that is no file, as at files, and notes how much of it would be served. A source that cannot be read
// is a finding.
func (l *Linter) connect(ctx context.Context, name string, s config.Source, terms Terms) error {
	source, err := l.Connect(s)
	if err != nil {
		return fmt.Errorf("source %s: %w", s.Name, err)
	}
	contents, said, err := ReadRegistry(ctx, source)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		rule := Unreadable
		if unread, ok := errors.AsType[*UnreadError](err); ok && unread.State == sources.Denied {
			rule = Denied
		}
		l.unreadable(name, s, rule, err)
		return nil
	}
	before, left := len(l.Findings), 0
	slices.SortFunc(contents, func(a, b sources.Content) int { return strings.Compare(a.Group, b.Group) })
	for n := range contents {
		left += len(contents[n].LeftOut)
		for i := range contents[n].Rejects {
			place := &contents[n].Rejects[i].Origin.Place
			*place = cmp.Or(*place, contents[n].Group, s.Shown())
		}
	}
	served := l.source(terms, contents).table.Snapshot()
	endpoints := 0
	for r := range served.List(resource.ServiceEntry, "") {
		if spec, err := r.Spec(); err == nil {
			if entry, is := spec.(*networking.ServiceEntry); is {
				endpoints += len(entry.Endpoints)
			}
		}
	}
	found := make(map[Severity]int)
	for _, f := range l.Findings[before:] {
		found[f.Severity]++
	}
	counted := []string{fmt.Sprintf("source %s (%s): %s with %s would be served", s.Name, s.Shown(),
		words.Count(served.Len(), "object", "objects"), words.Count(endpoints, "endpoint", "endpoints"))}
	for _, of := range []struct {
		n         int
		one, many string
	}{{found[Error], "error", "errors"}, {left, "instance is left out", "instances are left out"}, {found[Warning], "warning", "warnings"}} {
		if of.n > 0 {
			counted = append(counted, words.Count(of.n, of.one, of.many))
		}
	}
	line := strings.Join(counted, ", ")
	if said != "" {
		line += ": " + strings.ReplaceAll(said, "\n", "; ")
	}
	l.Connected = append(l.Connected, line)
	return nil
}
