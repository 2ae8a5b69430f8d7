package dubbo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"tributary/internal/intake"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// revision identifies metadata: the instances with one revision serve the same.
type revision struct{ application, revision string }

// noServices is the revision of an instance that serves nothing.
const noServices = "0"

// lookup finds the metadata of one revision for its instances. The mu of run guards it.
type lookup struct {
	revision  revision
	instances map[*instance]bool
	ctx       context.Context //nolint:containedctx // ends when the last instance leaves
	cancel    context.CancelFunc

	failures int
	result
}

// result is the result of a lookup.
type result struct {
	metadata *provider.Metadata // nil while it is unknown
	source   string             // of the metadata, for messages
	failure  error
	mapped   []string // interfaces mapped to the application, while the metadata is unknown
	warnings []string
}

// The pace of retries: Java writes an instance before its metadata, and an instance that does not answer may be about
// to stop.
const (
	firstTry = 500 * time.Millisecond
	lastTry  = 10 * time.Second

	perRead     = 8 * time.Second // of the metadata report
	perInstance = 2 * time.Second
)

// reportAfter is the number of failed tries before the status reports them.
const reportAfter = 3

// join lets an instance use the lookup of its revision, which it starts for the first one. The caller holds mu.
func (r *run) join(i *instance) {
	key := revision{i.Application, i.Revision}
	if i.lookup == nil || i.lookup.revision != key {
		r.release(i)
		i.lookup = r.lookups[key]
		if i.lookup == nil {
			started := &lookup{revision: key, instances: map[*instance]bool{}}
			started.ctx, started.cancel = context.WithCancel(r.ctx)
			i.lookup, r.lookups[key] = started, started
			r.workers.Go(func() { r.resolve(started) })
		}
		i.lookup.instances[i] = true
	}
	r.apply(i)
}

// release ends the use of a lookup by an instance.
func (s *state) release(i *instance) {
	used := i.lookup
	if i.lookup = nil; used == nil {
		return
	}
	if delete(used.instances, i); len(used.instances) == 0 {
		used.cancel()
		_ = used.keep(nil)
		delete(s.lookups, used.revision)
	}
}

// apply derives the services of an instance from its lookup. Without metadata its earlier services and its interface
// registrations count, and without these, the interfaces mapped to its application.
func (s *state) apply(i *instance) {
	switch {
	case i.lookup.metadata != nil:
		var services []provider.Provider
		services, i.rejected = i.Offers(*i.lookup.metadata)
		s.serve(i, services)
	case len(i.lookup.mapped) > 0 && !s.hasServices(i):
		s.serve(i, i.Guess(i.lookup.mapped))
	}
}

// resolve looks up a revision until the result is certain: the answer names the revision, or two answers are equal.
func (r *run) resolve(l *lookup) {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstTry), backoff.WithMaxInterval(lastTry),
		backoff.WithMaxElapsedTime(0))
	var previous *provider.Metadata // an answer that does not name the revision
	for first := true; l.ctx.Err() == nil; {
		found, pause := r.find(l), r.confirmAfter
		if found.failure != nil && r.needsMapping(l) {
			var err error
			found.mapped, err = r.mapping.interfacesOf(l.ctx, l.revision.application, first, r.registry.Mapped)
			if first = false; err != nil {
				found.failure = fmt.Errorf("%w; nor can the mapping be read: %w", found.failure, err)
			}
		}
		switch {
		case previous != nil && found.failure != nil: // the previous answer stays
		case previous != nil && reflect.DeepEqual(previous, found.metadata):
			return
		case r.record(l, found) != nil:
			pause = retry.NextBackOff()
		case found.metadata.Revision != "":
			return
		default:
			previous = found.metadata
		}
		core.Sleep(l.ctx, pause)
	}
}

// record stores the result of a try, and returns the reason to try again.
func (r *run) record(l *lookup, found result) error {
	defer r.update()()
	if l.ctx.Err() != nil {
		return l.ctx.Err()
	}
	counter := &r.counters.resolved
	if found.failure != nil {
		counter = &r.counters.unresolved
	}
	counter.Add(1)
	if found.failure == nil {
		found.failure = l.keep(found.metadata)
	}
	found.metadata = l.metadata
	if l.result = found; l.failure != nil {
		l.failures++
	}
	for instance := range l.instances {
		r.apply(instance)
	}
	return l.failure
}

// keep stores metadata if there is room for it: a registrant can name any number of revisions.
func (l *lookup) keep(metadata *provider.Metadata) error {
	size := func(m *provider.Metadata) int {
		if m == nil {
			return 0
		}
		return m.Size()
	}
	if err := intake.Keep(l.ctx, size(l.metadata), size(metadata)); err != nil {
		return fmt.Errorf("%s: its %d bytes: %w", l, size(metadata), err)
	}
	l.metadata = metadata
	return nil
}

func (l *lookup) String() string {
	return "application " + provider.Shorten(l.revision.application) + " revision " + provider.Shorten(l.revision.revision)
}

// overLimit reports whether the metadata was found, but there is no room for it.
func (l *lookup) overLimit() bool { return l.failure != nil && l.source != "" }

// reason returns the reason why the metadata is unknown.
func (l *lookup) reason() string { return strings.ReplaceAll(l.failure.Error(), "\n", "; ") }

// find reads the metadata of a revision from the metadata report, or else asks instances.
func (r *run) find(l *lookup) result {
	switch l.revision.revision {
	case "":
		return result{failure: errors.New("its instances name no revision")}
	case noServices:
		return result{metadata: &provider.Metadata{Revision: noServices}, source: "none: it serves nothing"}
	}
	ctx, cancel := context.WithTimeout(l.ctx, perRead)
	defer cancel()
	content, err := r.registry.Metadata(ctx, l.revision.application, l.revision.revision)
	if err == nil {
		metadata, warnings, invalid := provider.ParseMetadata(content)
		metadata.Revision = l.revision.revision // the key names it
		if err = invalid; err == nil {
			return result{metadata: &metadata, source: "the metadata report", warnings: warnings}
		}
	}
	failures := []error{fmt.Errorf("metadata report: %w", err)}
	for _, instance := range r.askable(l) {
		asking, cancel := context.WithTimeout(l.ctx, perInstance)
		metadata, method, err := r.asker.Ask(asking, instance)
		if cancel(); err == nil {
			return result{metadata: &metadata, source: method}
		}
		failures = append(failures, err)
	}
	return result{failure: errors.Join(failures...)}
}

// maxAsked is the number of instances of a revision that one try asks.
const maxAsked = 3

// askable returns up to maxAsked instances of a revision that have a metadata service, others each time.
func (r *run) askable(l *lookup) (instances []provider.Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for instance := range l.instances {
		if r.asker != nil && instance.Service != nil && len(instances) < maxAsked {
			instances = append(instances, instance.Instance)
		}
	}
	return instances
}

// asker asks an instance for its metadata. The answer may be for another revision, e.g. from before all services were
// exported. method names the way of asking, for messages.
type asker interface {
	Ask(ctx context.Context, i provider.Instance) (metadata provider.Metadata, method string, err error)
}

// needsMapping reports whether the services of some instance of a revision are unknown, or come from the mapping.
func (r *run) needsMapping(l *lookup) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for instance := range l.instances {
		if len(l.mapped) > 0 || !r.hasServices(instance) {
			return true
		}
	}
	return false
}

// The mapping is read again after growing pauses up to an hour, and at least mappingShare times as long as a read takes,
// since that takes a read for each interface. The first request for a revision shortens the pause.
const (
	firstPause   = 10 * time.Second
	lastPause    = time.Hour
	mappingShare = 20
)

// mappings is the mapping from interfaces to applications in the registry, as last read.
type mappings struct {
	turn chan struct{} // taken by the caller that reads

	// owned by that caller
	interfaces map[string][]string // by application
	failure    error               // of the last read, after which interfaces is older
	due        time.Time           // of the next read
	pause      time.Duration       // after that
}

// interfacesOf returns the interfaces mapped to an application, and the error of the last read. first marks the first
// request for a revision. Concurrent calls wait for one read.
func (m *mappings) interfacesOf(ctx context.Context, application string, first bool,
	read func(context.Context) (map[string][]string, error),
) ([]string, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	}
	begin := time.Now()
	if first {
		m.pause = firstPause
		if soon := begin.Add(firstPause); soon.Before(m.due) {
			m.due = soon
		}
	}
	if !begin.Before(m.due) {
		interfaces, err := read(ctx)
		if err == nil {
			m.interfaces = interfaces
		}
		if m.failure = err; errors.Is(err, registry.ErrAbsent) {
			m.failure = nil
		}
		m.due = time.Now().Add(max(m.pause, firstPause, mappingShare*time.Since(begin)))
		m.pause = min(2*max(m.pause, firstPause), lastPause)
	}
	return slices.Clone(m.interfaces[application]), m.failure
}
