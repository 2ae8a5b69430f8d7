// Package consul reads services from Consul.
//
// The group of what it publishes is the name of the service, with its instances in all datacenters, namespaces, partitions
// and peers together. See README.md for what it does in which situation.
//
// package judge, meaning.go and state.go decide what answers mean, without I/O; names.go and watch.go ask, gate.go says who may ask, and
// publish.go hands on what is believed. docs/architecture.md says why that is not registry.Machine.
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

// Settings are the options of a Consul source. Zero values stand for the defaults. config.Consul describes those without a comment here.
type Settings struct {
	Datacenters, Namespaces, Partitions []string // each of them is read in each of the others
	Peers                               []string
	Services, Skip                      []string // names, or patterns with *
	Tags                                []string
	// Selects says by the tags of all its instances whether a service is to be read, as Selection says for people and for comparing; nil for
	// all. It may be called at any time.
	Selects              func(name string, tags []string) bool
	Selection            string
	Filter, HealthFilter string

	Stale                *bool
	MaxStale             time.Duration
	RequireConsistent    bool // it takes the place of Stale
	Wait                 time.Duration
	MaxConcurrentWatches int
	RampRate             int
	Resync               time.Duration
	// Grace is how long a service that has gone stays, without endpoints. One that is deployed anew is away for some seconds, and its host is
	// not to be deleted and made again for that.
	Grace time.Duration
	// ResetHold is how long everything stays after Consul lost its data. Agents tell it of their services within a minute in clusters of up to
	// 128 nodes, and a minute later each time that number doubles.
	ResetHold time.Duration

	TokenFile string
	TLS       *adsc.TLS

	Mapping mapping.Options
	VIPs    registry.VIPs // nil for none

	// Registerer takes the metrics of the source, and names the source. Default: none.
	Registerer prometheus.Registerer

	address string // of Consul
}

// defaultWatches is how many queries may wait at the same time over plain HTTP. Consul allows 200 connections to one address.
const defaultWatches = 150

func (s Settings) stale() bool { return !s.RequireConsistent && (s.Stale == nil || *s.Stale) }

// Source is a sources.Source of Consul. Between runs it keeps its connections, its counters, and the ports that services have.
type Source struct {
	settings Settings
	catalog  catalog
	client   *dial.Client
	mapper   Mapper
	metrics  *metrics
}

var _ sources.Source = (*Source)(nil)

// New returns a source of the Consul at address. An error begins with the key at fault.
func New(address string, settings Settings) (*Source, error) {
	m, err := mapping.New(settings.Mapping, settings.VIPs)
	if err != nil {
		return nil, err
	}
	s, err := NewFollowed(address, settings)
	if err != nil {
		return nil, err
	}
	s.mapper = m
	return s, nil
}

// NewFollowed is New for a source that is to be followed, and not run. Settings.Grace, Mapping and VIPs are those of who follows.
func NewFollowed(address string, settings Settings) (*Source, error) {
	if err := settings.complete(); err != nil {
		return nil, err
	}
	a, err := dial.Parse(Scheme, address)
	if err != nil {
		return nil, err
	}
	if a.Path != "" {
		return nil, fmt.Errorf("address: %q: want %s://host:port, and no path", address, Scheme)
	}
	c, err := dial.New(a, dial.Settings{TokenFile: settings.TokenFile, TLS: settings.TLS})
	if err != nil {
		return nil, err
	}
	settings.address = a.String()
	if settings.MaxConcurrentWatches == 0 && !c.Secure {
		settings.MaxConcurrentWatches = defaultWatches // else any number
	}
	selected := selection{patterns(settings.Services), patterns(settings.Skip), settings.Tags, settings.Selects}
	return &Source{
		settings: settings, catalog: &client{Client: c, settings: settings, selected: selected}, client: c,
		metrics: newMetrics(),
	}, nil
}

// complete checks the settings and fills in the defaults.
func (s *Settings) complete() error {
	for _, l := range []struct {
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
		for i, n := range l.names {
			if strings.TrimSpace(n) == "" {
				return fmt.Errorf("%s: entry %d is empty", l.key, i+1)
			}
			if slices.Contains(l.names[:i], n) {
				return fmt.Errorf("%s: %s is there twice", l.key, n)
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
	switch domains := len(s.domains()); {
	case s.RampRate < 0:
		return fmt.Errorf("rampRate: want 1 or more, got %d", s.RampRate)
	case s.MaxConcurrentWatches < 0:
		return fmt.Errorf("maxConcurrentWatches: want 1 or more, got %d", s.MaxConcurrentWatches)
	case s.MaxConcurrentWatches > 0 && s.MaxConcurrentWatches <= domains:
		return fmt.Errorf("maxConcurrentWatches: want more than %d, since each datacenter, namespace, partition and peer takes one for its "+
			"names; got %d", domains, s.MaxConcurrentWatches)
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

// domain is a part of Consul that can fail on its own: a datacenter, with a namespace, a partition, and what a peer
// exports to it. Empty fields are what the agent takes for them.
type domain struct {
	datacenter, namespace, partition, peer string
}

// String names the domain in messages.
func (d domain) String() string {
	var parts []string
	for _, p := range [][2]string{{"datacenter", d.datacenter}, {"partition", d.partition}, {"namespace", d.namespace}, {"peer", d.peer}} {
		if p[1] != "" {
			parts = append(parts, p[:]...)
		}
	}
	return strings.Join(parts, " ")
}

// domains returns all that the settings name: every namespace of every partition of every datacenter, and of what peers
// export the same for the agent's own datacenter, the only one that Consul answers such queries for.
func (s Settings) domains() (all []domain) {
	orDefault := func(names []string) []string { // of the agent
		if len(names) == 0 {
			return []string{""}
		}
		return names
	}
	var whole []domain
	for _, dc := range orDefault(s.Datacenters) {
		whole = append(whole, domain{datacenter: dc})
	}
	for _, peer := range s.Peers {
		whole = append(whole, domain{peer: peer})
	}
	for _, d := range whole {
		for _, d.partition = range orDefault(s.Partitions) {
			for _, d.namespace = range orDefault(s.Namespaces) {
				all = append(all, d)
			}
		}
	}
	return all
}

// selection decides by name and tags which services are read at all.
type selection struct {
	services, skip *regexp.Regexp // nil for none
	tags           []string
	selects        func(name string, tags []string) bool // nil for all
}

// patterns returns an expression for names, in which * stands for any characters; nil for none.
func patterns(all []string) *regexp.Regexp {
	if len(all) == 0 {
		return nil
	}
	text := regexp.QuoteMeta(strings.ToValidUTF8(strings.Join(all, "\x00"), "?"))
	return regexp.MustCompile("^(?s:" + strings.NewReplacer(`\*`, ".*", "\x00", "|").Replace(text) + ")$")
}

// ownService is the service by which Consul's servers list themselves.
const ownService = "consul"

func (s selection) wants(name string, tags []string) bool {
	switch {
	case name == "" || name == ownService:
		return false
	case s.services != nil && !s.services.MatchString(name), s.skip != nil && s.skip.MatchString(name):
		return false
	case slices.ContainsFunc(s.tags, func(tag string) bool { return !slices.Contains(tags, tag) }):
		return false
	}
	return s.selects == nil || s.selects(name, tags)
}

// metrics count what the source does. They go on from one run to the next.
type metrics struct {
	*sources.CounterSet
	names, reads, notices, confirmations, denied, limited, healed sources.Counter
	watches                                                       sources.Counter // now
	vitals                                                        dial.Vitals
}

func newMetrics() *metrics {
	m := &metrics{
		reads:         sources.Counter{Name: "reads_total", Help: "Reads of the instances of a service, by all means."},
		names:         sources.Counter{Name: "name_reads_total", Help: "Reads of the names of services."},
		notices:       sources.Counter{Name: "notice_reads_total", Help: "Queries that tell which services without a watch have to be read."},
		confirmations: sources.Counter{Name: "confirmations_total", Help: "Answers that were not believed before a second, certain one."},
		denied:        sources.Counter{Name: "denied_reads_total", Help: "Reads that Consul refused, or answered with less than there is."},
		limited:       sources.Counter{Name: "rate_limited_total", Help: "Reads that Consul refused because there were too many."},
		healed: sources.Counter{Name: "healed_total", Help: "Services that the full compare found to be different from what the watch " +
			"had told."},
		watches: sources.Counter{Name: "watches", Help: "Services that are watched by a query that waits.", Falls: true},
	}
	m.CounterSet = sources.NewCounters("tributary_consul_",
		&m.reads, &m.names, &m.notices, &m.confirmations, &m.denied, &m.limited, &m.healed, &m.watches)
	return m
}

// register has them collected until stop is called. The registerer adds the label that names the source.
func (m *metrics) register(r prometheus.Registerer) (stop func(), err error) {
	end, err := m.Register(r)
	if err != nil || r == nil {
		return end, err
	}
	if err := r.Register(&m.vitals); err != nil {
		end()
		return nil, err
	}
	return func() { end(); r.Unregister(&m.vitals) }, nil
}
