// Package eureka reads the instances that are registered in a Eureka. README.md has its behaviour in each situation.
//
// It publishes one group for each host, see mapping.ID. Package wire decodes answers, and mapping makes ServiceEntries;
// they are pure. Here, client.go reads the servers, run.go polls one at a time, and state.go decides which instances
// are served.
package eureka

import (
	"cmp"

	"tributary/sources"
	"tributary/sources/eureka/mapping"
	"tributary/sources/registry"
)

// Settings are the options of a Eureka source. Zero values stand for the defaults.
type Settings struct {
	registry.PollSettings

	// Apps are the applications to read, Skip those to leave out: names or patterns with *, in any case. Default: all.
	Apps, Skip []string
	Mapping    mapping.Options
}

// Source is a sources.Source of a Eureka. Between runs it keeps its counters.
type Source struct {
	settings Settings
	servers  serverAPI
	mapper   *mapping.Mapper
	counts   *registry.PollCounts
}

var _ sources.Source = (*Source)(nil)

func newSource(settings Settings, servers serverAPI, mapper *mapping.Mapper) *Source {
	return &Source{settings, servers, mapper, registry.NewPollCounts("tributary_eureka_")}
}

// New returns a source of the Eureka at address. An error begins with the key at fault.
func New(address string, settings Settings) (*Source, error) {
	servers, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	err = cmp.Or(registry.CheckPatterns("apps", settings.Apps), registry.CheckPatterns("skip", settings.Skip))
	if err != nil {
		return nil, err
	}
	reader, err := settings.Client(servers)
	if err != nil {
		return nil, err
	}
	mapper, err := mapping.New(settings.Mapping, settings.VIPs)
	return newSource(settings, serverClient{reader}, mapper), err
}

// selects reports whether an application is to be read.
func (s Settings) selects(application string) bool {
	return registry.Selection{Wanted: s.Apps, Skipped: s.Skip, AnyCase: true}.Has(application)
}
