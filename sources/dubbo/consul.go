package dubbo

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/absence"
	"tributary/sources/consul"
	consulmapping "tributary/sources/consul/mapping"
	registered "tributary/sources/dubbo/consul"
	"tributary/sources/dubbo/mapping"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
)

// The schemes of addresses of Consul, of which the parameter kind says Kind.
const (
	ConsulScheme       = consul.Scheme
	ConsulSecureScheme = consul.SecureScheme
)

// ConsulSettings are the options of a source of Dubbo's services in a Consul. Zero values stand for the defaults.
type ConsulSettings struct {
	// Reading says how Consul is read, and of which parts. Services and Skip are names of interfaces. Grace, Tags, Mapping and VIPs do not count.
	Reading consul.Settings
	// KeepEmpty is how long a service without providers stays, without endpoints. Default: 24h.
	KeepEmpty time.Duration

	// Mapping says what becomes of services, and VIPs gives them addresses of their own; nil for none.
	Mapping mapping.Options
	VIPs    mapping.VIPs
}

// NewConsul returns a source of Dubbo's services in the Consul at address. An error begins with the key at fault.
//
// It is Consul's own source, which decides what Consul's answers prove, with another mapping: in Consul an interface is a service as any other.
func NewConsul(address string, settings ConsulSettings) (*consul.Source, error) {
	at, err := consulAddress(address)
	if err != nil {
		return nil, err
	}
	m, err := mapping.New(settings.Mapping, settings.VIPs)
	if err != nil {
		return nil, err
	}
	reading := settings.Reading
	reading.Tags = []string{registered.Tag}
	reading.Grace = cmp.Or(settings.KeepEmpty, defaultKeepEmpty)
	source, err := consul.NewMapped(at, reading, newConsulMapper(m, reading.Grace, time.Now))
	if err != nil {
		return nil, ourKey(err)
	}
	return source, nil
}

// ourKey names the key of our settings where Consul's source has another one for it.
func ourKey(err error) error {
	key, rest, _ := strings.Cut(err.Error(), ": ")
	ours, ok := map[string]string{"services": "interfaces", "skip": "skipInterfaces", "grace": "keepEmpty"}[key]
	if !ok {
		return err
	}
	return fmt.Errorf("%s: %s", ours, rest)
}

// consulAddress returns an address as Consul's source takes it: of the parameters, of which Dubbo's users give theirs as well, only Consul's.
func consulAddress(address string) (string, error) {
	at, query, _ := strings.Cut(address, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", fmt.Errorf("address: its parameters: %w", err)
	}
	if values.Has("token") {
		return "", fmt.Errorf("address: %s: a token stands in the file that tokenFile names, or in CONSUL_HTTP_TOKEN", at)
	}
	maps.DeleteFunc(values, func(key string, _ []string) bool { return !slices.Contains([]string{"dc", "ns", "partition"}, key) })
	if len(values) > 0 {
		at += "?" + values.Encode()
	}
	return at, nil
}

// consulMapper is the consul.Mapper of Dubbo's services. Consul's source has decided what there is and what has gone: here nothing is in doubt.
type consulMapper struct {
	state *state
	keep  time.Duration // what has no provider is remembered
	now   func() time.Time

	warnings map[string][]string // by interface
}

var (
	_ consul.Mapper   = (*consulMapper)(nil)
	_ consul.Preparer = (*consulMapper)(nil)
)

func newConsulMapper(m *mapping.Mapper, keep time.Duration, now func() time.Time) *consulMapper {
	return &consulMapper{state: newState(m, "consul service ", func(string) bool { return true }), keep: keep, now: now, warnings: map[string][]string{}}
}

// Restore implements consul.Mapper.
func (m *consulMapper) Restore(rs []*resource.Resource) {
	all := mapping.Restore(rs)
	if len(all) > 0 { // all of one group, which is an interface
		m.state.restore(all[0].ID.Interface, all)
	}
}

// Names implements consul.Mapper. Which hosts there are is known only with the instances.
func (m *consulMapper) Names([]string) []string { return nil }

// Prepare implements consul.Preparer: it takes what is known of interfaces, and returns others that have another name now.
func (m *consulMapper) Prepare(all map[string][]consulmapping.Service) (again []string) {
	s := m.state
	for name, in := range all {
		if len(in) == 0 {
			s.discard(name)
			s.remember(name, nil)
			delete(m.warnings, name)
			continue
		}
		serving, silent := m.registeredIn(name, in)
		s.discard(name)
		s.interfaces[name] = &iface{parts: map[registry.Part]*part{}}
		for _, c := range []registry.Category{registry.Providers, registry.Configurators} {
			p := registry.Part{Interface: name, Category: c}
			s.interfaces[name].parts[p] = &part{}
			s.take(p, serving, nil)
		}
		m.warnings[name] = s.believe(name, m.now(), silent.judge, func(bool) time.Duration { return m.keep })
	}
	clear(s.dirty)
	s.rename()
	for name := range s.dirty {
		if _, now := all[name]; !now {
			again = append(again, name)
		}
	}
	clear(s.dirty)
	return again
}

// silent are the providers of an interface of whom nothing is heard, by what they would be if they took calls.
type silent []silentOne

type silentOne struct {
	provider.ID
	mapping.Endpoint
}

// judge says of an endpoint that is not served whether it is one of those of whom nothing is heard.
func (s silent) judge(id provider.ID, e mapping.Endpoint) absence.Judgement {
	if slices.ContainsFunc(s, func(one silentOne) bool { return one.ID == id && one.Endpoint.Compare(e) == 0 }) {
		return absence.Unreadable
	}
	return absence.Missing
}

// registeredIn returns what providers of an interface register that take calls, and what administrators do; and those of whom nothing is heard.
func (m *consulMapper) registeredIn(name string, in []consulmapping.Service) (serving []registry.Registered, unheard silent) {
	for _, part := range in {
		for _, e := range part.Entries {
			r, state := registered.Registered(name, e), registered.StateOf(e)
			_, rule := r.Configurator()
			if state == registered.Serving || state == registered.Silent && rule {
				serving = append(serving, r)
			}
			if p, ok, err := r.Provider(); state == registered.Silent && r.Err == nil && ok && err == nil {
				if e, ok, _ := m.state.mapper.Endpoint(p); ok {
					unheard = append(unheard, silentOne{m.state.mapper.ServiceOf(p.ID), e})
				}
			}
		}
	}
	return serving, unheard
}

// Service implements consul.Mapper, for what Prepare took.
func (m *consulMapper) Service(name string, _ []consulmapping.Service) (rs []*resource.Resource, rejects []sources.Reject, warnings []string) {
	c := m.state.content(name, m.warnings[name])
	return c.Resources, c.Rejects, c.Warnings
}
