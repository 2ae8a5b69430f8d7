package dubbo

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"tributary/internal/intake"
	"tributary/internal/worker"
	"tributary/sources/dubbo/provider"
)

// revision identifies metadata: the instances with one revision serve the same.
type revision struct{ application, number string }

// noServices is the revision of an instance without services.
const noServices = "0"

// lookup finds the metadata of one revision for its instances. The mu of run guards it.
type lookup struct {
	revision
	instances map[*instance]bool
	ctx       context.Context //nolint:containedctx // ends when the last instance leaves
	cancel    context.CancelFunc

	failures int
	size     int // of the metadata
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
	perInstance = 8 * time.Second // for all methods of asking one
	nextAfter   = 300 * time.Millisecond
)

// reportAfter is the number of failed tries before the status reports them.
const reportAfter = 3

// join lets an instance use the lookup of its revision, which it starts for the first one. The caller holds mu.
func (r *run) join(member *instance) {
	wanted := revision{member.Application, member.Revision}
	shared := r.lookups[wanted]
	if shared == nil {
		shared = &lookup{revision: wanted, instances: map[*instance]bool{}}
		shared.ctx, shared.cancel = context.WithCancel(r.ctx)
		r.lookups[wanted] = shared
		r.workers.Go(func() { r.resolve(shared) })
	}
	if shared.instances[member] = true; member.lookup != shared {
		r.release(member)
		member.lookup = shared
	}
	r.apply(member)
}

// release ends the use of a lookup by an instance.
func (s *state) release(instance *instance) {
	formerLookup := instance.lookup
	if instance.lookup = nil; formerLookup == nil {
		return
	}
	if delete(formerLookup.instances, instance); len(formerLookup.instances) == 0 {
		formerLookup.cancel()
		_ = formerLookup.keep(nil)
		delete(s.lookups, formerLookup.revision)
	}
}

// apply derives the services of an instance from its lookup. Without metadata its earlier services and its interface
// registrations count, and without these, the interfaces mapped to its application. A disabled one serves none of them.
func (s *state) apply(instance *instance) {
	switch {
	case instance.lookup.metadata != nil:
		var services []provider.Provider
		services, instance.rejected = instance.Offers(*instance.lookup.metadata)
		s.serve(instance, services)
	case instance.Off:
		s.serve(instance, nil)
	case len(instance.lookup.mapped) > 0 && !s.hasServices(instance):
		s.serve(instance, instance.Guess(instance.lookup.mapped))
	}
}

// resolve looks up a revision until the result is certain: the answer names the revision, or two answers are equal.
func (r *run) resolve(lookup *lookup) {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstTry), backoff.WithMaxInterval(lastTry),
		backoff.WithMaxElapsedTime(0))
	var previous *provider.Metadata // an answer that does not name the revision
	for first := true; lookup.ctx.Err() == nil; {
		answer, pause := r.find(lookup), r.confirmAfter
		if answer.failure != nil && previous == nil && r.needsMapping(lookup) {
			var err error
			answer.mapped, err = r.mapping.Interfaces(lookup.ctx, lookup.application, first)
			if first = false; err != nil {
				answer.failure = fmt.Errorf("%w; nor can the mapping be read: %w", answer.failure, err)
			}
		}
		switch {
		case previous != nil && answer.failure != nil: // the previous answer stays
		case previous != nil && reflect.DeepEqual(previous, answer.metadata):
			return
		case r.record(lookup, answer) != nil:
			pause = retry.NextBackOff()
		case answer.metadata.Revision != "":
			return
		default:
			previous = answer.metadata
		}
		_ = worker.Wait(lookup.ctx, nil, pause)
	}
}

// record stores the result of a try, and returns the reason to try again.
func (r *run) record(lookup *lookup, answer result) error {
	defer r.update()()
	if lookup.ctx.Err() != nil {
		return lookup.ctx.Err()
	}
	counter := &r.counters.resolved
	if answer.failure != nil {
		counter = &r.counters.unresolved
	}
	counter.Add(1)
	if answer.failure == nil {
		answer.failure = lookup.keep(answer.metadata)
	}
	answer.metadata = lookup.metadata
	if lookup.result = answer; lookup.failure != nil {
		lookup.failures++
	}
	for instance := range lookup.instances {
		r.apply(instance)
	}
	return lookup.failure
}

// keep stores metadata if there is room for it: a registrant can name any number of revisions.
func (l *lookup) keep(metadata *provider.Metadata) error {
	metadataSize := 0
	if metadata != nil {
		metadataSize = metadata.Size()
	}
	if err := intake.Keep(l.ctx, l.size, metadataSize); err != nil {
		return fmt.Errorf("application %s revision %s: its %d bytes: %w",
			provider.Shorten(l.application), provider.Shorten(l.number), metadataSize, err)
	}
	l.metadata, l.size = metadata, metadataSize
	return nil
}

// overLimit reports whether the metadata was found, but there is no room for it.
func (l *lookup) overLimit() bool { return l.failure != nil && l.source != "" }

// reason returns the reason why the metadata is unknown.
func (l *lookup) reason() string { return strings.ReplaceAll(l.failure.Error(), "\n", "; ") }

// find reads the metadata of a revision from the metadata report, or else asks instances.
func (r *run) find(lookup *lookup) result {
	switch lookup.number {
	case "":
		return result{failure: errors.New("its instances name no revision")}
	case noServices:
		return result{metadata: &provider.Metadata{Revision: noServices}, source: "none: it has no services"}
	}
	ctx, cancel := context.WithTimeout(lookup.ctx, perRead)
	defer cancel()
	content, err := r.registry.Metadata(ctx, lookup.application, lookup.number)
	if err == nil {
		metadata, warnings, invalid := provider.ParseMetadata(content)
		metadata.Revision = lookup.number // the key names it
		if err = invalid; err == nil {
			return result{metadata: &metadata, source: "the metadata report", warnings: warnings}
		}
	}
	answer := r.ask(lookup.ctx, r.askable(lookup))
	if answer.failure != nil || answer.metadata == nil {
		answer.failure = errors.Join(fmt.Errorf("metadata report: %w", err), answer.failure)
	}
	return answer
}

// ask asks instances until one answers. It begins with the next one after nextAfter, since one that does not answer
// must not delay a start. Without instances the result is zero.
func (r *run) ask(ctx context.Context, instances []provider.Instance) result {
	ctx, cancel := context.WithTimeout(ctx, perInstance)
	defer cancel()
	workers, ctx := worker.New(ctx)
	defer workers.Stop()
	answers := make(chan result, len(instances))
	for index, instance := range instances {
		workers.Go(func() {
			_ = worker.Wait(ctx, nil, time.Duration(index)*nextAfter)
			metadata, method, err := r.asker.Ask(ctx, instance)
			answers <- result{metadata: &metadata, source: method, failure: err}
		})
	}
	var failures []error
	for range instances {
		select {
		case <-ctx.Done():
			workers.Stop()
			return result{failure: errors.Join(append(failures, workers.Wait(), ctx.Err())...)}
		case answer := <-answers:
			if answer.failure == nil {
				return answer
			}
			failures = append(failures, answer.failure)
		}
	}
	return result{failure: errors.Join(failures...)}
}

// maxAsked is the number of instances of a revision that one try asks.
const maxAsked = 3

// askable returns up to maxAsked instances of a revision that have a metadata service, others each time.
func (r *run) askable(lookup *lookup) (instances []provider.Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for instance := range lookup.instances {
		if r.asker != nil && instance.Service != nil && len(instances) < maxAsked {
			instances = append(instances, instance.Instance)
		}
	}
	return instances
}

// asker asks an instance for its metadata. The answer may be for another revision, e.g. from before all services were
// exported. method names the way of asking, for messages.
type asker interface {
	Ask(ctx context.Context, instance provider.Instance) (metadata provider.Metadata, method string, err error)
}

// needsMapping reports whether the services of some instance of a revision are unknown, or come from the mapping.
func (r *run) needsMapping(lookup *lookup) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for instance := range lookup.instances {
		if len(lookup.mapped) > 0 || !r.hasServices(instance) {
			return true
		}
	}
	return false
}
