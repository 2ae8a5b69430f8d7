// Package consul reads the registrations of Dubbo's providers in a Consul: a service for each interface, with the tag
// dubbo, the URL in its meta, and the parameters of the URL as tags; and one for each application of Dubbo 3, with the
// metadata of instances as tags, without the tag dubbo and without meta. consul.go parses these and is pure: no I/O, no
// clock. registry.go follows Consul.
//
// The formats are those of Dubbo for Java 2.7.23, 3.2.19 and 3.3.6, as observed, and of the code of dubbo-go 1.5.6, the
// last one that registers in Consul.
package consul

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/consul/api"

	"tributary/internal/names"
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/provider"
)

// Tag is the tag of all services of interfaces, and of no others.
const Tag = "dubbo"

// metaURL is the key of the URL in the meta of a service.
const metaURL = "url"

// ParseRegistration returns the registration of an instance of an interface's service.
func ParseRegistration(iface string, entry *api.ServiceEntry) backend.Registration {
	url, err := urlOf(iface, entry)
	if err != nil {
		return backend.Registration{Err: fmt.Errorf("instance %s on node %s: %w", provider.Shorten(entry.Service.ID),
			provider.Shorten(entry.Node.Node),
			err)}
	}
	// The parameters in tags are never escaped; in the URL dubbo-go escapes them and Java does not.
	maps.Copy(url.Params, params(entry.Service.Tags))
	return backend.Registration{URL: url}
}

// urlOf returns the URL in the meta. Some leave it out if it exceeds the 512 characters that Consul allows: then it is
// made of the tags and the service's address in Consul.
func urlOf(iface string, entry *api.ServiceEntry) (provider.URL, error) {
	if text := entry.Service.Meta[metaURL]; text != "" {
		return provider.ParseURL(text)
	}
	return provider.NewURL(iface, names.Host(cmp.Or(entry.Service.Address, entry.Node.Address)), entry.Service.Port,
		params(entry.Service.Tags)), nil
}

// Instance returns the instance of an application, with tags as its metadata; ok is false if it is not Dubbo's.
func Instance(application string, serviceEntry *api.ServiceEntry) (i provider.Instance, ok bool, err error) {
	host := cmp.Or(serviceEntry.Service.Address, serviceEntry.Node.Address)
	i, ok, err = provider.NewInstance(application, host, serviceEntry.Service.Port, params(serviceEntry.Service.Tags))
	if !ok {
		i.Host, i.Port = names.Host(host), serviceEntry.Service.Port
	}
	return i, ok, err
}

// params returns the tags of the form key=value.
func params(tags []string) map[string]string {
	metadata := map[string]string{}
	for _, tag := range tags {
		if key, value, ok := strings.Cut(tag, "="); ok && key != "" {
			metadata[key] = value
		}
	}
	return metadata
}

// State is the state of an instance by its checks.
type State int

// The states.
const (
	Serving    State = iota // it takes calls
	Unverified              // without a heartbeat since its agent started, or since it registered: that proves no failure
	Failing
)

// StateOf returns the state of an instance. Dubbo sends a heartbeat every few seconds. If these stop, Consul writes
// that into the output of the check. A restarted agent begins with a failing check without output.
func StateOf(serviceEntry *api.ServiceEntry) State {
	switch serviceEntry.Checks.AggregatedStatus() {
	case api.HealthPassing, api.HealthWarning:
		return Serving
	}
	state := Failing
	for _, check := range serviceEntry.Checks {
		switch {
		case check.Status == api.HealthPassing || check.Status == api.HealthWarning:
		case check.Type == "ttl" && check.ServiceID != "" && check.Output == "":
			state = Unverified
		default:
			return Failing
		}
	}
	return state
}
