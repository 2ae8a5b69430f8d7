// Package dubbo reads services from the registries of Apache Dubbo.
//
// It publishes one group for each interface, with the services of all its groups and versions. Providers register at
// two levels, interfaces and (since Dubbo 3) applications, mostly at both; the source merges them. README.md has the
// behaviour in each situation.
//
// Package provider parses registrations, and package mapping makes ServiceEntries of providers; both are pure. Packages
// zookeeper, nacos and consul read a registry, behind the interface of package backend. Here, run.go listens to it,
// state.go stores its content, lookup.go finds the metadata of applications, and offers.go derives offers
// from it. The machine of package sources/registry decides which endpoints are served; sidecars.go has one for the
// hosts that applications call. publish.go passes the results to the sink, and status.go reports problems.
package dubbo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/adsc"
	"tributary/internal/words"
	"tributary/sources"
	"tributary/sources/consul"
	"tributary/sources/dubbo/backend"
	dubboconsul "tributary/sources/dubbo/consul"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/metadata"
	"tributary/sources/dubbo/nacos"
	"tributary/sources/dubbo/zookeeper"
	"tributary/sources/registry"
)

// The schemes of addresses: of ZooKeeper, Nacos and Consul. Kind is the value of their parameter kind.
const (
	Scheme             = zookeeper.Scheme
	NacosScheme        = nacos.Scheme
	ConsulScheme       = consul.Scheme
	ConsulSecureScheme = consul.SecureScheme
	Kind               = "dubbo"
)

// Settings are the options of a Dubbo source. Zero values stand for the defaults.
type Settings struct {
	// RegisterMode selects registrations to read: interface, instance, or all. Default: all.
	RegisterMode string
	// Interfaces are the interfaces to serve, at either level, and Applications the applications to read: names, or
	// patterns with *. Default: all.
	Interfaces, Applications []string
	// SkipInterfaces and SkipApplications are those to leave out.
	SkipInterfaces, SkipApplications []string
	// AskProviders: ask providers for metadata that only they have (Dubbo's default). Default: true.
	AskProviders *bool
	// Delay is the pause between two publications. Default: 1s, as Dubbo's delay-notification.
	Delay time.Duration
	// Resync is how often everything is read again and compared. Default: 10m.
	Resync time.Duration
	// Hold is the time that unlisted providers stay after an outage of the registry or after a start. Default: 2m, since
	// providers register again within seconds of the registry's return, or after half a minute at most.
	Hold time.Duration
	// KeepEmpty is how long a service without providers stays, without endpoints. Default: 24h.
	KeepEmpty time.Duration
	// Grace is the same for an interface that was removed from the registry. Default: 30s.
	Grace time.Duration
	// SidecarGrace is how long a Sidecar keeps a host that its application no longer calls. Default: 10m.
	SidecarGrace time.Duration

	TLS *adsc.TLS

	// Mapping are the options of the objects of services. VIPs gives services virtual addresses; nil for none.
	Mapping mapping.Options
	VIPs    registry.VIPs

	// Registerer takes the metrics of the source, with its label. Default: none.
	Registerer prometheus.Registerer
}

// The values of Settings.RegisterMode.
const (
	modeAll       = "all"
	modeInterface = "interface"
	modeInstance  = "instance"
)

// Source is a sources.Source of a Dubbo registry. Between runs it keeps its counters.
type Source struct {
	settings     Settings
	registry     backend.Registry
	mapper       *mapping.Mapper
	asker        asker
	place        string // precedes the name of an interface in messages
	counters     *counts
	confirmAfter time.Duration // before an instance is asked again if its answer named no revision
}

var _ sources.Source = (*Source)(nil)

// New returns a source of the registry at address. An error begins with the key at fault.
func New(address string, settings Settings) (*Source, error) {
	if err := settings.complete(); err != nil {
		return nil, err
	}
	dialer, err := settings.TLS.ConfigFunc()
	if err != nil {
		return nil, fmt.Errorf("tlsSettings: %w", err)
	}
	if strings.HasPrefix(address, NacosScheme+"://") {
		parsed, err := nacos.ParseAddress(address)
		if err != nil {
			return nil, err
		}
		settings.Grace = settings.KeepEmpty // Nacos forgets empty services: an interface is never removed
		registryClient := nacos.New(parsed, dialer, nacos.Interval, settings.Resync)
		return newSource(registryClient, parsed.Place(parsed.Group, ""), settings, metadata.New())
	}
	parsed, err := zookeeper.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	registryClient := zookeeper.New(parsed, dialer, settings.Resync)
	return newSource(registryClient, "zookeeper "+parsed.Root+"/"+parsed.Group+"/", settings, metadata.New())
}

// consulPlace precedes the name of an interface in messages.
const consulPlace = "consul service "

// NewConsul returns a source of the registry in the Consul at address. reading are the settings of Consul's source; its
// Services, Skip, Tags, Grace, Mapping and VIPs are ignored, and so are Resync, Hold, Grace and TLS of settings. An
// error begins with the key at fault.
func NewConsul(address string, reading consul.Settings, settings Settings) (*Source, error) {
	if err := settings.complete(); err != nil {
		return nil, err
	}
	settings.Grace = settings.KeepEmpty // Consul forgets empty services: an interface is never removed
	reading.Services, reading.Skip, reading.Tags, reading.Grace = nil, nil, nil, 0
	reading.Selection = fmt.Sprint(settings.RegisterMode, settings.Interfaces, settings.SkipInterfaces,
		settings.Applications, settings.SkipApplications)
	var filter dubboconsul.Filter
	if settings.RegisterMode != modeInstance {
		filter.Interfaces = settings.serves
	}
	if settings.RegisterMode != modeInterface {
		filter.Applications = settings.reads
	}
	registryClient, err := dubboconsul.New(address, reading, filter)
	if err != nil {
		return nil, err
	}
	return newSource(registryClient, consulPlace, settings, metadata.New())
}

func newSource(client backend.Registry, registryPlace string, settings Settings, asker asker) (*Source, error) {
	mapper, err := mapping.New(settings.Mapping, registryPlace, settings.VIPs)
	if err != nil {
		return nil, err
	}
	if settings.AskProviders != nil && !*settings.AskProviders {
		asker = nil
	}
	return &Source{
		settings: settings, registry: client, mapper: mapper, asker: asker, place: registryPlace,
		counters: newCounts(), confirmAfter: lastTry,
	}, nil
}

// keepsNotes reports whether the registry keeps the notes and the doubts for the next run itself.
func (s *Source) keepsNotes() bool { return s.place == consulPlace }

// Doubts returns warnings for options that are valid but probably mistaken; each begins with the key.
func Doubts(options mapping.Options) (doubts []string) {
	protocols := slices.Concat(mapping.Protocols(), []string{"https"})
	for _, protocol := range slices.Sorted(maps.Keys(options.ServicePorts)) {
		if guess := words.Nearest(protocol, protocols); guess != "" && !slices.Contains(protocols, protocol) {
			doubts = append(doubts, fmt.Sprintf("servicePorts: unknown Dubbo protocol %s; did you mean %s?", protocol, guess))
		}
	}
	return doubts
}

// complete checks the settings and fills in the defaults.
func (s *Settings) complete() error {
	if err := cmp.Or(
		registry.CheckPatterns("interfaces", s.Interfaces),
		registry.CheckPatterns("applications", s.Applications),
		registry.CheckPatterns("skipInterfaces", s.SkipInterfaces),
		registry.CheckPatterns("skipApplications", s.SkipApplications),
		registry.Time("delay", &s.Delay, time.Second, time.Millisecond, 10*time.Second),
		registry.Time("resync", &s.Resync, 10*time.Minute, time.Second, 24*time.Hour),
		registry.Time("hold", &s.Hold, 2*time.Minute, time.Millisecond, 24*time.Hour),
		registry.Time("keepEmpty", &s.KeepEmpty, 24*time.Hour, time.Millisecond, 365*24*time.Hour),
		registry.Time("grace", &s.Grace, 30*time.Second, time.Millisecond, 24*time.Hour),
		registry.Time("sidecars.grace", &s.SidecarGrace, 10*time.Minute, time.Millisecond, 365*24*time.Hour),
	); err != nil {
		return err
	}
	s.RegisterMode = cmp.Or(s.RegisterMode, modeAll)
	if !slices.Contains([]string{modeAll, modeInterface, modeInstance}, s.RegisterMode) {
		return fmt.Errorf("registerMode: want %s, %s or %s, got %q", modeAll, modeInterface, modeInstance, s.RegisterMode)
	}
	if s.Mapping.Sidecars != nil && s.RegisterMode == modeInstance {
		return fmt.Errorf("sidecars: consumers register at interface level, which registerMode %s does not read",
			modeInstance)
	}
	conflict := ""
	switch {
	case s.RegisterMode != modeInterface:
	case len(s.Applications) > 0:
		conflict = "applications"
	case len(s.SkipApplications) > 0:
		conflict = "skipApplications"
	case s.AskProviders != nil && *s.AskProviders:
		conflict = "askProviders"
	}
	if conflict != "" {
		return fmt.Errorf("%s: registerMode %s does not read applications", conflict, modeInterface)
	}
	return nil
}

// serves reports whether an interface is to be served.
func (s *Settings) serves(interfaceName string) bool {
	return registry.Selection{Wanted: s.Interfaces, Skipped: s.SkipInterfaces}.Has(interfaceName)
}

// reads reports whether the instances of an application are to be read.
func (s *Settings) reads(applicationName string) bool {
	return registry.Selection{Wanted: s.Applications, Skipped: s.SkipApplications}.Has(applicationName)
}
