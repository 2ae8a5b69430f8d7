package relay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/aggregate"
	"tributary/config"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/mcp"
	"tributary/sources"
	"tributary/sources/lastgood"
	"tributary/sources/transform"
	"tributary/sources/vip"
)

// parts are what a sourceSet works with.
type parts struct {
	supervisor *sources.Supervisor
	view       *aggregate.View
	state      *lastgood.Dir // where what sources publish is kept; nil for nowhere
	hops       *mcp.Hops     // through which instances what is read comes
	metrics    prometheus.Registerer
	vips       *vip.Table // nil for none
	log        *slog.Logger
}

// sourceSet is the sources of the configuration in force, with their tables. One goroutine at a time changes it.
type sourceSet struct {
	parts
	switched chan switched        // for sweep; holds the newest
	swept    switched             // owned by sweep: the one that it has taken
	again    <-chan time.Time     // owned by sweep: when to forget again, if at all
	served   []*resource.Resource // by the process before, when the first sources are configured; nil if that was not ready

	all []*activeSource // in order of the configuration

	mu    sync.Mutex
	inUse []string                   // the ids of all
	xds   []xdsSource                // those that are clients of an xDS server
	alone <-chan struct{}            // of the last reload, see switched; nil before
	ended map[string]*lastgood.Store // by id, what was kept of sources that are no more, until nothing of them is served
}

// switched is a configuration that was put in force.
type switched struct {
	alone  <-chan struct{}   // tells that nothing of earlier sources is served
	before memstore.Snapshot // what was served until then
}

// activeSource is a source of a configuration, and its table. It never changes.
type activeSource struct {
	config config.Source
	made   string // its identity, by which it is known from one configuration to the next, and
	read   string // its reading, by which it is the same as before or is read anew
	id     string // both, the name and perhaps a number: unique
	source sources.Source
	rules  *transform.Rules // or nil
	table  *memstore.Table
	memory *lastgood.Store // or nil
	anew   bool            // it was added by a reload

	// What it begins with that was of another reading, at most one of these. Only who puts it in force looks at them.
	before *memstore.Table // of a source until now
	former *lastgood.Store // of a source of an earlier run
}

func newSourceSet(p parts) *sourceSet {
	return &sourceSet{parts: p, switched: make(chan switched, 1), ended: make(map[string]*lastgood.Store)}
}

// spec returns the source for the supervisor.
func (f *activeSource) spec() sources.Spec {
	spec := sources.Spec{
		Name: f.config.Name, Address: f.config.Shown(), Source: f.source, Table: f.table,
		Guard: f.config.Guard.Settings(), Memory: f.memory, Former: f.former, Transform: f.rules, Anew: f.anew,
		Lenient: f.config.Validation == config.ValidationWarn, Partial: f.config.PartialStart(),
	}
	if f.before != nil {
		spec.Before = f.before
	}
	return spec
}

// input returns the source for the view.
func (f *activeSource) input() aggregate.Source {
	in := aggregate.Source{Name: f.config.Name, Reader: f.table, Precedence: f.config.Precedence, Optional: config.Off(f.config.Required)}
	if e := f.config.Merge.Endpoints; e != nil {
		in.Merge = &aggregate.Merge{Locality: e.Locality, Priority: e.Priority}
	}
	return in
}

// configure puts want in force as a whole and returns the changes, or changes nothing. A source whose configuration stays is not disturbed.
// A source with the same identity and reading, under another name or with other times and credentials, goes on with its table. A source
// with the same identity and another reading is a new source, which begins with the objects, holds and last good versions of the earlier
// one. All others begin with nothing. Until sources of the last two sorts are read, the view serves what they may have as before.
func (f *sourceSet) configure(want []config.Source) (changes, error) {
	next, err := f.prepare(want)
	if err != nil {
		return changes{}, err
	}
	specs, inputs := make([]sources.Spec, len(next)), make([]aggregate.Source, len(next))
	for i, n := range next {
		specs[i], inputs[i] = n.spec(), n.input()
	}
	if err := f.supervisor.Reconfigure(specs); err != nil {
		return changes{}, err
	}
	if f.all == nil && f.served != nil {
		f.begin(next)
	}
	now := switched{before: f.view.Snapshot()}
	now.alone = f.view.SetSources(inputs...)
	done := changesOf(f.all, next)
	f.replace(next, now.alone)
	select {
	case older := <-f.switched:
		now.before = older.before
	default:
	}
	f.switched <- now
	return done, nil
}

// begin has the view serve what the process before served. Most of it is in the sources that were restored. The rest is served until all
// sources are read, as in a reload.
func (f *sourceSet) begin(next []*activeSource) {
	var restored []aggregate.Source
	for _, n := range next {
		if n.table.Synced() {
			restored = append(restored, n.input())
		}
	}
	f.view.Begin(restored...)
	var rest []*resource.Resource
	for _, r := range f.served {
		if now := f.view.Snapshot().Get(r.Key()); now == nil || now.Version() != r.Version() {
			rest = append(rest, r)
		}
	}
	if len(rest) > 0 {
		table := new(memstore.Table)
		table.Apply(rest, nil)
		table.MarkSynced()
		f.view.Begin(append(restored, aggregate.Source{Name: "the process before", Reader: table, Precedence: math.MaxInt, Ranked: true})...)
	}
}

// merged waits until the view has everything that the paused sources have, but not longer than ctx.
func (f *sourceSet) merged(ctx context.Context) {
	merged := func(n *activeSource) bool {
		return slices.ContainsFunc(f.view.Sources(), func(s aggregate.SourceStatus) bool {
			return s.Name == n.config.Name && !s.Retiring && s.Revision == n.table.Snapshot().Revision() && s.Synced == n.table.Synced()
		})
	}
	for ctx.Err() == nil && slices.ContainsFunc(f.all, func(n *activeSource) bool { return !merged(n) }) {
		_ = f.view.Alive(ctx) // it goes round
	}
	_ = f.view.Alive(ctx) // it has committed what it tells of its sources
}

// prepare makes the sources of want. It is the part of a reload that can fail, and changes nothing but files of sources that are not
// configured.
func (f *sourceSet) prepare(want []config.Source) ([]*activeSource, error) {
	next := make([]*activeSource, len(want))
	for i, s := range want {
		next[i] = &activeSource{config: s, made: s.Identity(), read: s.Reading(), anew: f.all != nil}
	}
	from := match(f.all, next, (*activeSource).like)
	taken, err := f.recall(next)
	if err != nil {
		return nil, err
	}
	for _, old := range from {
		if old != nil {
			taken = append(taken, old.id)
		}
	}
	for i, n := range next {
		old := from[i]
		if old != nil && old.read == n.read {
			n.id, n.table, n.memory, n.anew = old.id, old.table, old.memory, old.anew
		} else {
			n.table = new(memstore.Table)
			if n.id == "" {
				n.id = n.free(taken)
				taken = append(taken, n.id)
			}
			if f.state != nil {
				n.memory = f.state.Source(n.id)
			}
		}
		switch {
		case old == nil || !readsAlike(old.config, n.config):
			var err error
			if n.source, err = newSource(n.config, f.hops, f.metrics, f.vips); err != nil {
				return nil, fmt.Errorf("source %s: %w", n.config.Name, err)
			}
			if n.rules, err = n.config.Rules(); err != nil {
				return nil, fmt.Errorf("source %s: %w", n.config.Name, err)
			}
		default:
			n.source, n.rules = old.source, old.rules
		}
		if old != nil && old.read != n.read {
			n.before = old.table
		}
	}
	for i, n := range next {
		// What an earlier run kept of a source that is added now is of another time. It must not be there if the program ends before anything is
		// read.
		if from[i] == nil && n.anew && n.memory != nil {
			if err := n.memory.Forget(); err != nil {
				f.log.Warn("what an earlier run kept of a source that is added anew cannot be removed: a restart before it is read would serve that",
					"source", n.config.Name, "err", err)
			}
		}
	}
	return next, nil
}

// match returns for each of next the one of all that goes on as that, or nil: of those that are like it, the one that is so the most.
func match[T comparable](all []T, next []*activeSource, like func(one T, n *activeSource) int) []T {
	var none T
	left, from := slices.Clone(all), make([]T, len(next))
	for most := likest; most > 0; most-- {
		for i, n := range next {
			if j := slices.IndexFunc(left, func(one T) bool { return like(one, n) == most }); j >= 0 && from[i] == none {
				from[i] = left[j]
				left = slices.Delete(left, j, j+1)
			}
		}
	}
	return from
}

// likest is how much two sources are alike at most: by their identity, reading and name, in this order. Without the same identity they are
// not alike.
const likest = 4

func likeness(made, read, named bool) int {
	switch {
	case !made:
		return 0
	case read && named:
		return likest
	case read:
		return 3
	case named:
		return 2
	}
	return 1
}

func (f *activeSource) like(n *activeSource) int {
	return likeness(f.made == n.made, f.read == n.read, f.config.Name == n.config.Name)
}

// keptLike is how much what is kept under an id is like n; see free.
func keptLike(id string, n *activeSource) int {
	return likeness(strings.HasPrefix(id, n.made+"-"), strings.HasPrefix(id, n.made+"-"+n.read+"-"), strings.HasSuffix(id, n.named()))
}

// recall finds what an earlier run has kept of the sources at a start, perhaps by another reading, and returns the ids of that. A source
// that a reload adds begins with nothing.
func (f *sourceSet) recall(next []*activeSource) (taken []string, err error) {
	if f.state == nil || f.all != nil {
		return nil, nil
	}
	kept, err := f.state.Kept()
	if err != nil {
		return nil, err
	}
	taken = match(kept, next, keptLike)
	for i, n := range next {
		switch id := taken[i]; {
		case id == "":
		case strings.HasPrefix(id, n.made+"-"+n.read+"-"):
			n.id = id
		default:
			n.former = f.state.Source(id)
		}
	}
	return taken, nil
}

// free is an id that is not taken: identity, reading and name, so that of several sources with the same identity and reading each finds its
// own after a restart; and a number, if a renamed source has that id.
func (f *activeSource) free(taken []string) string {
	id := f.made + "-" + f.read + f.named()
	for n, free := 2, id; ; n++ {
		if !slices.Contains(taken, free) {
			return free
		}
		free = fmt.Sprintf("%s-%d", id, n)
	}
}

// named is the part of an id that is made of the name.
func (f *activeSource) named() string {
	sum := sha256.Sum256([]byte(f.config.Name))
	return "-" + hex.EncodeToString(sum[:4])
}

// readsAlike reports whether the source that reads as one configuration says also reads as the other does.
func readsAlike(a, b config.Source) bool {
	for _, s := range []*config.Source{&a, &b} {
		s.Precedence, s.Guard, s.Merge = 0, config.Guard{}, config.Merge{}
	}
	return reflect.DeepEqual(a, b)
}

// replace puts next in force, and notes the files of sources that ended.
func (f *sourceSet) replace(next []*activeSource, alone <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all != nil || f.served != nil {
		f.alone = alone
	}
	for _, o := range f.all {
		if o.memory != nil {
			f.ended[o.id] = o.memory
		}
	}
	f.all, f.inUse, f.xds = next, nil, xdsSources(next)
	for _, n := range next {
		f.inUse = append(f.inUse, n.id)
		delete(f.ended, n.id)
		if n.former != nil {
			f.ended[n.former.ID()] = n.former
		}
	}
}

// pending returns the names of the sources that the last reload waits for: until they are read, objects that they may have are served as
// before.
func (f *sourceSet) pending() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.alone:
		return nil
	default:
	}
	for _, n := range f.all {
		if f.alone != nil && !n.table.Synced() {
			names = append(names, n.config.Name)
		}
	}
	return names
}

// leftover is how long something is kept that no source has a claim to, in case that the configuration was the wrong one.
const leftover = 7 * 24 * time.Hour

// sweep removes the files of former sources once none of their objects is served, until ctx ends. It may be called again then.
func (f *sourceSet) sweep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			if f.again != nil {
				f.again = f.forget()
			}
			return
		case next := <-f.switched:
			if f.swept.alone != nil {
				next.before = f.swept.before
			}
			f.swept = next
		case <-f.swept.alone:
			f.tell(f.swept.before)
			f.swept = switched{}
			f.again = f.forget()
		case <-f.again:
			f.again = f.forget()
		}
	}
}

// tell logs the objects that a reload has removed. The deletion guard does not hold these, since a person edited the configuration. But a
// source that was left out by mistake, or a mistyped address without objects, shows here.
func (f *sourceSet) tell(before memstore.Snapshot) {
	const named = 20
	gone, from := make(map[resource.Kind]int), make(map[string]bool)
	var names []string
	all := 0
	for c := range memstore.Diff(before, f.view.Snapshot()) {
		if c.New == nil {
			all++
			gone[c.Old.Key().Kind]++
			from[c.Old.Origin().Source] = true
			if len(names) < named {
				names = append(names, c.Old.Key().String())
			}
		}
	}
	if all > 0 {
		if all > named {
			names = append(names, fmt.Sprintf("and %d more", all-named))
		}
		f.log.Warn("the reload has taken away what no source of the new configuration has",
			"objects", all, "kinds", fmt.Sprint(gone), "of_sources", strings.Join(slices.Sorted(maps.Keys(from)), ", "),
			"names", strings.Join(names, ", "))
	}
}

// forget removes the files of former sources. A file that a source began with stays until that source was read and has a file of its own:
// then the channel tells when to try again.
func (f *sourceSet) forget() (again <-chan time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unread := f.unread()
	for id, memory := range f.ended {
		if slices.ContainsFunc(unread, func(made string) bool { return strings.HasPrefix(id, made+"-") }) {
			again = time.After(time.Second)
			continue
		}
		if err := memory.Forget(); err != nil {
			f.log.Warn("what is kept of a source that is no more cannot be removed", "err", err)
			continue // next time
		}
		delete(f.ended, id)
	}
	if f.state != nil {
		if err := f.state.Unused(f.inUse, time.Now().Add(-leftover)); err != nil {
			f.log.Warn("what nothing needs any more cannot be removed", "err", err)
		}
	}
	return again
}

// unread returns the identities of the sources that are not read yet. The caller holds mu.
func (f *sourceSet) unread() (made []string) {
	read := map[string]bool{}
	for _, s := range f.supervisor.Status() {
		read[s.Name] = s.Synced
	}
	for _, n := range f.all {
		if !read[n.config.Name] {
			made = append(made, n.made)
		}
	}
	return made
}
