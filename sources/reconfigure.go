package sources

import (
	"context"
	"fmt"
	"reflect"

	"tributary/internal/worker"
	"tributary/sources/lastgood"
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
	s.reassignStored(specs, former)
	next, ending, err := s.plan(specs, former)
	if err == nil {
		stops, _ := worker.New(context.Background())
		for _, runner := range ending {
			stops.Go(runner.stop)
		}
		err = stops.Wait()
	}
	if err != nil {
		return fmt.Errorf("reconfigure the sources: %w", err)
	}
	successors := make(map[*runner]*runner)
	var stores []*lastgood.Store
	for _, runner := range next {
		if predecessor := former[runner.name]; predecessor != nil && predecessor != runner {
			predecessor.stopBackground()
			successors[predecessor] = runner
			if runner.lastGood != nil {
				stores = append(stores, runner.lastGood)
				if predecessor.lastGood != nil {
					runner.lastGood.InheritUnread(predecessor.lastGood)
				}
			}
		}
		delete(former, runner.name)
	}
	s.reassign(stores)
	s.mu.Lock()
	for predecessor, runner := range successors {
		runner.sink.Inherit(predecessor.sink)
	}
	s.runners = next
	s.mu.Unlock()
	for i, runner := range next {
		runner.configure(specs[i]) //nolint:gosec // next has one for each
	}
	s.mu.Lock()
	for i, runner := range next {
		if runner.stopping {
			runner.source, runner.stopping = specs[i].Source, false //nolint:gosec // likewise
			if s.ctx != nil && !s.stopped {
				runner.start(s.ctx)
			}
		}
	}
	s.mu.Unlock()
	for _, removed := range former {
		removed.remove()
	}
	return nil
}

// reassignStored exchanges the files of sources that exchanged their settings since the last process.
func (s *Supervisor) reassignStored(specs []Spec, former map[string]*runner) {
	s.mu.Lock()
	isRunning := s.ctx != nil
	s.mu.Unlock()
	var stores []*lastgood.Store
	for _, spec := range specs {
		if spec.LastGood != nil && !isRunning && former[spec.Name] == nil {
			spec.LastGood.SetReading(spec.Reading)
			stores = append(stores, spec.LastGood)
		}
	}
	s.reassign(stores)
}

// reassign exchanges the files of stores with exchanged settings.
func (s *Supervisor) reassign(stores []*lastgood.Store) {
	if err := lastgood.Reassign(stores); err != nil {
		s.opts.Log.Warn("stored objects stay with the names of their sources, although the settings were exchanged",
			"err", err)
	}
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
		runner := predecessor
		if predecessor == nil || predecessor.table != spec.Table {
			restore := predecessor == nil && !isRunning
			runner = newRunner(spec, s.opts, restore)
			runner.isReread = runner.isReread || predecessor != nil
		}
		stays[runner] = isSameSource(runner.source, spec.Source)
		next = append(next, runner)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, nil, ErrStopped
	}
	for _, runner := range s.runners {
		if !stays[runner] {
			runner.stopping = true
			ending = append(ending, runner)
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
	// The user removed the source, but may not know that its held objects go, too.
	if held := r.status(withoutLists).Held; held != nil {
		r.log.Warn("the source is removed, and its held loss is released",
			"hold", held.ID, "objects", held.Objects, "endpoints", held.Endpoints)
	}
	r.stopBackground()
}
