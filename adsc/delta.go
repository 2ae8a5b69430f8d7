package adsc

import (
	"context"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// chunkMark is the key of a header, and chunkMarkEnd its value, by which a server says that of the delta responses into
// which it cuts a large one only the last has a system_version_info. The protocol itself has no such mark, without which
// a client cannot tell when it has all of a type for the first time.
const (
	chunkMark    = "xds-delta-chunks"
	chunkMarkEnd = "version-at-end"
)

// deltaWire is a delta stream.
type deltaWire struct {
	discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func openDelta(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient) (wire, error) {
	stream, err := ads.DeltaAggregatedResources(ctx)
	return deltaWire{stream}, err
}

func (w deltaWire) send(r *request) error {
	return w.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node:                     r.node,
		TypeUrl:                  r.typeURL,
		ResourceNamesSubscribe:   r.subscribe,
		ResourceNamesUnsubscribe: r.unsubscribe,
		InitialResourceVersions:  r.versions,
		ResponseNonce:            r.nonce,
		ErrorDetail:              r.errorDetail(),
	})
}

func (w deltaWire) recv() (*answer, error) {
	m, err := w.Recv()
	if err != nil {
		return nil, err
	}
	a := &answer{
		delta:   true,
		typeURL: m.GetTypeUrl(), version: m.GetSystemVersionInfo(), nonce: m.GetNonce(),
		controlPlane: m.GetControlPlane().GetIdentifier(),
		resources:    make([]Resource, len(m.GetResources())),
		removed:      m.GetRemovedResources(),
	}
	for i, r := range m.GetResources() {
		a.resources[i] = Resource{Name: r.GetName(), Aliases: r.GetAliases(), Version: r.GetVersion(), Body: r.GetResource()}
	}
	if a.version == "" {
		header, err := w.Header() // is there, since a message is
		a.more = err == nil && slices.Contains(header.Get(chunkMark), chunkMarkEnd)
	}
	return a, nil
}
