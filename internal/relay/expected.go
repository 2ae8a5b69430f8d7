package relay

import (
	"context"
	"errors"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"tributary/server/envoy"
	"tributary/server/verify"
	"tributary/server/xds"
)

// errUnknownRights reports that access rules decide by the client's identity, which only a connected client has.
var errUnknownRights = errors.New("access rules decide by the identity of a client, and no client with this node " +
	"ID is connected, or several that have different rights")

// expected returns the resources that an Envoy with this node should have now. The Expected has the other fields of the
// answer: its dump is empty, since the caller makes it from the resources.
func (r *Relay) expected(ctx context.Context, node *corev3.Node, delta bool) (*verify.Expected, []xds.Served, error) {
	rights, connected := r.admission.AllowedForNode(node.GetId())
	if !connected {
		return nil, nil, errUnknownRights
	}
	served, onDemand, err := r.catalogs.resources(ctx, rights, node, delta)
	if err != nil {
		return nil, nil, err
	}
	expected := &verify.Expected{OnDemand: onDemand, Refusals: []verify.Refusal{}}
	refusals := r.refusals(node.GetId())
	expected.Connected = len(refusals) > 0
	if len(refusals) == 1 { // several clients with the same node ID cannot be told apart
		expected.Refusals = append(expected.Refusals, refusals[0]...)
	}
	return expected, served, nil
}

// refusals returns, for each connected Envoy with a node ID, the resources that it rejects.
func (r *Relay) refusals(nodeID string) (clients [][]verify.Refusal) {
	for client := range r.engine.EachClient() {
		servesEnvoy := func(status xds.TypeStatus) bool { return envoy.Serves(status.TypeURL) }
		if client.Node.GetId() != nodeID || !slices.ContainsFunc(client.Types, servesEnvoy) {
			continue
		}
		var refusals []verify.Refusal
		for _, status := range client.Types {
			for _, rejected := range status.Rejected {
				refusals = append(refusals, verify.Refusal{
					TypeURL: status.TypeURL, Resource: rejected.Name, Error: rejected.Error, Node: nodeID, RejectedAt: rejected.Since,
				})
			}
		}
		clients = append(clients, refusals)
	}
	return clients
}
