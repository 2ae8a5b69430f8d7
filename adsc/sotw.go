package adsc

import (
	"context"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// sotwWire is a state-of-the-world stream.
type sotwWire struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func openSotW(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient) (wire, error) {
	stream, err := ads.StreamAggregatedResources(ctx)
	return sotwWire{stream}, err
}

func (w sotwWire) send(r *request) error {
	return w.Send(&discoveryv3.DiscoveryRequest{
		Node:          r.node,
		TypeUrl:       r.typeURL,
		ResourceNames: r.names,
		VersionInfo:   r.version,
		ResponseNonce: r.nonce,
		ErrorDetail:   r.errorDetail(),
	})
}

func (w sotwWire) recv() (*answer, error) {
	m, err := w.Recv()
	if err != nil {
		return nil, err
	}
	a := &answer{
		typeURL: m.GetTypeUrl(), version: m.GetVersionInfo(), nonce: m.GetNonce(),
		controlPlane: m.GetControlPlane().GetIdentifier(),
		resources:    make([]Resource, len(m.GetResources())),
	}
	for i, body := range m.GetResources() {
		a.resources[i].Body = body
	}
	return a, nil
}
