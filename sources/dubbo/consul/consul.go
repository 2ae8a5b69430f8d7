// Package consul reads what Dubbo's providers register in a Consul: a service for each interface, with the tag dubbo, the URL in its meta,
// and the parameters of the URL as tags; and one for each application of Dubbo 3, with the metadata of instances as tags, and neither that
// tag nor meta. consul.go says what these are, and is pure: no I/O, no clock. registry.go follows Consul.
//
// Forms are those of Dubbo for Java 2.7.23, 3.2.19 and 3.3.6, as observed, and of dubbo-go 1.5.6, as in its code, which is the last one
// that registers in Consul.
package consul

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/consul/api"

	"tributary/internal/names"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
)

// Tag is the one that all interfaces have, and nothing else.
const Tag = "dubbo"

// metaURL is the key of the URL in the meta of a service.
const metaURL = "url"

// Registered returns what an instance of the service of an interface registers.
func Registered(iface string, e *api.ServiceEntry) registry.Registered {
	u, err := urlOf(iface, e)
	if err != nil {
		return registry.Registered{Err: fmt.Errorf("instance %s on node %s: %w", provider.Shorten(e.Service.ID), provider.Shorten(e.Node.Node),
			err)}
	}
	// The tags have the parameters as they are, while in the URL dubbo-go escapes them and Java does not.
	maps.Copy(u.Params, params(e.Service.Tags))
	return registry.Registered{URL: u}
}

// urlOf returns the URL in the meta. Consul takes no meta of more than 512 characters; for who leaves it out then the tags and the address
// that the service has in Consul are a URL as well.
func urlOf(iface string, e *api.ServiceEntry) (provider.URL, error) {
	if text := e.Service.Meta[metaURL]; text != "" {
		return provider.ParseURL(text)
	}
	said := params(e.Service.Tags)
	return provider.URL{
		Protocol: strings.ToLower(cmp.Or(said["protocol"], "dubbo")), Host: names.Host(cmp.Or(e.Service.Address, e.Node.Address)),
		Port: e.Service.Port,
		Path: cmp.Or(strings.TrimPrefix(said["path"], "/"), iface), Params: map[string]string{"interface": iface},
	}, nil
}

// Instance returns the instance of an application that an instance of its service is; ok is false if it is not Dubbo's. Its metadata are
// tags.
func Instance(application string, e *api.ServiceEntry) (i provider.Instance, ok bool, err error) {
	host := cmp.Or(e.Service.Address, e.Node.Address)
	i, ok, err = provider.NewInstance(application, host, e.Service.Port, params(e.Service.Tags))
	if !ok {
		i.Host, i.Port = names.Host(host), e.Service.Port
	}
	return i, ok, err
}

// params are the tags of the form key=value.
func params(tags []string) map[string]string {
	all := map[string]string{}
	for _, tag := range tags {
		if key, value, ok := strings.Cut(tag, "="); ok && key != "" {
			all[key] = value
		}
	}
	return all
}

// State is what the checks of an instance say of it.
type State int

// The states.
const (
	Serving State = iota // it takes calls
	Silent               // its agent has not heard of it since the agent began, or since it registered: that proves nothing
	Failing
)

// StateOf returns the state of an instance. Dubbo has Consul told every few seconds that an instance lives, and when that was not heard for
// a while Consul says so in the output of its check. An agent that was away for longer begins with a failing check that says nothing.
func StateOf(e *api.ServiceEntry) State {
	switch e.Checks.AggregatedStatus() {
	case api.HealthPassing, api.HealthWarning:
		return Serving
	}
	state := Failing
	for _, c := range e.Checks {
		switch {
		case c.Status == api.HealthPassing || c.Status == api.HealthWarning:
		case c.Type == "ttl" && c.ServiceID != "" && c.Output == "":
			state = Silent
		default:
			return Failing
		}
	}
	return state
}
