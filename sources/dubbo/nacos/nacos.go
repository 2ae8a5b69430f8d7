// Package nacos reads the registrations of Dubbo's providers in a Nacos.
package nacos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/provider"
	"tributary/sources/nacos/client"
)

// Scheme is the scheme of Nacos' addresses.
const Scheme = client.Scheme

// Address is the address of a registry, see package client.
type Address = client.Address

// ParseAddress parses an address.
func ParseAddress(address string) (Address, error) { return client.ParseAddress(address) }

// Interval is how often the names of services are listed.
const Interval = 2 * time.Second

// Registry is a Nacos with registrations of Dubbo's providers.
type Registry struct {
	client   *client.Client
	group    string
	interval time.Duration
	resync   time.Duration
}

var _ backend.Registry = (*Registry)(nil)

// New returns the registry at an address.
func New(a Address, config client.TLS, interval, resync time.Duration) *Registry {
	return &Registry{client: client.New(a, config), group: a.Group, interval: interval, resync: resync}
}

// Watch implements backend.Registry.
func (r *Registry) Watch(ctx context.Context, target backend.Listener, wanted backend.Wanted) error {
	return r.client.Watch(ctx, client.Watched{
		Groups: []string{r.group}, Interval: r.interval, Resync: r.resync,
		Selects: func(_, name string) bool {
			part := partOf(name)
			return part.Category == "" || read(part.Category) && part.Interface != "" &&
				(part.Category != backend.Consumers || wanted.Consumers)
		},
	}, &listener{target})
}

func read(category backend.Category) bool {
	return category == backend.Providers || category == backend.Configurators || category == backend.Consumers
}

// partOf returns the part that a service named category:interface:version:group is. For a service of an application it
// is empty. Routers are not read.
func partOf(name string) backend.Part {
	category, rest, _ := strings.Cut(name, ":")
	switch category {
	case string(backend.Providers), string(backend.Configurators), string(backend.Consumers), "routers":
		iface, _, _ := strings.Cut(rest, ":")
		return backend.Part{Interface: iface, Category: backend.Category(category), Node: name}
	}
	return backend.Part{}
}

// Metadata implements backend.Registry. dubbo-go also uses another name.
func (r *Registry) Metadata(ctx context.Context, application, revision string) ([]byte, error) {
	for _, place := range [][2]string{{application, revision}, {application + ":" + revision, client.DefaultGroup}} {
		text, err := r.client.Config(ctx, place[0], place[1])
		if err == nil && strings.HasPrefix(strings.TrimSpace(text), "{") {
			return []byte(text), nil
		}
		if err != nil && !errors.Is(err, client.ErrAbsent) {
			return nil, explain(err)
		}
	}
	return nil, backend.ErrAbsent
}

// mapping is the group of the configuration that has the applications of each interface.
const mapping = "mapping"

// Mapped implements backend.Registry.
func (r *Registry) Mapped(ctx context.Context) (map[string][]string, error) {
	names, err := r.client.Configs(ctx, mapping)
	if err != nil {
		return nil, explain(err)
	}
	var mappings backend.Mapping
	for _, name := range names {
		applications, err := r.client.Config(ctx, name, mapping)
		if err != nil && !errors.Is(err, client.ErrAbsent) && !errors.Is(err, client.ErrDenied) {
			return nil, err
		}
		if err := mappings.Add("Nacos' configuration of group "+mapping, name, applications); err != nil {
			return nil, err
		}
	}
	return mappings.ByApplication(), nil
}

// explain translates an error of the client.
func explain(err error) error {
	if errors.Is(err, client.ErrDenied) {
		return fmt.Errorf("%w: %w", backend.ErrDenied, err)
	}
	return err
}

// listener is the client.Listener that turns services into parts and applications.
type listener struct{ to backend.Listener }

func (l *listener) Connection(err error) {
	connection := backend.Connection{Up: err == nil, Fresh: true}
	if err != nil {
		connection.Denied, connection.Message = errors.Is(err, client.ErrDenied), err.Error()
	}
	l.to.Connection(connection)
}

func (l *listener) Services(_ string, names []string, err error) {
	if err != nil {
		err = explain(err)
		l.to.Parts(nil, err)
		l.to.Applications(nil, err)
		return
	}
	var parts []backend.Part
	var applications []string
	for _, name := range names {
		switch part := partOf(name); {
		case part.Category == "":
			applications = append(applications, name)
		case read(part.Category):
			parts = append(parts, part)
		}
	}
	l.to.Parts(parts, nil)
	l.to.Applications(applications, nil)
}

func (l *listener) Instances(_, name string, instances []client.Instance, warnings []string, err error) {
	part := partOf(name)
	instances = slices.DeleteFunc(instances, func(i client.Instance) bool {
		return part.Category != backend.Providers && part.Category != "" && (!i.Healthy || off(i))
	})
	switch {
	case part.Category == "":
		l.application(name, instances, err)
	case err != nil:
		l.to.Registered(part, nil, explain(err))
	default:
		urls := registrationsOf(part.Interface, instances)
		for _, w := range warnings {
			urls = append(urls, backend.Registration{Err: errors.New(w)})
		}
		l.to.Registered(part, urls, nil)
	}
}

// off reports whether an instance is disabled in Nacos itself.
func off(i client.Instance) bool { return !i.Enabled || i.Weight <= 0 }

// registrationsOf returns the registrations of the instances of an interface's service: URLs with the metadata as
// parameters.
func registrationsOf(iface string, instances []client.Instance) (urls []backend.Registration) {
	for _, i := range instances {
		params := map[string]string{}
		maps.Copy(params, i.Metadata)
		if off(i) {
			params["disabled"] = "true"
		}
		u := provider.NewURL(iface, i.IP, i.Port, params)
		urls = append(urls, backend.Registration{URL: u, Failing: failing(i)})
	}
	return urls
}

// failing returns why Nacos wants no calls to an instance; empty if it is healthy.
func failing(i client.Instance) string {
	if i.Healthy {
		return ""
	}
	return "it is unhealthy"
}

// application delivers the instances of an application.
func (l *listener) application(name string, instances []client.Instance, err error) {
	if err != nil {
		l.to.Instances(name, nil, explain(err))
		return
	}
	claims := backend.Claims{}
	for _, i := range instances {
		instance, ok, err := provider.NewInstance(name, i.IP, i.Port, i.Metadata)
		instance.Off, instance.Failing = off(i), failing(i)
		claims.Add(net.JoinHostPort(i.IP, strconv.Itoa(i.Port)), i.Cluster,
			backend.Claim{Instance: instance, Dubbo: ok, Err: err})
	}
	claims.Deliver(l.to, name, nil)
}

func (l *listener) Healed(group, service string) { l.to.Healed(group + "@@" + service) }
