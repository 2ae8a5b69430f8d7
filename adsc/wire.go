package adsc

import (
	"context"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/internal/intake"
)

// wire is a stream in one of the variants of the protocol: it translates, and decides nothing. send and recv may be
// called at the same time.
type wire interface {
	send(r *request) error
	recv() (*answer, error)
	Header() (metadata.MD, error) // of the server; it is there once a message is
}

// opener opens a stream, which lives as long as ctx.
type opener func(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient, codec *intake.Codec) (wire, error)

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
	lease                   *intake.Lease // until it is handled
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

	codec *intake.Codec
}

func openDelta(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient, codec *intake.Codec) (wire, error) {
	stream, err := ads.DeltaAggregatedResources(ctx, grpc.ForceCodecV2(codec))
	return deltaWire{stream, codec}, err
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
		lease:   w.codec.Lease(),
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

	codec *intake.Codec
}

func openSotW(ctx context.Context, ads discoveryv3.AggregatedDiscoveryServiceClient, codec *intake.Codec) (wire, error) {
	stream, err := ads.StreamAggregatedResources(ctx, grpc.ForceCodecV2(codec))
	return sotwWire{stream, codec}, err
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
		lease:   w.codec.Lease(),
		typeURL: m.GetTypeUrl(), version: m.GetVersionInfo(), nonce: m.GetNonce(),
		controlPlane: m.GetControlPlane().GetIdentifier(),
		resources:    make([]Resource, len(m.GetResources())),
	}
	for i, body := range m.GetResources() {
		a.resources[i].Body = body
	}
	return a, nil
}

// The decoded sizes of parts of a response, in bytes: a resource may have two bytes, and its metadata is a tree of small values.
const (
	resourceBytes = 256
	fieldBytes    = 64
	treeFactor    = 32
)

// decodedBytes returns how much memory a response takes, decoded, of either variant.
func decodedBytes(response []byte) (bytes int) {
	eachField(response, func(number protowire.Number, field []byte) {
		bytes += resourceBytes + len(field)
		switch number {
		case 1, 4, 5, 6: // versions, names, and what is as small
		case 2: // resources
			eachField(field, func(number protowire.Number, part []byte) {
				if bytes += fieldBytes; number > 4 {
					bytes += treeFactor * len(part)
				}
			})
		default:
			bytes += treeFactor * len(field)
		}
	})
	return bytes
}

// eachField calls visit with the fields of a message, until one cannot be read.
func eachField(message []byte, visit func(number protowire.Number, field []byte)) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 {
			return
		}
		field := message[tag : tag+size]
		if kind == protowire.BytesType {
			field, _ = protowire.ConsumeBytes(field)
		}
		visit(number, field)
		message = message[tag+size:]
	}
}
