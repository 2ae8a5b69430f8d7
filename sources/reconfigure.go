package sources

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync/atomic"

	"tributary/internal/worker"
	"tributary/resource"
)

// Reconfigure makes the sources those of specs, in one step that either happens as a whole or, with an error, not at all.
//
// A source is known by its table. One of which the table is in specs goes on: with what it published, has in quarantine, holds
// back and keeps on disk. It is not disturbed unless its Source is another, which starts in its place when it has ended, and it
// takes the name that is given to it. A source of which the table is not in specs ends; what it published stays in its table and
// on disk, for the caller to forget. When Reconfigure returns, what was to end has ended.
//
// What ends and is the Before of a new source goes on as that: what it holds, keeps for what is not valid, and has of what cannot be read
// stays as it was until it can be said otherwise. The table of the new source has it at once, and counts as synced when it was read by its
// own settings.
func (s *Supervisor) Reconfigure(specs []Spec) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	next, added, err := s.plan(specs)
	if err != nil {
		return fmt.Errorf("reconfigure the sources: %w", err)
	}
	ending, leaving, err := s.admit(next, specs)
	if err != nil {
		return fmt.Errorf("reconfigure the sources: %w", err)
	}
	ended, _ := worker.New(context.Background())
	for _, r := range ending {
		ended.Go(r.stop)
	}
	if err := ended.Wait(); err != nil {
		return fmt.Errorf("reconfigure the sources: %w", err)
	}
	heirs := s.heirs(next, added, specs)
	for _, r := range leaving {
		r.depart(heirs[r] != nil)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	for from, r := range heirs {
		r.rereading = true
		r.sink.inherit(from.sink)
	}
	s.runners = next
	for i, r := range next {
		again := added[r] || !identical(r.source, specs[i].Source) //nolint:gosec // next has one for each
		if !added[r] {
			r.swap(specs[i]) //nolint:gosec // likewise
		}
		r.leaving = false
		if again && s.ctx != nil && !s.stopped {
			r.start(s.ctx)
		}
	}
	return nil
}

// plan returns a runner for each of specs, and which of them are new. It changes nothing; it may read files.
func (s *Supervisor) plan(specs []Spec) (next []*runner, added map[*runner]bool, err error) {
	added = make(map[*runner]bool)
	names := make(map[string]bool)
	for _, spec := range specs {
		if names[spec.Name] {
			return nil, nil, fmt.Errorf("source %q: %w", spec.Name, ErrDuplicate)
		}
		names[spec.Name] = true
		r := s.of(spec.Table)
		if r == nil {
			r = newRunner(spec, s.opts)
			added[r] = true
		}
		next = append(next, r)
	}
	return next, added, nil
}

// heirs returns, for each source that goes on as another one, that one.
func (s *Supervisor) heirs(next []*runner, added map[*runner]bool, specs []Spec) map[*runner]*runner {
	heirs := make(map[*runner]*runner)
	for i, r := range next {
		if before := specs[i].Before; added[r] && before != nil { //nolint:gosec // next has one for each
			if from := s.of(before); from != nil {
				heirs[from] = r
			}
		}
	}
	return heirs
}

// of returns the source with a table, or nil.
func (s *Supervisor) of(table Table) *runner {
	for _, r := range s.list() {
		if r.table == table {
			return r
		}
	}
	return nil
}

// admit marks the sources that must end before those of specs, which run in next, can begin, and returns them; leaving are
// those that are in next no more.
func (s *Supervisor) admit(next []*runner, specs []Spec) (ending, leaving []*runner, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, nil, ErrStopped
	}
	stays := make(map[*runner]bool, len(next))
	for i, r := range next {
		stays[r] = identical(r.source, specs[i].Source)
	}
	for _, r := range s.runners {
		same, known := stays[r]
		if !known {
			leaving = append(leaving, r)
		}
		if !same {
			r.leaving = true
			ending = append(ending, r)
		}
	}
	return ending, leaving, nil
}

// identical reports whether two sources are one. Those of a type that cannot be compared never are.
func identical(a, b Source) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}

// depart ends what looks after a source that has ended and is no more, or goes on as another one.
func (r *runner) depart(goesOn bool) {
	if held := r.sink.guard.Status(); held != nil && !goesOn { // who edits the configuration means it, but may not have known
		r.log.Warn("the source is removed, and what was held of it is let go",
			"hold", held.ID, "objects", held.Objects, "endpoints", held.Endpoints)
	}
	r.dismiss()
}

// rename gives the source another name, also in what it has published.
func (s *sink) rename(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.source.String() == name {
		return
	}
	s.source.name.Store(&name)
	s.ledger.relabel(name)
	s.guard.Relabel(name)
}

// relabel makes name the source of all that it has.
func (l *ledger) relabel(name string) {
	for _, g := range l.groups {
		has := make([]*resource.Resource, len(g.has))
		for i, r := range g.has {
			has[i] = relabelled(r, name)
			l.replaceCandidate(g, r.Key(), has[i])
		}
		g.has = has
		for key := range g.keeps {
			l.replaceCandidate(g, key, relabelled(l.winners[key].resource, name))
		}
		if len(g.excluded) > 0 {
			g.remark().excluded = slices.Clone(g.excluded)
		}
		for i := range g.excluded {
			g.excluded[i].Source = name
		}
	}
}

func relabelled(r *resource.Resource, name string) *resource.Resource {
	o := r.Origin()
	o.Source = name
	return r.WithOrigin(o)
}

// replaceCandidate makes r what g has of a key.
func (l *ledger) replaceCandidate(g *group, key resource.Key, r *resource.Resource) {
	if w, ok := l.winners[key]; ok && w.group == g {
		w.resource = r
		l.winners[key] = w
	}
	if all := l.contenders[key]; all != nil {
		all.Set(candidate{group: g, resource: r})
	}
}

// label is the name of a source, which a reload may change while the source goes on. All methods are safe for concurrent use.
type label struct{ name atomic.Pointer[string] }

func (l *label) String() string { return *l.name.Load() }

// labelled adds the name that a source has when a line is written.
type labelled struct {
	slog.Handler
	label *label
}

func (h labelled) Handle(ctx context.Context, r slog.Record) error {
	named := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	named.AddAttrs(slog.String("source", h.label.String()))
	r.Attrs(func(a slog.Attr) bool {
		named.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, named)
}

func (h labelled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return labelled{h.Handler.WithAttrs(attrs), h.label}
}

func (h labelled) WithGroup(name string) slog.Handler {
	return labelled{h.Handler.WithGroup(name), h.label}
}
