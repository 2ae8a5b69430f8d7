package dubbo

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"tributary/sources/consul"
	registered "tributary/sources/dubbo/consul"
	"tributary/sources/dubbo/metadata"
)

// The schemes of addresses of Consul, of which the parameter kind says Kind.
const (
	ConsulScheme       = consul.Scheme
	ConsulSecureScheme = consul.SecureScheme
)

// consulPlace is that of interfaces in a Consul, for people.
const consulPlace = "consul service "

// NewConsul returns a source of the registry in the Consul at address, which is read as reading says: its Services, Skip, Tags, Grace,
// Mapping and VIPs do not count. Of settings, Resync, Hold, Grace and TLS do not. An error begins with the key at fault.
func NewConsul(address string, reading consul.Settings, settings Settings) (*Source, error) {
	at, err := consulAddress(address)
	if err != nil {
		return nil, err
	}
	if err := settings.complete(); err != nil {
		return nil, err
	}
	settings.Grace = settings.KeepEmpty // Consul forgets what is empty: there nothing is removed
	reading.Services, reading.Skip, reading.Tags, reading.Grace = nil, nil, nil, 0
	reading.Selection = fmt.Sprint(settings.RegisterMode, settings.Interfaces, settings.SkipInterfaces, settings.Applications,
		settings.SkipApplications)
	var levels registered.Levels
	if settings.RegisterMode != modeInstance {
		levels.Interfaces = settings.serves
	}
	if settings.RegisterMode != modeInterface {
		levels.Applications = settings.reads
	}
	r, err := registered.New(at, reading, levels)
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

// consulAddress returns an address as Consul's source takes it: of the parameters, of which Dubbo's users give theirs as well, only
// Consul's.
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
