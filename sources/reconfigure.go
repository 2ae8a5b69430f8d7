package sources

import (
	"context"
	"fmt"
	"reflect"

	"tributary/internal/worker"
)

// Reconfigure replaces the sources by those of specs. With an error, it changes no source.
//
// The name identifies a source, whatever else changes. If its Source changed, that ends, and the new one starts in its
// place. With the same table, published, quarantined, held and stored objects stay. A new table begins with all of
// these, and counts as synced after the first full read by the new settings; until that read replaces them, held,
// invalid and unreadable objects stay. A source whose name is not in specs ends; its objects stay in its table and on
// disk, and the caller removes them. When Reconfigure returns, all sources that end have ended.
func (s *Supervisor) Reconfigure(specs []Spec) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	former := s.runnersByName()
	next, ending, err := s.plan(specs, former)
	if err == nil {
		stops, _ := worker.New(context.Background())
		for _, r := range ending {
			stops.Go(r.stop)
		}
		err = stops.Wait()
	}
	if err != nil {
		return fmt.Errorf("reconfigure the sources: %w", err)
	}
	successors := make(map[*runner]*runner)
	for _, r := range next {
		if predecessor := former[r.name]; predecessor != nil && predecessor != r {
			predecessor.stopBackground()
			successors[predecessor] = r
		}
		delete(former, r.name)
	}
	s.mu.Lock()
	for predecessor, r := range successors {
		r.sink.Inherit(predecessor.sink)
	}
	s.runners = next
	s.mu.Unlock()
	for i, r := range next {
		r.configure(specs[i]) //nolint:gosec // next has one for each
	}
	s.mu.Lock()
	for i, r := range next {
		if r.stopping {
			r.source, r.stopping = specs[i].Source, false //nolint:gosec // likewise
			if s.ctx != nil && !s.stopped {
				r.start(s.ctx)
			}
		}
	}
	s.mu.Unlock()
	for _, removed := range former {
		removed.remove()
	}
	return nil
}

// plan returns a runner for each of specs, and the ones of former that must end before these can begin. New and ending
// ones are marked as stopping. It may read files.
func (s *Supervisor) plan(specs []Spec, former map[string]*runner) (next, ending []*runner, err error) {
	s.mu.Lock()
	isRunning := s.ctx != nil
	s.mu.Unlock()
	names := make(map[string]bool)
	stays := make(map[*runner]bool)
	for _, spec := range specs {
		if names[spec.Name] {
			return nil, nil, fmt.Errorf("source %q: %w", spec.Name, ErrDuplicate)
		}
		names[spec.Name] = true
		predecessor := former[spec.Name]
		r := predecessor
		if predecessor == nil || predecessor.table != spec.Table {
			r = newRunner(spec, s.opts, predecessor == nil && !isRunning)
			r.isReread = r.isReread || predecessor != nil
		}
		stays[r] = isSameSource(r.source, spec.Source)
		next = append(next, r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, nil, ErrStopped
	}
	for _, r := range s.runners {
		if !stays[r] {
			r.stopping = true
			ending = append(ending, r)
		}
	}
	return next, ending, nil
}

// isSameSource reports whether two sources are one. Sources of incomparable types never are.
func isSameSource(a, b Source) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}

// remove ends the background work of a removed source that has ended.
func (r *runner) remove() {
	if held := r.status(false).Held; held != nil { // the removal is meant, but its effect may not be known
		r.log.Warn("the source is removed, and its held loss is released",
			"hold", held.ID, "objects", held.Objects, "endpoints", held.Endpoints)
	}
	r.stopBackground()
}
