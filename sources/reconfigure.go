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

// Reconfigure replaces the sources by those of specs. With an error, it changes nothing.
//
// The table identifies a source. A source whose table is in specs goes on with its published, quarantined, held and
// stored objects, under the name of the spec. It runs on unless its Source changed: then it ends, and the new Source
// starts in its place. A source whose table is not in specs ends; its objects stay in its table and on disk, and the
// caller removes them. When Reconfigure returns, all of these have ended.
//
// A source that ends and whose table is the Before of a new source goes on as that one: held, invalid and unreadable
// objects stay until the new source can replace them. The table of the new source has all objects at once. It counts as
// synced after the first full read by its own settings.
func (s *Supervisor) Reconfigure(specs []Spec) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	next, added, err := s.plan(specs)
	if err != nil {
		return fmt.Errorf("reconfigure the sources: %w", err)
	}
	ending, removed, err := s.markEnding(next, specs)
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
	successors := s.successors(next, added, specs)
	for _, r := range removed {
		r.remove(successors[r] != nil)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	for predecessor, r := range successors {
		r.isReread = true
		r.sink.inherit(predecessor.sink)
	}
	s.runners = next
	for i, r := range next {
		starts := added[r] || !isSameSource(r.source, specs[i].Source) //nolint:gosec // next has one for each
		if !added[r] {
			r.replaceSource(specs[i]) //nolint:gosec // likewise
		}
		r.stopping = false
		if starts && s.ctx != nil && !s.stopped {
			r.start(s.ctx)
		}
	}
	return nil
}

// plan returns a runner for each of specs, and the new ones. It changes nothing, but may read files.
func (s *Supervisor) plan(specs []Spec) (next []*runner, added map[*runner]bool, err error) {
	added = make(map[*runner]bool)
	names := make(map[string]bool)
	for _, spec := range specs {
		if names[spec.Name] {
			return nil, nil, fmt.Errorf("source %q: %w", spec.Name, ErrDuplicate)
		}
		names[spec.Name] = true
		r := s.runnerByTable(spec.Table)
		if r == nil {
			r = newRunner(spec, s.opts)
			added[r] = true
		}
		next = append(next, r)
	}
	return next, added, nil
}

// successors returns the new sources that continue another one, by that one.
func (s *Supervisor) successors(next []*runner, added map[*runner]bool, specs []Spec) map[*runner]*runner {
	successors := make(map[*runner]*runner)
	for i, r := range next {
		if table := specs[i].Before; added[r] && table != nil { //nolint:gosec // next has one for each
			if predecessor := s.runnerByTable(table); predecessor != nil {
				successors[predecessor] = r
			}
		}
	}
	return successors
}

// runnerByTable returns the source with a table, or nil.
func (s *Supervisor) runnerByTable(table Table) *runner {
	for _, r := range s.list() {
		if r.table == table {
			return r
		}
	}
	return nil
}

// markEnding marks and returns the sources that must end before the sources of specs, which run in next, can begin.
// removed are those that are not in next.
func (s *Supervisor) markEnding(next []*runner, specs []Spec) (ending, removed []*runner, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, nil, ErrStopped
	}
	sameSource := make(map[*runner]bool, len(next))
	for i, r := range next {
		sameSource[r] = isSameSource(r.source, specs[i].Source)
	}
	for _, r := range s.runners {
		same, stays := sameSource[r]
		if !stays {
			removed = append(removed, r)
		}
		if !same {
			r.stopping = true
			ending = append(ending, r)
		}
	}
	return ending, removed, nil
}

// isSameSource reports whether two sources are one. Sources of incomparable types never are.
func isSameSource(a, b Source) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}

// remove ends the background work of a source that has ended, and that goes on as another one or not at all.
func (r *runner) remove(goesOn bool) {
	if held := r.sink.guard.Status(); held != nil && !goesOn { // the removal is meant, but its effect may not be known
		r.log.Warn("the source is removed, and its held loss is released",
			"hold", held.ID, "objects", held.Objects, "endpoints", held.Endpoints)
	}
	r.stopBackground()
}

// rename gives the source another name, also in the origins of its objects.
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

// relabel sets the source name of all objects.
func (l *ledger) relabel(name string) {
	for _, g := range l.groups {
		relabelledResources := make([]*resource.Resource, len(g.resources))
		for i, r := range g.resources {
			relabelledResources[i] = relabelled(r, name)
			l.replaceCandidate(g, r.Key(), relabelledResources[i])
		}
		g.resources = relabelledResources
		for key := range g.lastGood {
			l.replaceCandidate(g, key, relabelled(l.winners[key].resource, name))
		}
		if len(g.excluded) > 0 {
			g.ownRemarks().excluded = slices.Clone(g.excluded)
		}
		for i := range g.excluded {
			g.excluded[i].Source = name
		}
	}
}

func relabelled(r *resource.Resource, name string) *resource.Resource {
	origin := r.Origin()
	origin.Source = name
	return r.WithOrigin(origin)
}

// replaceCandidate replaces the resource that g has of a key.
func (l *ledger) replaceCandidate(g *group, key resource.Key, r *resource.Resource) {
	if w, ok := l.winners[key]; ok && w.group == g {
		w.resource = r
		l.winners[key] = w
	}
	if candidates := l.contenders[key]; candidates != nil {
		candidates.Set(candidate{group: g, resource: r})
	}
}

// sourceLabel is the name of a source, which a reload may change while the source runs. It is safe for concurrent use.
type sourceLabel struct{ name atomic.Pointer[string] }

func (l *sourceLabel) String() string { return *l.name.Load() }

// labelledHandler adds the current name of the source to each line.
type labelledHandler struct {
	slog.Handler
	label *sourceLabel
}

func (h labelledHandler) Handle(ctx context.Context, r slog.Record) error {
	named := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	named.AddAttrs(slog.String("source", h.label.String()))
	r.Attrs(func(a slog.Attr) bool {
		named.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, named)
}

func (h labelledHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return labelledHandler{h.Handler.WithAttrs(attrs), h.label}
}

func (h labelledHandler) WithGroup(name string) slog.Handler {
	return labelledHandler{h.Handler.WithGroup(name), h.label}
}
