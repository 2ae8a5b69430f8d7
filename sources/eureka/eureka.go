// Package eureka reads the instances that are registered in a Eureka.
//
// It publishes one group for each host, see mapping.ID. README.md says what it does in which situation.
//
// Package wire decodes answers, view follows a server's listing, and mapping makes ServiceEntries; they are pure. Package client asks
// servers. Here, follow.go follows one of several servers, state.go decides what a listing proves, confirm.go asks the servers about
// instances that would go, and run.go publishes what the machine of package registry decides.
package eureka

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/adsc"
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
	// Apps are the applications to read, Skip those to leave out: names or patterns with *, in any case. Default: all, none.
	Apps, Skip []string
	// Interval is how often changes are read. Default: 5s.
	Interval time.Duration
	// Resync is how often everything is read again, and the servers compared. Default: 10m.
	Resync time.Duration
	// Hold is how long unlisted instances stay while nothing proves that they have gone. Default: 6m.
	Hold time.Duration
	// KeepEmpty is how long a service without instances stays, without endpoints. Default: 24h.
	KeepEmpty time.Duration

	// CredentialsFile has user:password. Default: those in the address.
	CredentialsFile string
	TLS             *adsc.TLS

	// Mapping are the options of the objects that are made of instances. VIPs gives services virtual addresses; nil for none.
	Mapping mapping.Options
	VIPs    registry.VIPs

	// Registerer takes the metrics of the source, with its label. Default: none.
	Registerer prometheus.Registerer
}

// The defaults. Clients whose server does not answer try again after five minutes at the latest, and servers' answers are up to half a
// minute old.
const (
	defaultInterval  = 5 * time.Second
	defaultResync    = 10 * time.Minute
	defaultHold      = 6 * time.Minute
	defaultKeepEmpty = 24 * time.Hour
)

// Source is a sources.Source of a Eureka. Between runs it keeps its counters.
type Source struct {
	settings Settings
	client   *client.Client
	mapper   *mapping.Mapper
	counts   *counts
}

var _ sources.Source = (*Source)(nil)

// New returns a source of the Eureka at address. An error begins with the key at fault.
func New(address string, settings Settings) (*Source, error) {
	a, err := client.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if err := settings.complete(); err != nil {
		return nil, err
	}
	if a.Secure {
		var secure adsc.TLS
		if settings.TLS != nil {
			secure = *settings.TLS
		}
		secure.Mode = cmp.Or(secure.Mode, adsc.TLSSimple)
		settings.TLS = &secure
	}
	if a.Secure && !settings.TLS.Secure() {
		return nil, fmt.Errorf("tlsSettings: mode: the address asks for TLS, got %q", settings.TLS.Mode)
	}
	secure, err := settings.TLS.Dialer()
	if err != nil {
		return nil, fmt.Errorf("tlsSettings: %w", err)
	}
	if settings.CredentialsFile != "" && a.User != "" {
		return nil, fmt.Errorf("credentialsFile: the address has a user, too")
	}
	m, err := mapping.New(settings.Mapping, settings.VIPs)
	if err != nil {
		return nil, err
	}
	c := client.New(a, settings.CredentialsFile, secure)
	return &Source{settings: settings, client: c, mapper: m, counts: newCounts()}, c.CheckCredentials()
}

// complete checks the settings and fills in the defaults.
func (s *Settings) complete() error {
	if err := cmp.Or(registry.CheckPatterns("apps", s.Apps), registry.CheckPatterns("skip", s.Skip)); err != nil {
		return err
	}
	return cmp.Or(
		registry.Time("interval", &s.Interval, defaultInterval, time.Millisecond, time.Minute),
		registry.Time("resync", &s.Resync, defaultResync, 10*time.Millisecond, 24*time.Hour),
		registry.Time("hold", &s.Hold, defaultHold, time.Millisecond, 24*time.Hour),
		registry.Time("keepEmpty", &s.KeepEmpty, defaultKeepEmpty, time.Millisecond, 365*24*time.Hour),
	)
}

func upper(all []string) []string {
	all = slices.Clone(all)
	for n := range all {
		all[n] = strings.ToUpper(all[n])
	}
	return all
}

// selects reports whether an application is to be read.
func (s Settings) selects(app string) bool {
	return registry.Selection{Wanted: upper(s.Apps), Skipped: upper(s.Skip)}.Has(strings.ToUpper(app))
}
