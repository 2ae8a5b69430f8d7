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
	"tributary/internal/worker"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// revision identifies metadata: the instances with one revision serve the same.
type revision struct{ application, revision string }

// noServices is the revision of an instance that serves nothing.
const noServices = "0"

// resolver looks up what instances serve.
type resolver struct {
	// read-only
	ctx context.Context

	workers *worker.Group
	again   time.Duration // see Source

	// guarded by the mu of run
	all map[revision]*lookup

	mapping mappings
}

// mappings is the mapping from interfaces to applications in the registry, as last read. Reading it takes a read for each interface.
type mappings struct {
	turn chan struct{} // taken by the caller that reads

	// owned by that caller
	of    map[string][]string // interfaces, by application
	err   error               // of the last read, after which of is older; nil if it succeeded, or there is no mapping
	due   time.Time           // when it is read again
	pause time.Duration       // after that
}

// lookup is the search for the services of one revision, and its result. The mu of run guards it.
type lookup struct {
	of    revision
	users map[*instance]bool
	end   context.CancelFunc
	ended bool // nobody needs it any more

	tried     bool
	failed    int                // tries that found nothing
	metadata  *provider.Metadata // nil while it is not known
	overLimit string             // the message if its metadata is over the limit
	how       string
	err       error
	guess     []string // the interfaces mapped to the application, while the metadata is not known
	warnings  []string
}

// The pace of retries: Java writes an instance before its metadata, and a provider that cannot be asked may be about to go.
const (
	firstTry = 500 * time.Millisecond
	lastTry  = 10 * time.Second
	perTry   = 8 * time.Second // for all steps of one try
)

// reportAfter is how many tries must fail before the status reports it: Java writes an instance before its metadata.
const reportAfter = 3

// The mapping is re-read with growing pauses up to an hour, at least mappingShare times as long as a read takes; a revision not asked for
// before shortens the pause.
const (
	firstPause   = 10 * time.Second
	lastPause    = time.Hour
	mappingShare = 20
)

// takeInstance stores an instance. The caller holds mu.
func (r *run) takeInstance(i *instance, now provider.Instance, dubbo bool, err error) {
	i.reported = true
	if errors.Is(err, registry.ErrAbsent) {
		return // the list of instances will drop it
	}
	i.problem = ""
	if err != nil {
		i.problem = problemOf(i) + err.Error()
		return // the previous content stays
	}
	if !dubbo {
		now = provider.Instance{}
	}
	i.read, i.dubbo, i.Instance = true, dubbo, now
	if !dubbo || now.Failing != "" {
		r.state.drop(i)
		return
	}
	r.startLookup(i)
}

// problemOf is the beginning of an instance's messages.
func problemOf(i *instance) string { return fmt.Sprintf("instance %s of %s: ", i.id, i.application) }

// startLookup starts the lookup of an instance's revision, or joins it. The caller holds mu.
func (r *run) startLookup(i *instance) {
	of := revision{i.Application, i.Revision}
	if i.lookup == nil || i.lookup.of != of {
		r.state.release(i)
		l := r.resolver.all[of]
		if l == nil || l.ended {
			l = &lookup{of: of, users: map[*instance]bool{}}
			if of.revision != noServices {
				r.resolver.all[of] = l
			}
			r.begin(l)
		}
		l.users[i] = true
		i.lookup = l
	}
	r.apply(i)
}

// release ends an instance's use of its lookup. The caller holds mu of run.
func (s *state) release(i *instance) {
	l := i.lookup
	i.lookup = nil
	if l == nil {
		return
	}
	delete(l.users, i)
	if len(l.users) == 0 {
		l.ended = true
		if l.end != nil {
			l.end()
		}
	}
}

// begin starts the lookup of a revision, which runs until nobody needs it. The caller holds mu.
func (r *run) begin(l *lookup) {
	if l.of.revision == noServices {
		l.tried, l.metadata, l.how = true, &provider.Metadata{}, "none: it serves nothing"
		return
	}
	ctx, end := context.WithCancel(r.resolver.ctx)
	l.end = end
	r.resolver.workers.Go(func() {
		defer end()
		r.resolve(ctx, l)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.resolver.drop(l)
		if r.resolver.all[l.of] == l {
			delete(r.resolver.all, l.of)
		}
	})
}

// resolve looks up a revision until the result is certain: the answer names the revision, or two answers are equal.
func (r *run) resolve(ctx context.Context, l *lookup) {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstTry), backoff.WithMaxInterval(lastTry),
		backoff.WithMaxElapsedTime(0))
	var before *provider.Metadata // an answer that does not name the revision
	for first := true; ctx.Err() == nil; {
		m, how, skipped, err := r.find(ctx, l)
		if ctx.Err() != nil {
			return
		}
		switch {
		case before == nil:
		case err != nil: // the earlier answer stays
			core.Sleep(ctx, r.resolver.again)
			continue
		case reflect.DeepEqual(*before, m):
			<-ctx.Done() // until nobody needs it
			return
		}
		var guess []string
		if err != nil {
			if r.unknown(l) {
				var unread error
				if guess, unread = r.resolver.mapping.interfacesOf(ctx, l.of.application, first, r.registry.Mapped); unread != nil {
					err = fmt.Errorf("%w; nor can the mapping be read: %w", err, unread)
				}
				first = false
			}
			r.counters.unresolved.Add(1)
		} else {
			r.counters.resolved.Add(1)
		}
		r.change(func(*state) {
			l.tried, l.how, l.err, l.warnings, l.guess = true, how, err, skipped, guess
			if l.overLimit = ""; err == nil {
				r.resolver.drop(l)
				if err = r.resolver.keep(l, &m); err != nil {
					l.overLimit, l.err = err.Error(), err
				}
			}
			if err != nil {
				l.failed++
			}
			for i := range l.users {
				r.apply(i)
			}
		})
		switch {
		case err != nil:
			core.Sleep(ctx, retry.NextBackOff())
		case m.Revision == "":
			before = &m
			core.Sleep(ctx, r.resolver.again)
		default:
			<-ctx.Done() // until nobody needs it
		}
	}
}

// keep stores the metadata of a revision, if there is room: anybody who may register can name any number of revisions. The caller holds mu
// of run.
func (r *resolver) keep(l *lookup, m *provider.Metadata) error {
	if err := intake.Keep(r.ctx, 0, m.Size()); err != nil {
		return fmt.Errorf("application %s revision %s: its %d bytes: %w",
			provider.Shorten(l.of.application), provider.Shorten(l.of.revision), m.Size(), err)
	}
	l.metadata = m
	return nil
}

// drop forgets the metadata of a revision. The caller holds mu of run.
func (r *resolver) drop(l *lookup) {
	if l.metadata != nil {
		_ = intake.Keep(r.ctx, l.metadata.Size(), 0)
		l.metadata = nil
	}
}

// find reads the metadata of a revision from the metadata report, or else asks instances.
func (r *run) find(ctx context.Context, l *lookup) (m provider.Metadata, how string, skipped []string, err error) {
	if l.of.revision == "" {
		return m, "", nil, errors.New("its instances name no revision")
	}
	ctx, cancel := context.WithTimeout(ctx, perTry)
	defer cancel()
	content, err := r.registry.Metadata(ctx, l.of.application, l.of.revision)
	if err == nil {
		if m, skipped, err = provider.ParseMetadata(content); err == nil {
			m.Revision = l.of.revision // the key names it
			return m, "the metadata report", skipped, nil
		}
	}
	err = fmt.Errorf("metadata report: %w", err)
	if r.asker != nil && r.settings.asks() {
		m, how, unasked := askAny(ctx, r.asker, r.thatAnswer(l))
		if unasked == nil {
			return m, how, nil, nil
		}
		err = errors.Join(err, unasked)
	}
	return m, "", nil, err
}

// maxAsked is how many instances of a revision one try asks.
const maxAsked = 3

// thatAnswer returns up to maxAsked instances of a revision that have a metadata service.
func (r *run) thatAnswer(l *lookup) (some []provider.Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range l.users { // in another order each time
		if i.Service != nil && len(some) < maxAsked {
			some = append(some, i.Instance)
		}
	}
	return some
}

// unknown reports whether some instance of a revision has no known services, or only guesses.
func (r *run) unknown(l *lookup) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range l.users {
		if len(l.guess) > 0 || !r.state.knows(i) {
			return true
		}
	}
	return false
}

// interfacesOf returns the interfaces mapped to an application, and the error of the last read. first: nobody asked for this revision
// before. Concurrent calls wait for one read.
func (m *mappings) interfacesOf(ctx context.Context, application string, first bool,
	read func(context.Context) (map[string][]string, error),
) ([]string, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	}
	began := time.Now()
	if soon := began.Add(firstPause); first && m.due.After(soon) {
		m.due = soon
	}
	if first || m.pause == 0 {
		m.pause = firstPause
	}
	if !began.Before(m.due) {
		all, err := read(ctx)
		if err == nil {
			m.of = all
		}
		if m.err = err; errors.Is(err, registry.ErrAbsent) {
			m.err = nil
		}
		now := time.Now()
		m.due = now.Add(max(m.pause, mappingShare*now.Sub(began)))
		m.pause = min(2*m.pause, lastPause)
	}
	return slices.Clone(m.of[application]), m.err
}

// reason returns why the metadata is not known; empty if it is.
func (l *lookup) reason() string {
	if l.err == nil {
		return ""
	}
	return strings.ReplaceAll(l.err.Error(), "\n", "; ")
}

// guesses warns, once per revision, that its interfaces come from the mapping, and why.
func (s *state) guesses(iface string) (all []string) {
	for i := range s.served[iface] {
		l := i.lookup
		if l == nil || l.metadata != nil || len(l.guess) == 0 || slices.ContainsFunc(i.providers,
			func(p provider.Provider) bool { return p.Interface < iface }) {
			continue
		}
		all = append(all, fmt.Sprintf("application %s revision %s: interfaces taken from the mapping, without group and version: %s",
			provider.Shorten(l.of.application), provider.Shorten(l.of.revision), l.reason()))
	}
	return all
}

// apply derives the services of an instance from its lookup. Without metadata, its earlier services and interface registrations count, and
// if there are none, the interfaces mapped to its application. The caller holds mu.
func (r *run) apply(i *instance) {
	l := i.lookup
	switch {
	case l.metadata != nil:
		providers, _ := i.Offers(*l.metadata)
		r.state.serve(i, providers)
	case len(l.guess) > 0 && !r.state.knows(i):
		r.state.serve(i, i.Guess(l.guess))
	}
}

// knows reports whether an instance has known services, at either level.
func (s *state) knows(i *instance) bool {
	if len(i.providers) > 0 {
		return true
	}
	for at := range i.addresses() {
		if s.knownAddresses[at] > 0 {
			return true
		}
	}
	return false
}
