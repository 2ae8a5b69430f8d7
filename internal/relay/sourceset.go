package relay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/timestamppb"

	"tributary/aggregate"
	"tributary/config"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/mcp"
	"tributary/sources"
	"tributary/sources/lastgood"
	"tributary/sources/transform"
	"tributary/sources/vip"
	upstream "tributary/sources/xds"
)

// parts are the dependencies of a sourceSet.
type parts struct {
	supervisor *sources.Supervisor
	view       *aggregate.View
	state      *lastgood.Dir // keeps the content of sources; nil for none
	hops       *mcp.Hops     // the instances through which content came
	metrics    prometheus.Registerer
	vips       *vip.Table // nil for none
	log        *slog.Logger
}

// sourceSet is the sources of the configuration in force, with their tables. One goroutine at a time changes it.
type sourceSet struct {
	parts
	activations chan activation // for sweep; has the newest

	active []*activeSource // in order of the configuration

	mu         sync.Mutex
	inUse      []string                   // the ids of all
	xds        []xdsSource                // the clients of xDS servers among all
	oldRemoved <-chan struct{}            // of the last reload, see activation; nil before the first
	retired    map[string]*lastgood.Store // by id: the files of retired sources, until none of their objects is served
}

// activation is the moment at which a configuration came into force.
type activation struct {
	oldRemoved <-chan struct{}   // closed when no object of retired sources is served
	previous   memstore.Snapshot // the objects served until then
}

// activeSource is a source of a configuration, and its table. It never changes.
type activeSource struct {
	config   config.Source
	identity string // see config.Source.Identity: recognizes the source in another configuration
	reading  string // see config.Source.Reading: if it differs, the source is read again
	id       string // unique: identity, reading, name, and perhaps a number
	source   sources.Source
	rules    *transform.Rules // or nil
	table    *memstore.Table
	lastGood *lastgood.Store // or nil
	added    bool            // a reload added it

	// Its initial content, of another reading; at most one of these. Used only when it comes into force.
	previousTable    *memstore.Table // of the source that it replaces
	previousRunStore *lastgood.Store // of an earlier run
}

func newSourceSet(p parts) *sourceSet {
	return &sourceSet{parts: p, activations: make(chan activation, 1), retired: make(map[string]*lastgood.Store)}
}

// spec returns the source for the supervisor.
func (f *activeSource) spec() sources.Spec {
	spec := sources.Spec{
		Name: f.config.Name, Address: f.config.Shown(), Source: f.source, Table: f.table,
		Guard: f.config.Guard.Settings(), Memory: f.lastGood, Former: f.previousRunStore, Transform: f.rules, Anew: f.added,
		Lenient: f.config.Validation == config.ValidationWarn, Partial: f.config.PartialStart(),
	}
	_, spec.LenientMetadata = f.config.Settings.(*config.XDS)
	if f.previousTable != nil {
		spec.Before = f.previousTable
	}
	return spec
}

// input returns the source for the view.
func (f *activeSource) input() aggregate.Source {
	source := aggregate.Source{
		Name: f.config.Name, Reader: f.table, Precedence: f.config.Precedence,
		Optional: config.Off(f.config.Required),
	}
	if e := f.config.Merge.Endpoints; e != nil {
		source.Merge = &aggregate.Merge{Locality: e.Locality, Priority: e.Priority}
	}
	return source
}

// configure puts want in force as a whole and returns the changes, or an error without any change. A source with an
// unchanged configuration runs on. A source with the same identity and reading, under another name or with other times
// and credentials, keeps its table. A source with the same identity and another reading is a new source, which begins
// with the objects, holds and last good versions of the previous one. All others begin empty. Until sources of the last
// two kinds are read, the view serves the previous versions of objects that they may have.
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
	current := activation{previous: f.view.Snapshot()}
	current.oldRemoved = f.view.SetSources(inputs...)
	applied := changesOf(f.active, next)
	f.replace(next, current.oldRemoved)
	select {
	case pending := <-f.activations:
		current.previous = pending.previous
	default:
	}
	f.activations <- current
	return applied, nil
}

// prepare makes the sources of want. Only this part of a reload can fail; it changes only files of sources that are not
// configured.
func (f *sourceSet) prepare(want []config.Source) ([]*activeSource, error) {
	next := make([]*activeSource, len(want))
	for i, s := range want {
		next[i] = &activeSource{config: s, identity: s.Identity(), reading: s.Reading(), added: f.active != nil}
	}
	matches := match(f.active, next, (*activeSource).likeness)
	taken, err := f.recallContent(next)
	if err != nil {
		return nil, err
	}
	for _, previous := range matches {
		if previous != nil {
			taken = append(taken, previous.id)
		}
	}
	for i, n := range next {
		previous := matches[i]
		if previous != nil && previous.reading == n.reading {
			n.id, n.table, n.lastGood, n.added = previous.id, previous.table, previous.lastGood, previous.added
		} else {
			n.table = new(memstore.Table)
			if n.id == "" {
				n.id = n.freeID(taken)
				taken = append(taken, n.id)
			}
			if f.state != nil {
				n.lastGood = f.state.Source(n.id)
			}
		}
		switch {
		case previous == nil || !readsAlike(previous.config, n.config):
			var err error
			if n.source, err = newSource(n.config, f.hops, f.metrics, f.vips); err != nil {
				return nil, fmt.Errorf("source %s: %w", n.config.Name, err)
			}
			if n.rules, err = n.config.Rules(); err != nil {
				return nil, fmt.Errorf("source %s: %w", n.config.Name, err)
			}
		default:
			n.source, n.rules = previous.source, previous.rules
		}
		if previous != nil && previous.reading != n.reading {
			n.previousTable = previous.table
		}
	}
	for i, n := range next {
		// The content of an added source from an earlier run is outdated. It must not be restored if the program ends before
		// the source is read.
		if matches[i] == nil && n.added && n.lastGood != nil {
			if err := n.lastGood.Forget(); err != nil {
				f.log.Warn("the content that an earlier run kept of a new source cannot be removed: a restart before it is read would serve that",
					"source", n.config.Name, "err", err)
			}
		}
	}
	return next, nil
}

// match returns for each source of next its best match among the candidates, each of which matches once; zero for none.
func match[T comparable](candidates []T, next []*activeSource, likeness func(candidate T, n *activeSource) int) []T {
	var zero T
	remaining, matches := slices.Clone(candidates), make([]T, len(next))
	for degree := bestMatch; degree > 0; degree-- {
		for i, n := range next {
			if j := slices.IndexFunc(remaining, func(candidate T) bool { return likeness(candidate, n) == degree }); j >= 0 &&
				matches[i] == zero {
				matches[i] = remaining[j]
				remaining = slices.Delete(remaining, j, j+1)
			}
		}
	}
	return matches
}

// bestMatch is the highest likeness of two sources, which compares identity, reading and name, in this order. Without
// the same identity it is 0.
const bestMatch = 4

func likenessOf(sameIdentity, sameReading, sameName bool) int {
	switch {
	case !sameIdentity:
		return 0
	case sameReading && sameName:
		return bestMatch
	case sameReading:
		return 3
	case sameName:
		return 2
	}
	return 1
}

func (f *activeSource) likeness(n *activeSource) int {
	return likenessOf(f.identity == n.identity, f.reading == n.reading, f.config.Name == n.config.Name)
}

// storedLikeness returns the likeness of n and the content stored under an id; see freeID.
func storedLikeness(id string, n *activeSource) int {
	prefix := n.identity + "-"
	return likenessOf(strings.HasPrefix(id, prefix), strings.HasPrefix(id, prefix+n.reading+"-"),
		strings.HasSuffix(id, n.nameSuffix()))
}

// recallContent finds, at a start, the stored content of the sources from an earlier run, perhaps of another reading,
// and returns its ids. A source that a reload adds begins empty.
func (f *sourceSet) recallContent(next []*activeSource) (taken []string, err error) {
	if f.state == nil || f.active != nil {
		return nil, nil
	}
	stored, err := f.state.SourceIDs()
	if err != nil {
		return nil, err
	}
	taken = match(stored, next, storedLikeness)
	for i, n := range next {
		switch id := taken[i]; {
		case id == "":
		case strings.HasPrefix(id, n.identity+"-"+n.reading+"-"):
			n.id = id
		default:
			n.previousRunStore = f.state.Source(id)
		}
	}
	return taken, nil
}

// freeID returns an unused id: identity, reading and name, so that sources with the same identity and reading find
// their own content after a restart; and a number, if a renamed source has that id.
func (f *activeSource) freeID(taken []string) string {
	id := f.identity + "-" + f.reading + f.nameSuffix()
	for n, candidate := 2, id; ; n++ {
		if !slices.Contains(taken, candidate) {
			return candidate
		}
		candidate = fmt.Sprintf("%s-%d", id, n)
	}
}

// nameSuffix returns the part of an id that is derived from the name.
func (f *activeSource) nameSuffix() string {
	sum := sha256.Sum256([]byte(f.config.Name))
	return "-" + hex.EncodeToString(sum[:4])
}

// readsAlike reports whether the source of one configuration can serve as that of the other.
func readsAlike(a, b config.Source) bool {
	for _, s := range []*config.Source{&a, &b} {
		s.Precedence, s.Guard, s.Merge = 0, config.Guard{}, config.Merge{}
	}
	return reflect.DeepEqual(a, b)
}

// replace puts next in force, and collects the files of retired sources.
func (f *sourceSet) replace(next []*activeSource, oldGone <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active != nil {
		f.oldRemoved = oldGone
	}
	for _, retired := range f.active {
		if retired.lastGood != nil {
			f.retired[retired.id] = retired.lastGood
		}
	}
	f.active, f.inUse, f.xds = next, nil, xdsSources(next)
	for _, n := range next {
		f.inUse = append(f.inUse, n.id)
		delete(f.retired, n.id)
		if n.previousRunStore != nil {
			f.retired[n.previousRunStore.ID()] = n.previousRunStore
		}
	}
}

// pending returns the sources that the last reload waits for: objects that they may have are still served in their
// previous versions.
func (f *sourceSet) pending() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.oldRemoved:
		return nil
	default:
	}
	for _, n := range f.active {
		if f.oldRemoved != nil && !n.table.Synced() {
			names = append(names, n.config.Name)
		}
	}
	return names
}

// unusedRetention is the age up to which unclaimed files stay, in case the configuration was wrong.
const unusedRetention = 7 * 24 * time.Hour

// sweep removes the files of retired sources once none of their objects is served, until ctx ends.
func (f *sourceSet) sweep(ctx context.Context) {
	var current activation
	var retry <-chan time.Time // the time to call removeRetired again; nil for none
	for {
		select {
		case <-ctx.Done():
			if retry != nil {
				f.removeRetired()
			}
			return
		case next := <-f.activations:
			if current.oldRemoved != nil {
				next.previous = current.previous
			}
			current = next
		case <-current.oldRemoved:
			f.logRemoved(current.previous)
			current = activation{}
			retry = f.removeRetired()
		case <-retry:
			retry = f.removeRetired()
		}
	}
}

// logRemoved logs the objects that a reload has removed. The deletion guard does not hold these, since a person edited
// the configuration. But a source that was left out by mistake, or a mistyped address without objects, shows here.
func (f *sourceSet) logRemoved(previous memstore.Snapshot) {
	const named = 20
	kinds, origins := make(map[resource.Kind]int), make(map[string]bool)
	var names []string
	count := 0
	for c := range memstore.Diff(previous, f.view.Snapshot()) {
		if c.New == nil {
			count++
			kinds[c.Old.Key().Kind]++
			origins[c.Old.Origin().Source] = true
			if len(names) < named {
				names = append(names, c.Old.Key().String())
			}
		}
	}
	if count > 0 {
		if count > named {
			names = append(names, fmt.Sprintf("and %d more", count-named))
		}
		f.log.Warn("the reload removed objects that no source of the new configuration has",
			"objects", count, "kinds", fmt.Sprint(kinds), "of_sources", strings.Join(slices.Sorted(maps.Keys(origins)), ", "),
			"names", strings.Join(names, ", "))
	}
}

// removeRetired removes the files of retired sources. A source's initial content stays until the source is read and has
// a file of its own; retry delivers the time to try that again.
func (f *sourceSet) removeRetired() (retry <-chan time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unread := f.unread()
	for id, memory := range f.retired {
		if slices.ContainsFunc(unread, func(identity string) bool { return strings.HasPrefix(id, identity+"-") }) {
			retry = time.After(time.Second)
			continue
		}
		if err := memory.Forget(); err != nil {
			f.log.Warn("the files of a retired source cannot be removed", "err", err)
			continue // next time
		}
		delete(f.retired, id)
	}
	if f.state != nil {
		if err := f.state.RemoveUnused(f.inUse, time.Now().Add(-unusedRetention)); err != nil {
			f.log.Warn("unused files cannot be removed", "err", err)
		}
	}
	return retry
}

// unread returns the identities of the sources that are not read yet. The caller holds mu.
func (f *sourceSet) unread() (identities []string) {
	read := map[string]bool{}
	for _, s := range f.supervisor.Status() {
		read[s.Name] = s.Synced
	}
	for _, n := range f.active {
		if !read[n.config.Name] {
			identities = append(identities, n.identity)
		}
	}
	return identities
}

// Reader makes a source of its configuration for programs that only read it: services get no virtual addresses.
func Reader(s config.Source) (sources.Source, error) {
	return newSource(s, mcp.NewHops("validate"), prometheus.NewRegistry(), nil)
}

// newSource makes a source of its configuration for this program. addresses may be nil.
func newSource(s config.Source, hops *mcp.Hops, metrics prometheus.Registerer, addresses *vip.Table) (sources.Source, error) {
	p := config.Parts{Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"source": s.Name}, metrics), Hops: hops}
	if addresses != nil {
		p.VIPs = addresses
	}
	return s.New(p)
}

// xdsSource is a source that is the client of an xDS server.
type xdsSource struct {
	name   string
	source interface{ Standing() *upstream.Standing }
}

// xdsSources returns the active sources that are clients of an xDS server.
func xdsSources(active []*activeSource) (clients []xdsSource) {
	for _, f := range active {
		if s, ok := f.source.(*upstream.Source); ok {
			clients = append(clients, xdsSource{f.config.Name, s})
		}
	}
	return clients
}

// upstreams returns the state of this program as a client of other servers, in the form of CSDS.
func (f *sourceSet) upstreams() (configs []*statusv3.ClientConfig) {
	f.mu.Lock()
	clients := f.xds
	f.mu.Unlock()
	for _, client := range clients {
		if standing := client.source.Standing(); standing != nil {
			configs = append(configs, clientConfig(client.name, standing))
		}
	}
	return configs
}

func clientConfig(source string, standing *upstream.Standing) *statusv3.ClientConfig {
	config := &statusv3.ClientConfig{Node: standing.Node, ClientScope: source}
	for _, t := range standing.Types {
		typeConfig := &statusv3.ClientConfig_GenericXdsConfig{
			TypeUrl: t.TypeURL, VersionInfo: t.Version,
			ClientStatus: adminv3.ClientResourceStatus_ACKED,
		}
		switch {
		case t.At.IsZero():
			typeConfig.ClientStatus = adminv3.ClientResourceStatus_REQUESTED
		case t.Err != nil:
			typeConfig.ClientStatus = adminv3.ClientResourceStatus_NACKED
			typeConfig.ErrorState = &adminv3.UpdateFailureState{
				Details: t.Err.Error(), VersionInfo: t.Version,
				LastUpdateAttempt: timestamppb.New(t.At),
			}
		}
		if !t.At.IsZero() {
			typeConfig.LastUpdated = timestamppb.New(t.At)
		}
		config.GenericXdsConfigs = append(config.GenericXdsConfigs, typeConfig)
	}
	return config
}
