// Package dubbo reads services from the registries of Apache Dubbo.
//
// It publishes one group for each interface, with the services of all its groups and versions. Providers register at two levels, interfaces
// and (since Dubbo 3) applications, mostly at both; they are merged. README.md says what it does in which situation.
//
// Package provider parses registrations, and package mapping makes ServiceEntries of providers; both are pure. Packages zookeeper, nacos
// and consul read a registry, behind the interface of package registry. Here, state.go holds the state of the registry, offers.go derives
// what it lists and unread.go what cannot be read, run.go listens to it, resolve.go looks up what instances of applications serve, and
// publish.go publishes what the machine of package sources/registry decides.
package dubbo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/adsc"
	"tributary/sources"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/metadata"
	"tributary/sources/dubbo/nacos"
	"tributary/sources/dubbo/registry"
	"tributary/sources/dubbo/zookeeper"
	core "tributary/sources/registry"
)

// Scheme is the scheme of ZooKeeper's addresses, NacosScheme that of Nacos' addresses. Their parameter kind may be Kind.
const (
	Scheme      = zookeeper.Scheme
	NacosScheme = nacos.Scheme
	Kind        = "dubbo"
)

// Settings are the options of a Dubbo source. Zero values stand for the defaults.
type Settings struct {
	// RegisterMode selects registrations to read: interface, instance, or all. Default: all.
	RegisterMode string
	// Interfaces are the interfaces to serve, at either level, and Applications the applications to read: names, or patterns with *.
	// Default: all.
	Interfaces, Applications []string
	// SkipInterfaces and SkipApplications are those to leave out.
	SkipInterfaces, SkipApplications []string
	// AskProviders: ask providers for metadata that only they have (Dubbo's default). Default: true.
	AskProviders *bool
	// Delay is the pause between two publications. Default: 1s, as Dubbo's delay-notification.
	Delay time.Duration
	// Resync is how often everything is read again and compared. Default: 10m.
	Resync time.Duration
	// Hold is how long unlisted providers stay after an outage of the registry or after a start. Default: 2m.
	Hold time.Duration
	// KeepEmpty is how long a service without providers stays, without endpoints. Default: 24h.
	KeepEmpty time.Duration
	// Grace is the same for an interface that was removed from the registry. Default: 30s.
	Grace time.Duration
	// SidecarGrace is how long a Sidecar keeps a host that its application no longer calls. Default: 10m.
	SidecarGrace time.Duration

	TLS *adsc.TLS

	// Mapping are the options of the objects that are made of services. VIPs gives services virtual addresses; nil for none.
	Mapping mapping.Options
	VIPs    core.VIPs

	// Registerer takes the metrics of the source, with its label. Default: none.
	Registerer prometheus.Registerer
}

// The defaults. Providers register again within seconds of the registry's return; the libraries retry after half a minute at most. A hold
// of two minutes is enough for both.
const (
	defaultDelay     = time.Second
	maxDelay         = 10 * time.Second
	defaultResync    = 10 * time.Minute
	defaultHold      = 2 * time.Minute
	defaultKeepEmpty = 24 * time.Hour
	defaultGrace     = 30 * time.Second
	defaultSidecar   = 10 * time.Minute
)

// The values of Settings.RegisterMode.
const (
	modeAll       = "all"
	modeInterface = "interface"
	modeInstance  = "instance"
)

// Source is a sources.Source of a Dubbo registry. Between runs it keeps its counters.
type Source struct {
	settings Settings
	registry registry.Registry
	mapper   *mapping.Mapper
	asker    asker
	place    string // precedes the name of an interface in messages
	counters *counts

	again time.Duration // after this time an instance is asked again if its answer named no revision
}

var _ sources.Source = (*Source)(nil)

// New returns a source of the registry at address. An error begins with the key at fault.
func New(address string, settings Settings) (*Source, error) {
	if err := settings.complete(); err != nil {
		return nil, err
	}
	secure, err := settings.TLS.Dialer()
	if err != nil {
		return nil, fmt.Errorf("tlsSettings: %w", err)
	}
	var of registry.Registry
	var place string
	if strings.HasPrefix(address, NacosScheme+"://") {
		a, err := nacos.ParseAddress(address)
		if err != nil {
			return nil, err
		}
		of, place = nacos.New(a, secure, nacos.Interval, settings.Resync), a.Place(a.Group, "")
		settings.Grace = settings.KeepEmpty // Nacos forgets empty services: an interface is never removed
	} else {
		a, err := zookeeper.ParseAddress(address)
		if err != nil {
			return nil, err
		}
		of, place = zookeeper.New(a, secure, settings.Resync), "zookeeper "+a.Root+"/"+a.Group+"/"
	}
	source, err := newSource(of, place, settings)
	if err != nil {
		return nil, err
	}
	source.asker = metadata.New()
	return source, nil
}

func newSource(r registry.Registry, place string, settings Settings) (*Source, error) {
	m, err := mapping.New(settings.Mapping, place, settings.VIPs)
	if err != nil {
		return nil, err
	}
	return &Source{settings: settings, registry: r, mapper: m, place: place, counters: newCounts(), again: lastTry},
		nil
}

// complete checks the settings and fills in the defaults.
func (s *Settings) complete() error {
	if err := cmp.Or(
		core.CheckPatterns("interfaces", s.Interfaces),
		core.CheckPatterns("applications", s.Applications),
		core.CheckPatterns("skipInterfaces", s.SkipInterfaces),
		core.CheckPatterns("skipApplications", s.SkipApplications),
	); err != nil {
		return err
	}
	if err := cmp.Or(
		core.Time("delay", &s.Delay, defaultDelay, time.Millisecond, maxDelay),
		core.Time("resync", &s.Resync, defaultResync, time.Second, 24*time.Hour),
		core.Time("hold", &s.Hold, defaultHold, time.Millisecond, 24*time.Hour),
		core.Time("keepEmpty", &s.KeepEmpty, defaultKeepEmpty, time.Millisecond, 365*24*time.Hour),
		core.Time("grace", &s.Grace, defaultGrace, time.Millisecond, 24*time.Hour),
		core.Time("sidecars.grace", &s.SidecarGrace, defaultSidecar, time.Millisecond, 365*24*time.Hour),
	); err != nil {
		return err
	}
	s.RegisterMode = cmp.Or(s.RegisterMode, modeAll)
	if !slices.Contains([]string{modeAll, modeInterface, modeInstance}, s.RegisterMode) {
		return fmt.Errorf("registerMode: want %s, %s or %s, got %q", modeAll, modeInterface, modeInstance, s.RegisterMode)
	}
	if s.Mapping.Sidecars != nil && s.RegisterMode == modeInstance {
		return fmt.Errorf("sidecars: consumers register at interface level, which registerMode %s does not read", modeInstance)
	}
	if s.RegisterMode != modeInterface {
		return nil
	}
	key := ""
	switch {
	case len(s.Applications) > 0:
		key = "applications"
	case len(s.SkipApplications) > 0:
		key = "skipApplications"
	case s.AskProviders != nil && *s.AskProviders:
		key = "askProviders"
	default:
		return nil
	}
	return fmt.Errorf("%s: registerMode %s does not read applications", key, modeInterface)
}

func (s *Settings) asks() bool { return s.AskProviders == nil || *s.AskProviders }

// serves reports whether an interface is to be served.
func (s *Settings) serves(iface string) bool {
	return core.Selection{Wanted: s.Interfaces, Skipped: s.SkipInterfaces}.Has(iface)
}

// reads reports whether the instances of an application are to be read.
func (s *Settings) reads(application string) bool {
	return core.Selection{Wanted: s.Applications, Skipped: s.SkipApplications}.Has(application)
}
