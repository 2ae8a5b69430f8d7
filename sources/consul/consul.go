// Package consul reads services from Consul.
//
// The group of the objects is the name of the service, with its instances in all datacenters, namespaces, partitions
// and peers. README.md describes the behaviour in each situation.
//
// These files do no I/O: verdict.go, nodes.go and package judge give a verdict on an answer (instances.go). state.go
// applies it to a scope, and service.go to a service. confirmation.go delays losses. record.go keeps the state over a
// restart. The others schedule the reads that the state requests, within limits.go: run.go and watch.go read names and
// services, changes.go finds changed services without a watch slot, and rights.go asks for rights. catalog.go sends the
// queries, and publish.go passes changes to a Publisher. docs/architecture.md has the reason why the state is not
// registry.Machine.
//
// # States of a service
//
// A service of a scope has two states:
//
//	nameState  names of the scope                   instances                         next
//	listed     list it                              as read                           missing, delisted
//	missing    listed it; lack it without a proof   as read, the last ones stay       listed, delisted
//	adopted    lack it; an earlier run published it those of the earlier run stay     listed, delisted
//	delisted   certainly lack it                    none, whatever is read            listed
//
//	readState  answers                              a start                           next
//	pending    none that counts                     waits for it                      refused, applied
//	refused    denied, failed, or held back         goes on without it                applied, pending
//	applied    accepted                             goes on with it                   -
//
// Names prove an absence if the read was confirmed, Consul hides nothing, and no suspicion holds. A service without
// instances is served without endpoints for Settings.Grace. Then it is withdrawn. Its watcher goes on only if it is
// listed. In addition, restored says that endpoints of an earlier run may exist that no answer has shown: they stay.
// If another scope was read, the service is published with the instances there and these endpoints.
//
// For example, the settings no longer select a service that an earlier run published:
//
//  1. The first names lack it: adopted, pending, restored. Its objects stay.
//  2. An answer has instances. They may be new, so that the service requests confirmed names: judge.Unconfirmed.
//  3. The confirmed names lack it: delisted, applied, no longer restored. It is served without endpoints.
//  4. After Settings.Grace it is withdrawn, and its watcher stops. If names list it before that, it is listed, and is
//     read again.
package consul

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/adsc"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/mapping"
	"tributary/sources/registry"
)

// The schemes of addresses of Consul. The second one is for TLS.
const (
	Scheme       = "consul"
	SecureScheme = "consul+https"
)

// Settings are the options of a Consul source. Zero values stand for the defaults. See config.Consul for fields without
// a comment.
type Settings struct {
	Datacenters, Namespaces, Partitions []string // the scopes are the product of the three lists
	Peers                               []string
	Services, Skip                      []string // names, or patterns with *
	Tags                                []string
	// Selects selects services by name and the tags of all their instances; nil for all. It may be called at any time.
	// Selection describes it, for comparing.
	Selects              func(name string, tags []string) bool
	Selection            string
	Filter, HealthFilter string

	Stale                *bool
	MaxStale             time.Duration
	RequireConsistent    bool // overrides Stale
	Wait                 time.Duration
	MaxConcurrentWatches int
	RampRate             int
	Resync               time.Duration
	// Grace is how long a service without instances stays, without endpoints, because a service that is deployed again
	// is away for seconds.
	Grace time.Duration
	// ResetHold is how long all services stay after Consul lost its data. Agents register again within a minute in
	// clusters of up to 128 nodes, and a minute later with each doubling.
	ResetHold time.Duration

	TokenFile string
	TLS       *adsc.TLS

	Mapping mapping.Options
	VIPs    registry.VIPs // nil for none

	// Registerer registers the metrics of the source, and adds the label that names it. Default: none.
	Registerer prometheus.Registerer

	address string // address of Consul
}

// defaultWatches is the limit of blocking queries over plain HTTP. Consul allows 200 connections to one address.
const defaultWatches = 150

func (s Settings) stale() bool { return !s.RequireConsistent && (s.Stale == nil || *s.Stale) }

// Source is a sources.Source of Consul. Between runs it keeps its connections, its counters, and the ports of services.
type Source struct {
	settings Settings
	catalog  catalog
	client   *dial.Client
	mapper   Mapper
	metrics  *metrics
}

var _ sources.Source = (*Source)(nil)

// Mapper makes resources of services. Package mapping has one. Its methods are called one after another.
type Mapper interface {
	// Service makes the content of a service from its instances in each scope; without scopes the service is withdrawn.
	Service(name string, scopes []mapping.Service) sources.Content
	// PartOfService makes the content of a service of which some scopes are unread, and retains the endpoints of before
	// that no scope lists. It returns the unlisted objects; false if it cannot join both.
	PartOfService(name string, scopes []mapping.Service, before []*resource.Resource) (
		content sources.Content, unlisted []*resource.Resource, ok bool)
	// Names receives the names of all services, and returns those with other content after that.
	Names(names []string) []string
	// Restore receives the objects of a service that an earlier run published.
	Restore(objects []*resource.Resource)
}

// New returns a source of the Consul at address. An error begins with the key at fault.
func New(address string, settings Settings) (*Source, error) {
	mapper, err := mapping.New(settings.Mapping, settings.VIPs)
	if err != nil {
		return nil, err
	}
	source, err := NewReader(address, settings)
	if err != nil {
		return nil, err
	}
	source.mapper = mapper
	return source, nil
}

// NewReader returns a source without a mapper, for Read. It does not use Mapping and VIPs of the settings.
func NewReader(address string, settings Settings) (*Source, error) {
	if err := settings.complete(); err != nil {
		return nil, err
	}
	parsed, err := dial.Parse(Scheme, address)
	if err != nil {
		return nil, err
	}
	if parsed.Path != "" {
		return nil, fmt.Errorf("address: %q: want %s://host:port, and no path", address, Scheme)
	}
	connection, err := dial.New(parsed, dial.Settings{TokenFile: settings.TokenFile, TLS: settings.TLS})
	if err != nil {
		return nil, err
	}
	settings.address = parsed.String()
	if settings.MaxConcurrentWatches == 0 && !connection.Secure {
		settings.MaxConcurrentWatches = defaultWatches // else any number
	}
	selected := selection{patterns(settings.Services), patterns(settings.Skip), settings.Tags, settings.Selects}
	return &Source{
		settings: settings, catalog: &client{Client: connection, settings: settings, selected: selected}, client: connection,
		metrics: newMetrics(),
	}, nil
}

// complete checks the settings and fills in the defaults.
func (s *Settings) complete() error {
	for _, list := range []struct {
		key   string
		names []string
	}{
		{"datacenters", s.Datacenters},
		{"namespaces", s.Namespaces},
		{"partitions", s.Partitions},
		{"peers", s.Peers},
		{"services", s.Services},
		{"skip", s.Skip},
		{"tags", s.Tags},
	} {
		for i, name := range list.names {
			if strings.TrimSpace(name) == "" {
				return fmt.Errorf("%s: entry %d is empty", list.key, i+1)
			}
			if slices.Contains(list.names[:i], name) {
				return fmt.Errorf("%s: %s is there twice", list.key, name)
			}
		}
	}
	if err := cmp.Or(
		registry.Time("wait", &s.Wait, 5*time.Minute, time.Second, 10*time.Minute), // Consul's own limit
		registry.Time("resync", &s.Resync, 10*time.Minute, time.Second, 24*time.Hour),
		registry.Time("maxStale", &s.MaxStale, 10*time.Second, time.Second, 24*time.Hour),
		registry.Time("grace", &s.Grace, 30*time.Second, time.Millisecond, 24*time.Hour),
		registry.Time("resetHold", &s.ResetHold, 5*time.Minute, time.Millisecond, 24*time.Hour),
	); err != nil {
		return err
	}
	s.RampRate = cmp.Or(s.RampRate, 50)
	switch scopes := len(s.scopes()); {
	case s.RampRate < 0:
		return fmt.Errorf("rampRate: want 1 or more, got %d", s.RampRate)
	case s.MaxConcurrentWatches < 0:
		return fmt.Errorf("maxConcurrentWatches: want 1 or more, got %d", s.MaxConcurrentWatches)
	case s.MaxConcurrentWatches > 0 && s.MaxConcurrentWatches <= scopes:
		return fmt.Errorf("maxConcurrentWatches: want more than %d, since each datacenter, namespace, partition and "+
			"peer takes one for its names; got %d", scopes, s.MaxConcurrentWatches)
	case s.RequireConsistent && s.Stale != nil && *s.Stale:
		return fmt.Errorf("requireConsistent: not together with stale: true")
	}
	for key, value := range map[string]string{"filter": s.Filter, "healthFilter": s.HealthFilter} {
		if value != "" && strings.TrimSpace(value) == "" {
			return fmt.Errorf("%s: is blank", key)
		}
	}
	return nil
}

// scope is a part of Consul that can fail on its own: a datacenter, with a namespace and partition, or the exports of a
// peer. Empty fields stand for the defaults of the agent.
type scope struct {
	datacenter, namespace, partition, peer string
}

// String names the scope in messages.
func (s scope) String() string {
	var words []string
	for _, field := range [][2]string{
		{"datacenter", s.datacenter}, {"partition", s.partition}, {"namespace", s.namespace}, {"peer", s.peer},
	} {
		if field[1] != "" {
			words = append(words, field[:]...)
		}
	}
	return strings.Join(words, " ")
}

// scopes returns the product of datacenters, partitions and namespaces. Peers are scopes of the agent's own datacenter
// only, because Consul answers queries about peers nowhere else.
func (s Settings) scopes() (scopes []scope) {
	orDefault := func(names []string) []string { // an empty name stands for the agent's default
		if len(names) == 0 {
			return []string{""}
		}
		return names
	}
	var bases []scope
	for _, name := range orDefault(s.Datacenters) {
		bases = append(bases, scope{datacenter: name})
	}
	for _, peer := range s.Peers {
		bases = append(bases, scope{peer: peer})
	}
	for _, scope := range bases {
		for _, scope.partition = range orDefault(s.Partitions) {
			for _, scope.namespace = range orDefault(s.Namespaces) {
				scopes = append(scopes, scope)
			}
		}
	}
	return scopes
}

// selection selects services by name and tags.
type selection struct {
	services, skip *regexp.Regexp // nil for none
	tags           []string
	selects        func(name string, tags []string) bool // nil for all
}

// patterns returns an expression for names, with * for any characters; nil for none.
func patterns(names []string) *regexp.Regexp {
	if len(names) == 0 {
		return nil
	}
	text := regexp.QuoteMeta(strings.ToValidUTF8(strings.Join(names, "\x00"), "?"))
	return regexp.MustCompile("^(?s:" + strings.NewReplacer(`\*`, ".*", "\x00", "|").Replace(text) + ")$")
}

// consulService is the service of Consul's own servers.
const consulService = "consul"

func (s selection) matches(name string, tags []string) bool {
	switch {
	case name == "" || name == consulService:
		return false
	case s.services != nil && !s.services.MatchString(name), s.skip != nil && s.skip.MatchString(name):
		return false
	case slices.ContainsFunc(s.tags, func(tag string) bool { return !slices.Contains(tags, tag) }):
		return false
	}
	return s.selects == nil || s.selects(name, tags)
}

// metrics continue from one run to the next.
type metrics struct {
	*sources.CounterSet
	names, reads, changeReads, confirmations, denied, limited, healed, watches sources.Counter

	vitals dial.Vitals
}

func newMetrics() *metrics {
	counter := func(name, help string) sources.Counter { return sources.Counter{Name: name, Help: help} }
	metrics := &metrics{
		reads:         counter("reads_total", "Reads of the instances of a service, by all means."),
		names:         counter("name_reads_total", "Reads of the names of services."),
		changeReads:   counter("notice_reads_total", "Queries that show which services without a watch changed."),
		confirmations: counter("confirmations_total", "Answers that a confirming query had to verify."),
		denied:        counter("denied_reads_total", "Reads that ACLs denied or filtered."),
		limited:       counter("rate_limited_total", "Reads that Consul refused because there were too many."),
		healed:        counter("healed_total", "Services whose watch missed a change that the periodic full read found."),
		watches:       counter("watches", "Services with a blocking query."),
	}
	metrics.watches.Falls = true
	metrics.CounterSet = sources.NewCounters("tributary_consul_",
		&metrics.reads, &metrics.names, &metrics.changeReads, &metrics.confirmations, &metrics.denied, &metrics.limited,
		&metrics.healed, &metrics.watches)
	return metrics
}

// register registers the metrics until stop is called.
func (m *metrics) register(registerer prometheus.Registerer) (stop func(), err error) {
	unregister, err := m.Register(registerer)
	if err != nil || registerer == nil {
		return unregister, err
	}
	if err := registerer.Register(&m.vitals); err != nil {
		unregister()
		return nil, err
	}
	return func() { unregister(); registerer.Unregister(&m.vitals) }, nil
}
