// Package consulkv keeps mesh configuration in the key-value store of Consul: a source that watches a prefix, and a
// config store that writes to it with check-and-set.
//
// The group of a resource is its key in the store. See README.md for the layout and for what happens in which situation.
package consulkv

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/prometheus/client_golang/prometheus"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/dial"
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

const (
	defaultWait      = 5 * time.Minute
	maxWait          = 10 * time.Minute // Consul's own limit
	defaultResetHold = 5 * time.Minute
	maxResetHold     = 24 * time.Hour
)

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
	p := &place{prefix: prefix + "/", shown: Scheme + " " + a.String(), wait: s.Wait, gap: 100 * time.Millisecond, pulseEvery: 5 * time.Second}
	p.newBackOff = func() backoff.BackOff {
		return backoff.NewExponentialBackOff(backoff.WithInitialInterval(500*time.Millisecond),
			backoff.WithMaxInterval(30*time.Second), backoff.WithMaxElapsedTime(0))
	}
	if s.Wait == 0 {
		p.wait = defaultWait
	}
	if p.wait < time.Second || p.wait > maxWait {
		return nil, fmt.Errorf("wait: want 1s to %s, got %s", maxWait, p.wait)
	}
	if p.resetHold = s.ResetHold; p.resetHold == 0 {
		p.resetHold = defaultResetHold
	}
	if p.resetHold < time.Millisecond || p.resetHold > maxResetHold {
		return nil, fmt.Errorf("resetHold: want 1ms to %s, got %s", maxResetHold, p.resetHold)
	}
	if p.decode, err = s.Options(); err != nil {
		return nil, err
	}
	if p.client, err = dial.New(a, s.Settings); err != nil {
		return nil, err
	}
	return p, nil
}

// FilteredError says that the token sees only part of the keys. What it does not see has not been deleted.
type FilteredError struct {
	prefix    string
	asked     bool // Consul did not say so, but was asked for the right to read what was there
	anonymous bool // no token was sent
}

// Error implements error.
func (e *FilteredError) Error() string {
	switch {
	case e.anonymous:
		return fmt.Sprintf("Permission denied: no token is sent, and without one not all that was under %s may be read", e.prefix)
	case e.asked:
		return fmt.Sprintf("Permission denied: the token may not read all that was under %s", e.prefix)
	default:
		return fmt.Sprintf("the token sees only part of the keys under %s", e.prefix)
	}
}

// errForeign says that what answered was not Consul, or not all that it answered arrived.
var errForeign = errors.New("something is missing in the answer, and it does not name an index and a leader: it is not Consul's, or a " +
	"proxy takes headers away")

// stateOf is how a source or store is after err, and what there is to say about it.
func (p *place) stateOf(err error) sources.Health {
	state := dial.Classify(err).State()
	if _, filtered := errors.AsType[*FilteredError](err); filtered {
		state = sources.Denied
	}
	h := sources.Health{State: state, Message: fmt.Sprintf("%s: read %s: %v", p.shown, p.prefix, err)}
	if state == sources.Denied {
		h.Message += fmt.Sprintf(`; it needs key_prefix "%s" { policy = "read" }`, p.prefix)
	}
	return h
}
