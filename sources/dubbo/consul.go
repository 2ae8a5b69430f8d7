package dubbo

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"tributary/sources/consul"
	dubboconsul "tributary/sources/dubbo/consul"
	"tributary/sources/dubbo/metadata"
)

// The schemes of Consul's addresses. For this source their parameter kind is Kind.
const (
	ConsulScheme       = consul.Scheme
	ConsulSecureScheme = consul.SecureScheme
)

// consulPlace precedes the name of an interface in messages.
const consulPlace = "consul service "

// NewConsul returns a source of the registry in the Consul at address. reading are the settings of Consul's source; its Services, Skip,
// Tags, Grace, Mapping and VIPs are ignored, and so are Resync, Hold, Grace and TLS of settings. An error begins with the key at fault.
func NewConsul(address string, reading consul.Settings, settings Settings) (*Source, error) {
	at, err := consulAddress(address)
	if err != nil {
		return nil, err
	}
	if err := settings.complete(); err != nil {
		return nil, err
	}
	settings.Grace = settings.KeepEmpty // Consul forgets empty services: an interface is never removed
	reading.Services, reading.Skip, reading.Tags, reading.Grace = nil, nil, nil, 0
	reading.Selection = fmt.Sprint(settings.RegisterMode, settings.Interfaces, settings.SkipInterfaces, settings.Applications,
		settings.SkipApplications)
	var filter dubboconsul.Filter
	if settings.RegisterMode != modeInstance {
		filter.Interfaces = settings.serves
	}
	if settings.RegisterMode != modeInterface {
		filter.Applications = settings.reads
	}
	r, err := dubboconsul.New(at, reading, filter)
	if err != nil {
		return nil, err
	}
	source, err := newSource(r, consulPlace, settings)
	if err != nil {
		return nil, err
	}
	source.asker = metadata.New()
	return source, nil
}

// consulAddress returns an address for Consul's source: it drops all parameters but Consul's.
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
