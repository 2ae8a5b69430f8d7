// Package consulkv stores mesh configuration in the key-value store of Consul: a source that watches a prefix, and a
// config store that writes to it with check-and-set.
//
// The group of a resource is its key in the store. README.md has the layout, and the behaviour in each situation.
//
// watch.go reads the prefix until an answer can be trusted. memory.go is pure, and judges the answers. run.go
// publishes. store.go is the config store, write.go its check-and-set, and document.go changes one document of a value.
package consulkv

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/prometheus/client_golang/prometheus"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/registry"
)

// The schemes of addresses of the key-value store.
const (
	Scheme       = "consul-kv"
	SecureScheme = "consul-kv+https"
)

// Settings are the options of a source or store. Zero values stand for the defaults.
type Settings struct {
	dial.Settings
	sources.Texts
	// Wait is the longest wait of a blocking query. Default: 5m.
	Wait time.Duration
	// ResetHold is the time that missing keys stay after Consul lost its data. It begins with the first key that is
	// written afterwards. Default: 5m.
	ResetHold time.Duration
	// Registerer registers the metrics of a source with its name. Default: none.
	Registerer prometheus.Registerer
}

// place is a prefix in a Consul, and the client that reads it.
type place struct {
	client    *dial.Client
	prefix    string // ends with a slash
	name      string // the beginning of messages and origins: "consul-kv 127.0.0.1:8500"
	decode    resource.Options
	wait      time.Duration
	resetHold time.Duration

	newBackOff    func() backoff.BackOff
	pulseInterval time.Duration // interval of requests for the contact to the leader
	minInterval   time.Duration // shortest time between reads of a prefix that changes all the time

	requestTimeout time.Duration // limit of a request, without the requested wait
}

// newPlace makes the place of an address. Errors begin with the key or variable at fault.
func newPlace(address string, settings Settings) (*place, error) {
	parsed, err := dial.Parse(Scheme, address)
	if err != nil {
		return nil, err
	}
	prefix := strings.Trim(parsed.Path, "/")
	switch {
	case prefix == "":
		return nil, fmt.Errorf("address: %q: the prefix of the keys is missing; want %s://host:port/prefix", address, Scheme)
	case strings.Contains(prefix, "//"):
		return nil, fmt.Errorf("address: %q: an element of the prefix is empty", address)
	}
	if err := cmp.Or(
		registry.Time("wait", &settings.Wait, 5*time.Minute, time.Second, 10*time.Minute), // Consul's own limit
		registry.Time("resetHold", &settings.ResetHold, 5*time.Minute, time.Millisecond, 24*time.Hour),
	); err != nil {
		return nil, err
	}
	place := &place{
		prefix:         prefix + "/",
		name:           Scheme + " " + parsed.String(),
		wait:           settings.Wait,
		resetHold:      settings.ResetHold,
		minInterval:    100 * time.Millisecond,
		pulseInterval:  5 * time.Second,
		requestTimeout: 10 * time.Second,
	}
	place.newBackOff = func() backoff.BackOff {
		return backoff.NewExponentialBackOff(backoff.WithInitialInterval(500*time.Millisecond),
			backoff.WithMaxInterval(30*time.Second), backoff.WithMaxElapsedTime(0))
	}
	if place.decode, err = settings.Options(); err != nil {
		return nil, err
	}
	if place.client, err = dial.New(parsed, settings.Settings); err != nil {
		return nil, err
	}
	return place, nil
}

// filtered returns the error that the token sees only a part of the keys: missing ones count as hidden.
func (p *place) filtered(format string) error {
	return &dial.Error{Failure: dial.Failure{Kind: dial.Denied}, Err: fmt.Errorf(format, p.prefix)}
}

// stateOf returns the state of a source or store after err, and its message.
func (p *place) stateOf(err error) sources.Health {
	health := sources.Health{
		State: dial.Classify(err).State(), Message: fmt.Sprintf("%s: read %s: %v", p.name, p.prefix, err),
	}
	if health.State == sources.Denied {
		health.Message += fmt.Sprintf(`; it needs key_prefix "%s" { policy = "read" }`, p.prefix)
	}
	return health
}
