package relay

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"

	"tributary/config"
	"tributary/resource"
	"tributary/server/debug"
	"tributary/server/envoy"
	"tributary/server/verify"
	"tributary/server/xds"
)

// newWatches makes those who verify the istiods and Envoys of a configuration.
func (r *Relay) newWatches(all []config.Verify, metrics prometheus.Registerer) (verify.Watches, error) {
	var watches verify.Watches
	for _, v := range all {
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute}}
		var peer verify.Peer = &verify.EnvoyPeer{Envoy: verify.Envoy{Where: v.Envoy, Client: client}, Expected: r.expectedDump}
		if v.Istiod != "" {
			peer = &verify.IstiodPeer{Istiod: verify.Istiod{URL: v.Istiod, Client: client}, Served: func() verify.Served {
				return verify.Served{Objects: slices.Collect(r.view.Snapshot().All()), Asked: asked(r.engine.Clients())}
			}}
		}
		watches = append(watches, &verify.Watch{Peer: peer, Every: time.Duration(v.Every), Log: r.log})
	}
	return watches, metrics.Register(watches)
}

var errWho = errors.New("what an Envoy may see depends on who it is, by the rules for access, and no client of this id is connected, or " +
	"several that may see different things")

// expected returns what an Envoy with this node should have now, with the resources in place of the dump, and what it rejects.
func (r *Relay) expected(ctx context.Context, node *corev3.Node, delta bool) (*verify.Expected, []xds.Served, error) {
	allowed, known := r.credentials.guard.AllowedTo(node.GetId())
	if !known {
		return nil, nil, errWho
	}
	served, onDemand, err := r.catalogs.resources(ctx, allowed, node, delta)
	if err != nil {
		return nil, nil, err
	}
	t := &verify.Expected{OnDemand: onDemand, Refusals: []verify.Refusal{}}
	said := r.refusals(node.GetId())
	if t.Connected = len(said) > 0; len(said) == 1 { // of several, it cannot be told which one it is
		t.Refusals = append(t.Refusals, said[0]...)
	}
	return t, served, nil
}

// expectedDump returns the same with the dump.
func (r *Relay) expectedDump(ctx context.Context, node *corev3.Node, delta bool) (*verify.Expected, error) {
	t, served, err := r.expected(ctx, node, delta)
	if err != nil {
		return nil, err
	}
	var dump bytes.Buffer
	err = debug.WriteDump(&dump, served, true)
	t.Dump = dump.Bytes()
	return t, err
}

// refusals returns what each Envoy that is connected and has an id rejects of what it was sent last.
func (r *Relay) refusals(id string) (all [][]verify.Refusal) {
	for c := range r.engine.EachClient() {
		if c.Node.GetId() != id || !slices.ContainsFunc(c.Types, func(t xds.TypeStatus) bool { return envoy.Serves(t.TypeURL) }) {
			continue
		}
		var of []verify.Refusal
		for _, t := range c.Types {
			for _, rejected := range t.Rejected {
				of = append(of, verify.Refusal{TypeURL: t.TypeURL, Resource: rejected.Name, Error: rejected.Error, Node: id, At: rejected.Since})
			}
		}
		all = append(all, of)
	}
	return all
}

// asked says which kinds clients ask for, as far as that is known.
func asked(clients []xds.ClientStatus) func(resource.Kind) bool {
	kinds := verify.Asked{}
	for _, c := range clients {
		for _, t := range c.Types {
			kinds.Client(c.Node.GetId(), t.TypeURL)
		}
	}
	return kinds.For()
}
