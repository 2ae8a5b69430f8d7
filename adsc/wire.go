package adsc

import (
	"context"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

// wire is a stream in one of the variants of the protocol: it translates, and decides nothing. send and recv may be
// called at the same time.
type wire interface {
	send(r *request) error
	recv() (*answer, error)
	Header() (metadata.MD, error) // of the server; it is there once a message is
}

// opener opens a stream, which lives as long as ctx.
type opener func(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient) (wire, error)

// request is what the client has to say of a type: in the first request of the type on a stream what it wants, later
// that it wants other names, or how it took a response.
type request struct {
	node    *corev3.Node // in the first request of a stream only
	typeURL string
	nonce   string // of the response that is answered; state of the world: of the last one
	reason  string // why that was rejected; empty if it was not

	names   []string // state of the world: all that are wanted
	version string   // state of the world: of what was last taken

	subscribe, unsubscribe []string          // delta
	versions               map[string]string // delta, first request: what the client has
}

// errorDetail is r.reason as the protocol has it.
func (r *request) errorDetail() *rpcstatus.Status {
	if r.reason == "" {
		return nil
	}
	return &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: r.reason}
}

// answer is what a server sent of a type.
type answer struct {
	typeURL, version, nonce string
	controlPlane            string
	resources               []Resource
	removed                 []string // delta
	more                    bool     // delta: the rest follows
	delta                   bool
}

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
