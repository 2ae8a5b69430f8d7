// Package eureka reads the instances that are registered in a Eureka. README.md has its behaviour in each situation.
//
// It publishes one group for each host, see mapping.ID. Package wire decodes answers, and mapping makes ServiceEntries;
// they are pure. Package client reads the servers. Here, run.go polls one server at a time, and state.go decides which
// instances are served.
package eureka

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/adsc"
	"tributary/internal/fetch"
	"tributary/sources"
	"tributary/sources/eureka/client"
	"tributary/sources/eureka/mapping"
	"tributary/sources/registry"
)

// The schemes of addresses of a Eureka.
const (
	Scheme       = client.Scheme
	SecureScheme = client.SecureScheme
)

// Settings are the options of a Eureka source. Zero values stand for the defaults.
type Settings struct {
	// Apps are the applications to read, Skip those to leave out: names or patterns with *, in any case. Default: all.
	Apps, Skip []string
	// Interval is the time between two polls. Default: 5s.
	Interval time.Duration
	// Resync is the time after which the source returns to the first servers of the address. Default: 10m.
	Resync time.Duration
	// Hold is how long unlisted instances stay without proof that they have gone. Default: 6m.
	Hold time.Duration
	// KeepEmpty is how long a service without instances stays, without endpoints. Default: 24h.
	KeepEmpty time.Duration

	// CredentialsFile has user:password. Default: the credentials in the address.
	CredentialsFile string
	TLS             *adsc.TLS

	// Mapping are the options of objects. VIPs gives services virtual addresses; nil for none.
	Mapping mapping.Options
	VIPs    registry.VIPs

	// Registerer takes the metrics of the source, with its label. Default: none.
	Registerer prometheus.Registerer
}

// Source is a sources.Source of a Eureka. Between runs it keeps its counters.
type Source struct {
	settings Settings
	servers  serverAPI
	mapper   *mapping.Mapper
	counts   *registry.PollCounts
	switches *sources.Counter // to another server
}

var _ sources.Source = (*Source)(nil)

func newSource(settings Settings, servers serverAPI, mapper *mapping.Mapper) *Source {
	switches := &sources.Counter{Name: "servers_total", Help: "Changes to another server."}
	return &Source{settings, servers, mapper, registry.NewPollCounts("tributary_eureka_", switches), switches}
}

// New returns a source of the Eureka at address. An error begins with the key at fault.
func New(address string, settings Settings) (*Source, error) {
	servers, err := client.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if err := settings.complete(); err != nil {
		return nil, err
	}
	reader, err := fetch.New(servers, settings.TLS, settings.CredentialsFile)
	if err != nil {
		return nil, err
	}
	mapper, err := mapping.New(settings.Mapping, settings.VIPs)
	return newSource(settings, client.Client{Client: reader}, mapper), err
}

// complete checks the settings and fills in the defaults.
func (s *Settings) complete() error {
	return cmp.Or(
		registry.CheckPatterns("apps", s.Apps), registry.CheckPatterns("skip", s.Skip),
		registry.PollTimes(&s.Interval, &s.Hold, &s.KeepEmpty),
		registry.Time("resync", &s.Resync, 10*time.Minute, 10*time.Millisecond, 24*time.Hour),
	)
}

// selects reports whether an application is to be read.
func (s Settings) selects(application string) bool {
	return registry.Selection{Wanted: s.Apps, Skipped: s.Skip, AnyCase: true}.Has(application)
}
