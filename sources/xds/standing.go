package xds

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"tributary/adsc"
)

// Standing is how a source stands with its server.
type Standing struct {
	Server string       // that it is connected to; empty for none
	Node   *corev3.Node // as which it asks; it must not be modified
	Types  []TypeStanding
}

// TypeStanding is how it stands with a type that it asks for.
type TypeStanding struct {
	TypeURL string
	// Version is that of the last response; empty before, and where the server gives none.
	Version string
	Err     error // why that was rejected, in part or as a whole
	At      time.Time
}

// Standing returns how the source stands with its server; nil while it does not run. It is safe for concurrent use.
func (s *Source) Standing() *Standing { return s.standing.Load() }

// stand publishes how the run stands.
func (r *run) stand() {
	now := &Standing{Server: r.server, Node: r.node}
	for _, url := range r.asked {
		t := r.types[url].standing
		t.TypeURL = url
		now.Types = append(now.Types, t)
	}
	r.source.standing.Store(now)
}

// note takes down what became of a response.
func (t *typeState) note(resp *adsc.Response, err error) {
	t.standing.Version, t.standing.Err, t.standing.At = resp.Version, err, time.Now()
}
