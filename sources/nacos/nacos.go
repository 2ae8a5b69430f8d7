// Package nacos reads services from a Nacos registry. Package dubbo reads Dubbo's registrations there.
//
// The published groups are group@@service. README.md describes the behaviour in each situation.
//
// Package client is the connection and follows a Nacos, and package mapping makes ServiceEntries; mapping is pure.
// Here, state.go has the listed services, and run.go listens to the client and publishes the results of package
// registry's machine.
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

// Scheme is the scheme of addresses of Nacos, and Kind the value of their parameter kind for this package.
const (
	Scheme = client.Scheme
	Kind   = "services"
)

// Settings are the options of a Nacos source. Zero values stand for the defaults.
type Settings struct {
	// Groups are those to read. Default: that of the address, DEFAULT_GROUP.
	Groups []string
	// Services are the names, or patterns with *, of services to read, and Skip of services to skip. Default: all, none.
	Services, Skip []string
	// Interval is the interval of listing the names of services. Default: 2s.
	Interval time.Duration
	// Delay is the time of collecting changes after a publish. Default: 1s.
	Delay time.Duration
	// Resync is the interval of reading each service again. Default: 10m.
	Resync time.Duration
	// Hold is the time that unlisted instances stay after an outage of Nacos, or after a start. Default: 2m.
	Hold time.Duration
	// KeepEmpty is the time that a service without instances stays, without endpoints. Default: 24h.
	KeepEmpty time.Duration

	TLS *adsc.TLS

	// Mapping configures the conversion of services, and VIPs gives them virtual addresses; may be nil.
	Mapping mapping.Options
	VIPs    registry.VIPs

	// Registerer registers the metrics of the source with its name. Default: none.
	Registerer prometheus.Registerer
}

// The defaults. Clients of Nacos register again within 15 s of its return.
const (
	defaultInterval  = 2 * time.Second
	defaultDelay     = time.Second
	maxDelay         = 10 * time.Second
	defaultResync    = 10 * time.Minute
	defaultHold      = 2 * time.Minute
	defaultKeepEmpty = 24 * time.Hour
)

// watcher reads a Nacos.
type watcher interface {
	Watch(ctx context.Context, w client.Watched, to client.Listener) error
}

// Source is a sources.Source of a Nacos. Its runs share the counters.
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
	parsed, err := client.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if err := settings.complete(parsed); err != nil {
		return nil, err
	}
	secure, err := settings.TLS.ConfigFunc()
	if err != nil {
		return nil, fmt.Errorf("tlsSettings: %w", err)
	}
	mapper, err := mapping.New(settings.Mapping, parsed.NamespaceName(), settings.VIPs)
	if err != nil {
		return nil, err
	}
	return &Source{
		settings: settings, address: parsed, watcher: client.New(parsed, secure), mapper: mapper, counts: newCounts(),
	}, nil
}

// complete checks the settings and fills in the defaults.
func (s *Settings) complete(address client.Address) error {
	if err := cmp.Or(registry.CheckPatterns("services", s.Services), registry.CheckPatterns("skip", s.Skip)); err != nil {
		return err
	}
	if len(s.Groups) == 0 {
		s.Groups = []string{address.Group}
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

// dubboPrefixes begin the names of services that Dubbo registers.
var dubboPrefixes = []string{"providers:", "consumers:", "routers:", "configurators:"}

func isDubboName(name string) bool {
	return slices.ContainsFunc(dubboPrefixes, func(d string) bool { return strings.HasPrefix(name, d) })
}

// selects reports whether a service is to be read.
func (s *Settings) selects(name string) bool {
	return !isDubboName(name) && registry.Selection{Wanted: s.Services, Skipped: s.Skip}.Has(name)
}

// isDubboInstance reports whether an instance is of an application of Dubbo 3, and not of a service that calls one, as
// Spring Cloud's are.
func isDubboInstance(i client.Instance) bool {
	return i.Metadata["dubbo.metadata.revision"] != "" || i.Metadata["dubbo.endpoints"] != ""
}
