// Package consulkv keeps mesh configuration in the key-value store of Consul: a source that watches a prefix, and a
// config store that writes to it with check-and-set.
//
// The group of a resource is its key in the store. See README.md for the layout and for what happens in which situation.
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
	// Wait is how long a blocking query waits for news. Default: 5m.
	Wait time.Duration
	// ResetHold is how long what Consul has no more stays after it lost its data, from the first key on that is written then.
	// Default: 5m.
	ResetHold time.Duration
	// Registerer takes the metrics of a source, and names the source. Default: none.
	Registerer prometheus.Registerer
}

// place is a prefix in a Consul, and how to read what is there.
type place struct {
	client    *dial.Client
	prefix    string // ends with a slash
	shown     string // what messages and origins begin with: "consul-kv 127.0.0.1:8500"
	decode    resource.Options
	wait      time.Duration
	resetHold time.Duration

	newBackOff func() backoff.BackOff
	pulseEvery time.Duration // how often Consul is asked whether it has a leader
	gap        time.Duration // between reads: a prefix under steady change is not read without end
}

// newPlace makes the place that an address names. Errors begin with the key or variable at fault.
func newPlace(address string, s Settings) (*place, error) {
	a, err := dial.Parse(Scheme, address)
	if err != nil {
		return nil, err
	}
	prefix := strings.Trim(a.Path, "/")
	switch {
	case prefix == "":
		return nil, fmt.Errorf("address: %q: the prefix of the keys is missing; want %s://host:port/prefix", address, Scheme)
	case strings.Contains(prefix, "//"):
		return nil, fmt.Errorf("address: %q: an element of the prefix is empty", address)
	}
	if err := cmp.Or(
		registry.Time("wait", &s.Wait, 5*time.Minute, time.Second, 10*time.Minute), // Consul's own limit
		registry.Time("resetHold", &s.ResetHold, 5*time.Minute, time.Millisecond, 24*time.Hour),
	); err != nil {
		return nil, err
	}
	p := &place{
		prefix: prefix + "/", shown: Scheme + " " + a.String(), wait: s.Wait, resetHold: s.ResetHold,
		gap: 100 * time.Millisecond, pulseEvery: 5 * time.Second,
	}
	p.newBackOff = func() backoff.BackOff {
		return backoff.NewExponentialBackOff(backoff.WithInitialInterval(500*time.Millisecond),
			backoff.WithMaxInterval(30*time.Second), backoff.WithMaxElapsedTime(0))
	}
	if p.decode, err = s.Options(); err != nil {
		return nil, err
	}
	if p.client, err = dial.New(a, s.Settings); err != nil {
		return nil, err
	}
	return p, nil
}

// filtered says that the token sees only part of the keys. What it does not see has not been deleted.
func (p *place) filtered(format string) error {
	return &dial.Error{Failure: dial.Failure{Kind: dial.Denied}, Err: fmt.Errorf(format, p.prefix)}
}

// partly is said where Consul says so itself.
const partly = "the token sees only part of the keys under %s"

// stateOf is how a source or store is after err, and what there is to say about it.
func (p *place) stateOf(err error) sources.Health {
	h := sources.Health{State: dial.Classify(err).State(), Message: fmt.Sprintf("%s: read %s: %v", p.shown, p.prefix, err)}
	if h.State == sources.Denied {
		h.Message += fmt.Sprintf(`; it needs key_prefix "%s" { policy = "read" }`, p.prefix)
	}
	return h
}
