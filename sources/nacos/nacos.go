// Package nacos reads services from a Nacos, as a registry of its own: for what Dubbo registers there see package dubbo.
//
// The group of what it publishes is group@@service. See README.md for what it does in which situation.
//
// Package client is the connection and follows a Nacos, and package mapping makes ServiceEntries; mapping is pure. Here, state.go holds
// what is listed, and run.go listens to the client and hands on what the machine of package registry believes.
package nacos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/adsc"
	"tributary/sources"
	"tributary/sources/nacos/client"
	"tributary/sources/nacos/mapping"
	"tributary/sources/registry"
)

// Scheme is that of addresses of Nacos, and Kind what the parameter kind of those says that are for this package.
const (
	Scheme = client.Scheme
	Kind   = "services"
)

// Settings are the options of a Nacos source. Zero values stand for the defaults.
type Settings struct {
	// Groups are those to read. Default: that of the address, DEFAULT_GROUP.
	Groups []string
	// Services are names, or patterns with *, of what to read, and Skip of what to leave out. Default: all, none.
	Services, Skip []string
	// Interval is how often the names of services are looked at. Default: 2s.
	Interval time.Duration
	// Delay is how long changes are collected after some were published. Default: 1s.
	Delay time.Duration
	// Resync is how often each service is read once more. Default: 10m.
	Resync time.Duration
	// Hold is how long instances stay that are not listed after Nacos could not be reached, or after a start. Default: 2m.
	Hold time.Duration
	// KeepEmpty is how long a service without instances stays, without endpoints. Default: 24h.
	KeepEmpty time.Duration

	TLS *adsc.TLS

	// Mapping says what becomes of services, and VIPs gives them addresses of their own; nil for none.
	Mapping mapping.Options
	VIPs    registry.VIPs

	// Registerer takes the metrics of the source, and names the source. Default: none.
	Registerer prometheus.Registerer
}

// The defaults. Clients of Nacos register anew within 15 s of its return.
const (
	defaultInterval  = 2 * time.Second
	defaultDelay     = time.Second
	maxDelay         = 10 * time.Second
	defaultResync    = 10 * time.Minute
	defaultHold      = 2 * time.Minute
	defaultKeepEmpty = 24 * time.Hour
)

// watcher is what the source reads by.
type watcher interface {
	Watch(ctx context.Context, w client.Watched, to client.Listener) error
}

// Source is a sources.Source of a Nacos. Between runs it keeps its counters.
type Source struct {
	settings Settings
	address  client.Address
	watcher  watcher
	mapper   *mapping.Mapper
	counts   *counts
}

var _ sources.Source = (*Source)(nil)

// New returns a source of the Nacos at address. An error begins with the key at fault.
func New(address string, settings Settings) (*Source, error) {
	a, err := client.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if err := settings.complete(a); err != nil {
		return nil, err
	}
	secure, err := settings.TLS.Dialer()
	if err != nil {
		return nil, fmt.Errorf("tlsSettings: %w", err)
	}
	m, err := mapping.New(settings.Mapping, a.NamespaceName(), settings.VIPs)
	if err != nil {
		return nil, err
	}
	return &Source{settings: settings, address: a, watcher: client.New(a, secure), mapper: m, counts: newCounts()}, nil
}

// complete checks the settings and fills in the defaults.
func (s *Settings) complete(a client.Address) error {
	if err := cmp.Or(registry.CheckPatterns("services", s.Services), registry.CheckPatterns("skip", s.Skip)); err != nil {
		return err
	}
	if len(s.Groups) == 0 {
		s.Groups = []string{a.Group}
	}
	if slices.Contains(s.Groups, "") {
		return fmt.Errorf("groups: one has no name")
	}
	s.Groups = slices.Compact(slices.Sorted(slices.Values(s.Groups)))
	return cmp.Or(
		registry.Time("interval", &s.Interval, defaultInterval, time.Millisecond, time.Minute),
		registry.Time("delay", &s.Delay, defaultDelay, time.Millisecond, maxDelay),
		registry.Time("resync", &s.Resync, defaultResync, time.Second, 24*time.Hour),
		registry.Time("hold", &s.Hold, defaultHold, time.Millisecond, 24*time.Hour),
		registry.Time("keepEmpty", &s.KeepEmpty, defaultKeepEmpty, time.Millisecond, 365*24*time.Hour),
	)
}

// dubboPrefixes are what the names of services begin with that Dubbo registers.
var dubboPrefixes = []string{"providers:", "consumers:", "routers:", "configurators:"}

func isDubboName(name string) bool {
	return slices.ContainsFunc(dubboPrefixes, func(d string) bool { return strings.HasPrefix(name, d) })
}

// selects reports whether a service is to be read.
func (s *Settings) selects(name string) bool {
	return !isDubboName(name) && registry.Selection{Wanted: s.Services, Skipped: s.Skip}.Has(name)
}

// isDubboInstance reports whether an instance is one of an application of Dubbo 3, and not one of a service that calls it, as Spring
// Cloud's are.
func isDubboInstance(i client.Instance) bool {
	return i.Metadata["dubbo.metadata.revision"] != "" || i.Metadata["dubbo.endpoints"] != ""
}
