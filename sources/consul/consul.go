// Package consul reads services from Consul.
//
// The group of what it publishes is the name of the service, with its instances in all datacenters, namespaces, partitions
// and peers together. See README.md for what it does in which situation.
//
// package judge, meaning.go and state.go decide what answers mean, without I/O; run.go asks, gate.go says who may ask, publish.go hands on
// what is believed.
package consul

import (
	"cmp"
	"fmt"
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

// Settings are the options of a Consul source. Zero values stand for the defaults.
type Settings struct {
	// Datacenters, Namespaces and Partitions are what to read, each of them in each of the others. Default: the agent's.
	Datacenters, Namespaces, Partitions []string
	// Peers are read besides, for what they export.
	Peers []string

	// Services are names, or patterns with *, of the services to read. Default: all.
	Services []string
	// Skip are names, or patterns, of services to leave out.
	Skip []string
	// Tags are tags that an instance must have, all of them.
	Tags []string
	// Selects says by the tags of all its instances whether a service is to be read, as Selection says for people and for comparing; nil for
	// all. It may be called at any time.
	Selects   func(name string, tags []string) bool
	Selection string
	// Filter is an expression that Consul applies to the names of services, and HealthFilter one for their instances.
	Filter, HealthFilter string

	// Stale lets any server answer, and not only the leader. Default: true.
	Stale *bool
	// MaxStale is how long ago the server that answers may have heard of its leader; beyond, the leader is asked. Default: 10s.
	MaxStale time.Duration
	// RequireConsistent has the leader make sure of each answer. It takes the place of Stale.
	RequireConsistent bool
	// Wait is how long a blocking query waits for news. Default: 5m.
	Wait time.Duration
	// MaxConcurrentWatches is how many queries may wait at the same time. Default: 150 over plain HTTP, any number over
	// https. Other services are read in turn.
	MaxConcurrentWatches int
	// RampRate is how many reads may begin in a second, besides those that follow a change. Default: 50.
	RampRate int
	// Resync is how often everything is read once more and compared. Default: 10m.
	Resync time.Duration
	// Grace is how long a service that has gone stays, without endpoints. Default: 30s.
	Grace time.Duration
	// ResetHold is how long everything stays after Consul lost its data. Default: 5m.
	ResetHold time.Duration

	// TokenFile and TLS are those of the connection.
	TokenFile string
	TLS       *adsc.TLS

	// Mapping says what becomes of services, and VIPs gives them addresses of their own; nil for none.
	Mapping mapping.Options
	VIPs    mapping.VIPs

	// Registerer takes the metrics of the source, and names the source. Default: none.
	Registerer prometheus.Registerer

	address string // of Consul
}

// The defaults. A service that is deployed anew is away for some seconds, and its host is not to be deleted and made again
// for that: half a minute covers a restart. Agents tell a Consul that lost its data of their services within a minute in
// clusters of up to 128 nodes, and a minute later each time that number doubles.
const (
	defaultWait      = 5 * time.Minute
	defaultWatches   = 150
	defaultRamp      = 50
	defaultResync    = 10 * time.Minute
	defaultGrace     = 30 * time.Second
	defaultResetHold = 5 * time.Minute
	defaultMaxStale  = 10 * time.Second

	maxWait = 10 * time.Minute // Consul's own limit
)

func (s Settings) stale() bool { return !s.RequireConsistent && (s.Stale == nil || *s.Stale) }

// Source is a sources.Source of Consul. Between runs it keeps its connections, its counters, and the ports that services have.
type Source struct {
	settings Settings
	catalog  catalog
	client   *dial.Client
	mapper   Mapper
	metrics  *metrics
	secure   bool
	close    func()
}

var _ sources.Source = (*Source)(nil)

// New returns a source of the Consul at address. An error begins with the key at fault.
func New(address string, settings Settings) (*Source, error) {
	m, err := mapping.New(settings.Mapping, settings.VIPs)
	if err != nil {
		if rest, ok := strings.CutPrefix(err.Error(), "tags: "); ok { // of the mapping; ours are something else
			err = fmt.Errorf("labelTags: %s", rest)
		}
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
	selected := selection{services: settings.Services, skip: settings.Skip, tags: settings.Tags, selects: settings.Selects}
	return &Source{
		settings: settings, catalog: &client{Client: c, settings: settings, selected: selected}, client: c,
		metrics: newMetrics(), secure: c.Secure, close: c.Close,
	}, nil
}

// places is how many queries may wait at the same time; 0 is any number.
func (s *Source) places() int {
	switch {
	case s.settings.MaxConcurrentWatches > 0:
		return s.settings.MaxConcurrentWatches
	case s.secure:
		return 0
	default:
		return defaultWatches
	}
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
		if err := checkNames(l.names); err != nil {
			return fmt.Errorf("%s: %w", l.key, err)
		}
	}
	if err := cmp.Or(
		registry.Time("wait", &s.Wait, defaultWait, time.Second, maxWait),
		registry.Time("resync", &s.Resync, defaultResync, time.Second, 24*time.Hour),
		registry.Time("maxStale", &s.MaxStale, defaultMaxStale, time.Second, 24*time.Hour),
		registry.Time("grace", &s.Grace, defaultGrace, time.Millisecond, 24*time.Hour),
		registry.Time("resetHold", &s.ResetHold, defaultResetHold, time.Millisecond, 24*time.Hour),
	); err != nil {
		return err
	}
	if s.RampRate == 0 {
		s.RampRate = defaultRamp
	}
	switch {
	case s.RampRate < 0:
		return fmt.Errorf("rampRate: want 1 or more, got %d", s.RampRate)
	case s.MaxConcurrentWatches < 0:
		return fmt.Errorf("maxConcurrentWatches: want 1 or more, got %d", s.MaxConcurrentWatches)
	case s.MaxConcurrentWatches > 0 && s.MaxConcurrentWatches <= len(s.domains()):
		return fmt.Errorf("maxConcurrentWatches: want more than %d, since each datacenter, namespace, partition and peer takes one for its "+
			"names; got %d",
			len(s.domains()), s.MaxConcurrentWatches)
	case s.RequireConsistent && s.Stale != nil && *s.Stale:
		return fmt.Errorf("requireConsistent: not together with stale: true")
	}
	for _, f := range []struct{ key, value string }{{"filter", s.Filter}, {"healthFilter", s.HealthFilter}} {
		if f.value != "" && strings.TrimSpace(f.value) == "" {
			return fmt.Errorf("%s: is blank", f.key)
		}
	}
	return nil
}
