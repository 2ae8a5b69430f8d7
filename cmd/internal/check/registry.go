package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"tributary/resource"
	"tributary/sources"
)

// patience is how long a registry has to tell what it has.
const registryPatience = 30 * time.Second

// ReadRegistry reads what a source of any kind has, as the server does when it starts, and returns the contents by group, and what the
// source says of itself then. An error says that it cannot be read.
func ReadRegistry(ctx context.Context, source sources.Source) (map[string]sources.Content, string, error) {
	ctx, cancel := context.WithTimeout(ctx, registryPatience)
	defer cancel()
	s := &groups{done: cancel, all: map[string]sources.Content{}}
	err := source.Run(ctx, s)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.finished && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, "", &UnreadError{s.health.State, fmt.Sprintf("it is not read after %s: %s, %s", registryPatience, s.health.State,
			s.health.Message)}
	case !s.finished:
		return nil, "", err
	case !s.synced:
		return nil, "", &UnreadError{s.health.State, s.health.Message}
	}
	return s.all, s.health.Message, nil
}

// UnreadError says that a source cannot be read.
type UnreadError struct {
	State sources.State // which it is in
	Text  string
}

func (e *UnreadError) Error() string { return e.Text }

// groups is a sink that keeps what a source publishes first, and is done when that is whole, or cannot be had.
type groups struct {
	done func()

	mu       sync.Mutex
	all      map[string]sources.Content
	synced   bool
	finished bool
	health   sources.Health
}

func (s *groups) Replace(group string, rs []*resource.Resource, rejects ...sources.Reject) error {
	return s.ReplaceAll([]sources.Content{{Group: group, Resources: rs, Rejects: rejects}})
}

func (s *groups) ReplaceAll(contents []sources.Content) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range contents {
		if !s.finished {
			s.all[c.Group] = c
		}
	}
	return nil
}

func (s *groups) Groups() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for name := range maps.Keys(s.all) {
		all = append(all, name)
	}
	return all
}

func (s *groups) Synced() { s.mu.Lock(); s.synced = true; s.mu.Unlock() }

// Report ends the run when it says something that is final.
func (s *groups) Report(h sources.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return
	}
	s.health = h
	if h.State != sources.Starting && (s.synced || h.State == sources.Unreachable || h.State == sources.Denied) {
		s.finished = true
		s.done()
	}
}
