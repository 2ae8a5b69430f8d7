package relay

import (
	"context"
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

// sourceDependencies are the dependencies of a sourceSet.
type sourceDependencies struct {
	supervisor *sources.Supervisor
	view       *aggregate.View
	state      *lastgood.Dir // stores the content of sources; nil for none
	hops       *mcp.Hops     // the instances of tributary that content passed through
	metrics    prometheus.Registerer
	vips       *vip.Table // nil for none
	log        *slog.Logger
}

// sourceSet is the sources of the configuration in force, with their tables. One goroutine at a time changes it.
type sourceSet struct {
	sourceDependencies
	activations chan activation // for logRemovals; has the newest one

	active []*activeSource // in order of the configuration

	mu             sync.Mutex
	retiredRemoved <-chan struct{} // see activation; nil before the first reload
	retired        []*activeSource // removed sources with files
}

// activation belongs to a configuration that came into force.
type activation struct {
	retiredRemoved <-chan struct{} // closed when no object of retired sources is served
	// retired has the served objects and the names of their sources, which this or an earlier pending configuration
	// removed or reads by other settings.
	retired map[resource.Key]string
}

// activeSource is a source of a configuration, and its table. It is immutable.
type activeSource struct {
	config   config.Source // its name identifies the source
	reading  string        // of config.Source.Reading: the source is read again if it changes
	source   sources.Source
	rules    *transform.Rules // or nil
	table    *memstore.Table
	lastGood *lastgood.Store // or nil
}

func newSourceSet(dependencies sourceDependencies) *sourceSet {
	return &sourceSet{sourceDependencies: dependencies, activations: make(chan activation, 1)}
}

// spec returns the source for the supervisor.
func (a *activeSource) spec() sources.Spec {
	spec := sources.Spec{
		Name: a.config.Name, Address: a.config.Shown(), Source: a.source, Table: a.table,
		Guard: a.config.Guard.Settings(), LastGood: a.lastGood, Reading: a.reading, Transform: a.rules,
		Lenient: a.config.Validation == config.ValidationWarn, Partial: a.config.PartialStart(),
	}
	_, spec.LenientMetadata = a.config.Settings.(*config.XDS)
	return spec
}

// input returns the source for the view.
func (a *activeSource) input() aggregate.Source {
	source := aggregate.Source{
		Name: a.config.Name, Reader: a.table, Precedence: a.config.Precedence,
		Optional: config.Off(a.config.Required),
	}
	if e := a.config.Merge.Endpoints; e != nil {
		source.Merge = &aggregate.Merge{Locality: e.Locality, Priority: e.Priority}
	}
	return source
}

// configure puts want in force as a whole and returns the changes, or an error without any change:
//   - A source with an unchanged configuration continues.
//   - If the reading (see activeSource) of a source is unchanged, for instance because only times or credentials
//     changed, the source starts again and keeps its table.
//   - If the reading changed, the source gets a new table, which begins with the objects, holds and last good versions
//     of the previous one.
//   - A source with a new name begins empty.
//
// Until the sources of the last two kinds are read, the view serves the previous versions of objects that they may
// have.
func (s *sourceSet) configure(want []config.Source) (changes, error) {
	next, err := s.prepare(want)
	if err != nil {
		return changes{}, err
	}
	specs, inputs := make([]sources.Spec, len(next)), make([]aggregate.Source, len(next))
	for i, active := range next {
		specs[i] = active.spec()
		inputs[i] = active.input()
	}
	if err := s.supervisor.Reconfigure(specs); err != nil {
		return changes{}, err
	}
	current := activation{retired: s.retiredObjects(next)}
	current.retiredRemoved = s.view.SetSources(inputs...)
	applied := changesOf(s.active, next)
	s.replace(next, current.retiredRemoved)
	select {
	case pending := <-s.activations:
		maps.Copy(current.retired, pending.retired)
	default:
	}
	s.activations <- current
	return applied, nil
}

// retiredObjects returns the served objects of tables that next does not have, with the names of their sources.
func (s *sourceSet) retiredObjects(next []*activeSource) map[resource.Key]string {
	served, retired := s.view.Snapshot(), make(map[resource.Key]string)
	for _, previous := range s.active {
		if slices.ContainsFunc(next, func(n *activeSource) bool { return n.table == previous.table }) {
			continue
		}
		for object := range previous.table.Snapshot().All() {
			if served.Get(object.Key()) != nil {
				retired[object.Key()] = previous.config.Name
			}
		}
	}
	return retired
}

// prepare makes the sources of want. Most failures of a reload occur here. It changes only files of sources that are
// not configured; Supervisor.Reconfigure may still refuse the sources, and then changes none.
func (s *sourceSet) prepare(want []config.Source) ([]*activeSource, error) {
	next := make([]*activeSource, len(want))
	for i, source := range want {
		active := &activeSource{config: source, reading: source.Reading()}
		next[i] = active
		previous := named(s.active, source.Name)
		if previous != nil && previous.reading == active.reading {
			active.table, active.lastGood = previous.table, previous.lastGood
		} else {
			active.table = new(memstore.Table)
			if s.state != nil {
				active.lastGood = s.state.Source(source.Name)
			}
		}
		if previous != nil && canReuseSource(previous.config, source) {
			active.source, active.rules = previous.source, previous.rules
			continue
		}
		var err error
		if active.source, err = newSource(source, s.hops, s.metrics, s.vips); err == nil {
			active.rules, err = source.Rules()
		}
		if err != nil {
			return nil, fmt.Errorf("source %s: %w", source.Name, err)
		}
	}
	for _, active := range next {
		// The content of an added source from an earlier run is outdated. It must not be restored if the program ends before
		// the source is read.
		if s.active != nil && active.lastGood != nil && named(s.active, active.config.Name) == nil {
			if err := active.lastGood.Forget(); err != nil {
				s.log.Warn("the content that an earlier run kept of a new source cannot be removed: "+
					"a restart before it is read would serve that", "source", active.config.Name, "err", err)
			}
		}
	}
	return next, nil
}

// named returns the source with a name, or nil.
func named(sources []*activeSource, name string) *activeSource {
	if i := slices.IndexFunc(sources, func(s *activeSource) bool { return s.config.Name == name }); i >= 0 {
		return sources[i]
	}
	return nil
}

// canReuseSource reports whether two configurations differ at most in settings that the sources.Source does not have.
func canReuseSource(first, second config.Source) bool {
	for _, s := range []*config.Source{&first, &second} {
		s.Precedence, s.Guard, s.Merge = 0, config.Guard{}, config.Merge{}
	}
	return reflect.DeepEqual(first, second)
}

// unusedRetention is the age up to which files of unknown sources stay, in case the configuration was wrong.
const unusedRetention = 7 * 24 * time.Hour

// replace puts next in force, and removes the files of retired sources.
func (s *sourceSet) replace(next []*activeSource, retiredRemoved <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active != nil {
		s.retiredRemoved = retiredRemoved
	}
	s.retired = slices.DeleteFunc(append(s.retired, s.active...), func(retired *activeSource) bool {
		if retired.lastGood == nil || named(next, retired.config.Name) != nil {
			return true
		}
		err := retired.lastGood.Forget()
		if err != nil {
			s.log.Warn("the files of a retired source cannot be removed", "err", err)
		}
		return err == nil
	})
	s.active = next
	if s.state == nil {
		return
	}
	var names []string
	for _, n := range next {
		names = append(names, n.config.Name)
	}
	if err := s.state.RemoveUnused(names, time.Now().Add(-unusedRetention)); err != nil {
		s.log.Warn("unused files cannot be removed", "err", err)
	}
}

// pending returns the sources that were not read since the last reload. Until then, the view serves the previous
// versions of objects that they may have.
func (s *sourceSet) pending() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.retiredRemoved:
		return nil
	default:
	}
	for _, n := range s.active {
		if s.retiredRemoved != nil && !n.table.Synced() {
			names = append(names, n.config.Name)
		}
	}
	return names
}

// logRemovals logs the objects that each reload removes, until ctx ends.
func (s *sourceSet) logRemovals(ctx context.Context) {
	var current activation
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-s.activations:
			maps.Copy(next.retired, current.retired) // of an activation that is still pending
			current = next
		case <-current.retiredRemoved:
			s.logRemoved(current.retired)
			current = activation{}
		}
	}
}

// logRemoved logs the objects of retired sources that the view lacks. The deletion guard does not hold these, since a
// person edited the configuration. But a source that was left out by mistake, or a mistyped address without objects,
// shows here.
func (s *sourceSet) logRemoved(retired map[resource.Key]string) {
	const maxNames = 20
	kinds, origins := make(map[resource.Kind]int), make(map[string]bool)
	var names []string
	count := 0
	served := s.view.Snapshot()
	for _, key := range slices.SortedFunc(maps.Keys(retired), resource.Key.Compare) {
		if served.Get(key) == nil {
			count++
			kinds[key.Kind]++
			origins[retired[key]] = true
			if len(names) < maxNames {
				names = append(names, key.String())
			}
		}
	}
	if count > 0 {
		if count > maxNames {
			names = append(names, fmt.Sprintf("and %d more", count-maxNames))
		}
		s.log.Warn("the reload removed objects that no source of the new configuration has",
			"objects", count, "kinds", fmt.Sprint(kinds), "of_sources", strings.Join(slices.Sorted(maps.Keys(origins)), ", "),
			"names", strings.Join(names, ", "))
	}
}

// Reader makes a source of its configuration for programs that only read it: services get no virtual addresses.
func Reader(s config.Source) (sources.Source, error) {
	return newSource(s, mcp.NewHops("validate"), prometheus.NewRegistry(), nil)
}

// newSource makes a source of its configuration for this program. addresses may be nil.
func newSource(
	source config.Source, hops *mcp.Hops, metrics prometheus.Registerer, addresses *vip.Table,
) (sources.Source, error) {
	parts := config.Parts{
		Metrics: prometheus.WrapRegistererWith(prometheus.Labels{"source": source.Name}, metrics), Hops: hops,
	}
	if addresses != nil {
		parts.VIPs = addresses
	}
	return source.New(parts)
}

// upstreams returns the state of this program as a client of other servers, in the form of CSDS.
func (s *sourceSet) upstreams() (configs []*statusv3.ClientConfig) {
	s.mu.Lock()
	active := s.active
	s.mu.Unlock()
	for _, activeSource := range active {
		client, isClient := activeSource.source.(interface{ Standing() *upstream.Standing })
		if !isClient {
			continue
		}
		if standing := client.Standing(); standing != nil {
			configs = append(configs, clientConfig(activeSource.config.Name, standing))
		}
	}
	return configs
}

func clientConfig(source string, standing *upstream.Standing) *statusv3.ClientConfig {
	config := &statusv3.ClientConfig{Node: standing.Node, ClientScope: source}
	for _, typeStanding := range standing.Types {
		typeConfig := &statusv3.ClientConfig_GenericXdsConfig{
			TypeUrl: typeStanding.TypeURL, VersionInfo: typeStanding.Version,
			ClientStatus: adminv3.ClientResourceStatus_ACKED,
		}
		switch {
		case typeStanding.At.IsZero():
			typeConfig.ClientStatus = adminv3.ClientResourceStatus_REQUESTED
		case typeStanding.Err != nil:
			typeConfig.ClientStatus = adminv3.ClientResourceStatus_NACKED
			typeConfig.ErrorState = &adminv3.UpdateFailureState{
				Details: typeStanding.Err.Error(), VersionInfo: typeStanding.Version,
				LastUpdateAttempt: timestamppb.New(typeStanding.At),
			}
		}
		if !typeStanding.At.IsZero() {
			typeConfig.LastUpdated = timestamppb.New(typeStanding.At)
		}
		config.GenericXdsConfigs = append(config.GenericXdsConfigs, typeConfig)
	}
	return config
}
