// Package nacos reads what Dubbo's providers register in a Nacos.
package nacos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	"tributary/sources/nacos/client"
)

// Scheme is that of addresses of Nacos.
const Scheme = client.Scheme

// Address is where a registry is: see package client.
type Address = client.Address

// ParseAddress reads an address.
func ParseAddress(address string) (Address, error) { return client.ParseAddress(address) }

// Interval is how often the names of services are looked at.
const Interval = 2 * time.Second

// remembered is how long an interface is told of that Nacos does not list any more, which it does a minute after the last provider went.
const remembered = 25 * time.Hour

// Registry is a Nacos in which Dubbo's providers register.
type Registry struct {
	client   *client.Client
	group    string
	interval time.Duration
	resync   time.Duration
}

var _ registry.Registry = (*Registry)(nil)

// New returns the registry at an address.
func New(a Address, config client.TLS, interval, resync time.Duration) *Registry {
	return &Registry{client: client.New(a, config), group: a.Group, interval: interval, resync: resync}
}

// Watch implements registry.Registry.
func (r *Registry) Watch(ctx context.Context, to registry.Listener, wantsConsumers bool) error {
	l := newListener(to)
	read := func(category string) bool {
		return category == providers || category == configurators || category == consumers && wantsConsumers
	}
	return r.client.Watch(ctx, client.Watched{
		Groups: []string{r.group}, Interval: r.interval, Resync: r.resync,
		Selects: func(_, name string) bool {
			category, iface := partOf(name)
			return category == "" || read(category) && iface != ""
		},
	}, l)
}

// The categories of what is registered at interface level. Routers are not read.
const (
	providers     = "providers"
	configurators = "configurators"
	consumers     = "consumers"
)

// partOf returns of what interface a service is a part that is registered at interface level, as category:interface:version:group. Others, which are
// those of applications, have no category.
func partOf(name string) (category, iface string) {
	category, rest, _ := strings.Cut(name, ":")
	switch category {
	case providers, configurators, consumers, "routers":
		iface, _, _ = strings.Cut(rest, ":")
		return category, iface
	}
	return "", ""
}

// Metadata implements registry.Registry. dubbo-go has it under another name as well.
func (r *Registry) Metadata(ctx context.Context, application, revision string) ([]byte, error) {
	for _, at := range [][2]string{{application, revision}, {application + ":" + revision, client.DefaultGroup}} {
		text, err := r.client.Config(ctx, at[0], at[1])
		if err == nil && strings.HasPrefix(strings.TrimSpace(text), "{") {
			return []byte(text), nil
		}
		if err != nil && !errors.Is(err, client.ErrAbsent) {
			return nil, explain(err)
		}
	}
	return nil, registry.ErrAbsent
}

// mapping is the group of the configuration in which each interface has the applications that serve it.
const mapping = "mapping"

// Mapped implements registry.Registry.
func (r *Registry) Mapped(ctx context.Context) (map[string][]string, error) {
	names, err := r.client.Configs(ctx, mapping)
	if err != nil {
		return nil, explain(err)
	}
	all := registry.Mapping{}
	for _, name := range names {
		applications, err := r.client.Config(ctx, name, mapping)
		if err != nil && !errors.Is(err, client.ErrAbsent) && !errors.Is(err, client.ErrDenied) {
			return nil, err
		}
		all.Add(name, applications)
	}
	return all, nil
}

// explain says what an error of the client means.
func explain(err error) error {
	if errors.Is(err, client.ErrDenied) {
		return fmt.Errorf("%w: %w", registry.ErrDenied, err)
	}
	return err
}

// listener makes what the client tells of services what the source wants to know of providers. The client calls it from one goroutine at a time, but for
// Connection.
type listener struct {
	to registry.Listener

	mu         sync.Mutex
	session    int
	services   map[string]*service
	interfaces map[string]time.Time // and when they were listed last
}

func newListener(to registry.Listener) *listener {
	return &listener{to: to, services: map[string]*service{}, interfaces: map[string]time.Time{}}
}

// service is what is registered for one version and group of an interface, in one category.
type service struct {
	category, iface string

	session int // in which it was read
	read    bool
	all     []registry.Registered
}

// Connection implements client.Listener.
func (l *listener) Connection(err error) {
	c := registry.Connection{Up: err == nil, Fresh: true}
	if err != nil {
		c.Denied, c.Message = errors.Is(err, client.ErrDenied), err.Error()
	} else {
		l.mu.Lock()
		l.session++
		l.mu.Unlock()
	}
	l.to.Connection(c)
}

// Services implements client.Listener.
func (l *listener) Services(_ string, names []string, err error) {
	if err != nil {
		err = explain(err)
		l.to.Interfaces(nil, err)
		l.to.Applications(nil, err)
		return
	}
	interfaces, applications := l.note(names, time.Now())
	l.to.Interfaces(interfaces, nil)
	l.to.Applications(applications, nil)
	for _, name := range interfaces { // one may have a service less, or none
		l.tell(configurators, name)
		l.tell(consumers, name)
		l.tell(providers, name)
	}
}

// note notes the names of all services.
func (l *listener) note(names []string, now time.Time) (interfaces, applications []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	there := map[string]bool{}
	for _, name := range names {
		category, iface := partOf(name)
		if category == "" {
			applications = append(applications, name)
			continue
		}
		there[name] = true
		l.interfaces[iface] = now
		if l.services[name] == nil {
			l.services[name] = &service{category: category, iface: iface}
		}
	}
	for name, listed := range l.interfaces {
		if now.Sub(listed) > remembered {
			delete(l.interfaces, name)
			continue
		}
		interfaces = append(interfaces, name)
	}
	for name, of := range l.services {
		// Of one that is not listed the client tells itself what it has, unless there is a new connection, which knows nothing of it.
		if _, known := l.interfaces[of.iface]; !known || !there[name] && of.session != l.session {
			delete(l.services, name)
		}
	}
	slices.Sort(interfaces)
	return interfaces, applications
}

// tell tells of a category of an interface, if all of it is known by this connection.
func (l *listener) tell(category, iface string) {
	l.mu.Lock()
	var all []registry.Registered
	for _, name := range slices.Sorted(maps.Keys(l.services)) {
		of := l.services[name]
		if of.category != category || of.iface != iface {
			continue
		}
		if !of.read || of.session != l.session {
			l.mu.Unlock()
			return
		}
		all = append(all, of.all...)
	}
	l.mu.Unlock()
	l.hand(category, iface, all, nil)
}

// hand hands on what there is of a category of an interface.
func (l *listener) hand(category, iface string, all []registry.Registered, err error) {
	switch category {
	case providers:
		l.to.Providers(iface, all, err)
	case configurators:
		l.to.Rules(iface, all, err)
	case consumers:
		l.to.Consumers(iface, all, err)
	}
}

// Instances implements client.Listener.
func (l *listener) Instances(_, name string, all []client.Instance, warnings []string, err error) {
	category, iface := partOf(name)
	all = slices.DeleteFunc(all, func(i client.Instance) bool { return !i.Healthy || category != providers && off(i) })
	switch {
	case category == "":
		l.application(name, all, err)
	case err != nil:
		l.hand(category, iface, nil, explain(err))
	default:
		l.mu.Lock()
		of := l.services[name]
		if of == nil {
			of = &service{category: category, iface: iface}
			l.services[name] = of
		}
		of.read, of.session, of.all = true, l.session, registered(iface, all)
		for _, w := range warnings {
			of.all = append(of.all, registry.Registered{Err: errors.New(w)})
		}
		l.mu.Unlock()
		l.tell(category, iface)
	}
}

// off reports whether somebody has an instance take no calls, in Nacos itself.
func off(i client.Instance) bool { return !i.Enabled || i.Weight <= 0 }

// registered returns what instances of a service of an interface register: URLs, whose parameters are the metadata.
func registered(iface string, all []client.Instance) (urls []registry.Registered) {
	for _, i := range all {
		u := provider.URL{
			Protocol: strings.ToLower(cmp.Or(i.Metadata["protocol"], "dubbo")), Host: i.IP, Port: i.Port,
			Path: cmp.Or(strings.TrimPrefix(i.Metadata["path"], "/"), iface), Params: maps.Clone(i.Metadata),
		}
		if u.Params == nil {
			u.Params = map[string]string{}
		}
		u.Params["interface"] = cmp.Or(u.Params["interface"], iface)
		if off(i) {
			u.Params["disabled"] = "true"
		}
		urls = append(urls, registry.Registered{URL: u})
	}
	return urls
}

// application tells of the instances of an application.
func (l *listener) application(name string, all []client.Instance, err error) {
	if err != nil {
		l.to.Instances(name, nil, explain(err))
		return
	}
	by := map[string]client.Instance{}
	for _, i := range all {
		by[net.JoinHostPort(i.IP, strconv.Itoa(i.Port))] = i
	}
	ids := slices.Sorted(maps.Keys(by))
	l.to.Instances(name, ids, nil)
	for _, id := range ids {
		i := by[id]
		one, ok, err := provider.NewInstance(name, i.IP, i.Port, i.Metadata)
		if !ok && err == nil {
			l.to.Instance(name, id, nil, nil)
			continue
		}
		l.to.Instance(name, id, &one, err)
	}
}

// Healed implements client.Listener.
func (l *listener) Healed(group, service string) { l.to.Healed(group + "@@" + service) }
