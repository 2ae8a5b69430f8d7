package adsc

import (
	"context"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/internal/intake"
)

// wire is a stream in one variant of the protocol: it only translates. send and recv may be called at the same time.
type wire struct {
	grpc.ClientStream

	codec *intake.Codec
	delta bool
}

// openWire opens a stream, which lives as long as ctx.
func openWire(
	ctx context.Context, conn grpc.ClientConnInterface, codec *intake.Codec, delta bool,
) (wire wire, err error) {
	wire.codec, wire.delta = codec, delta
	client := discoveryv3.NewAggregatedDiscoveryServiceClient(conn)
	if delta {
		wire.ClientStream, err = client.DeltaAggregatedResources(ctx, grpc.ForceCodecV2(codec))
	} else {
		wire.ClientStream, err = client.StreamAggregatedResources(ctx, grpc.ForceCodecV2(codec))
	}
	return wire, err
}

// request is a request of a type: the first one on a stream, a change of the selection, or a reply to a response.
type request struct {
	node    *corev3.Node // in the first request of a stream only
	typeURL string
	nonce   string // of the response that the request replies to; in SotW, of the last response
	reason  string // of a rejection; empty for an acknowledgement

	// Only in SotW: the selection, and the version of the last response that the handler accepted.
	names   []string
	version string

	// Only in delta: changes of the selection, and the versions of the client's resources in the first request.
	subscribe   []string
	unsubscribe []string
	versions    map[string]string
}

// errorDetail returns r.reason in the form of the protocol.
func (r *request) errorDetail() *rpcstatus.Status {
	if r.reason == "" {
		return nil
	}
	return &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: r.reason}
}

// serverResponse is a response with its nonce. The stream sets Complete, Server and beginsSet.
type serverResponse struct {
	Response

	nonce     string
	lease     *intake.Lease // of its memory, until it is handled
	beginsSet bool          // it is the first response of a complete set
}

// A server that splits large delta responses sends the header chunkMark with the value chunkMarkEnd, and sets
// system_version_info in the last part only. The protocol itself has no such mark. Without it, a client cannot know
// when it first has all resources of a type.
const (
	chunkMark    = "xds-delta-chunks"
	chunkMarkEnd = "version-at-end"
)

func (w wire) send(request *request) error {
	if !w.delta {
		return w.SendMsg(&discoveryv3.DiscoveryRequest{
			Node:          request.node,
			TypeUrl:       request.typeURL,
			ResourceNames: request.names,
			VersionInfo:   request.version,
			ResponseNonce: request.nonce,
			ErrorDetail:   request.errorDetail(),
		})
	}
	return w.SendMsg(&discoveryv3.DeltaDiscoveryRequest{
		Node:                     request.node,
		TypeUrl:                  request.typeURL,
		ResourceNamesSubscribe:   request.subscribe,
		ResourceNamesUnsubscribe: request.unsubscribe,
		InitialResourceVersions:  request.versions,
		ResponseNonce:            request.nonce,
		ErrorDetail:              request.errorDetail(),
	})
}

func (w wire) recv() (*serverResponse, error) {
	if w.delta {
		return w.recvDelta()
	}
	var discoveryResponse discoveryv3.DiscoveryResponse
	if err := w.RecvMsg(&discoveryResponse); err != nil {
		return nil, err
	}
	resources := discoveryResponse.GetResources()
	message := w.newServerResponse(&discoveryResponse, discoveryResponse.GetVersionInfo(), len(resources))
	for i, body := range resources {
		message.Resources[i].Body = body
	}
	return message, nil
}

func (w wire) recvDelta() (*serverResponse, error) {
	var deltaResponse discoveryv3.DeltaDiscoveryResponse
	if err := w.RecvMsg(&deltaResponse); err != nil {
		return nil, err
	}
	resources := deltaResponse.GetResources()
	message := w.newServerResponse(&deltaResponse, deltaResponse.GetSystemVersionInfo(), len(resources))
	message.Removed = deltaResponse.GetRemovedResources()
	for i, r := range resources {
		message.Resources[i] = Resource{
			Name: r.GetName(), Aliases: r.GetAliases(), Version: r.GetVersion(), Body: r.GetResource(),
		}
	}
	if message.Version == "" {
		header, err := w.Header() // available with a message
		message.More = err == nil && slices.Contains(header.Get(chunkMark), chunkMarkEnd)
	}
	return message, nil
}

// newServerResponse returns a response with the fields of both variants, and room for resources.
func (w wire) newServerResponse(message interface {
	GetTypeUrl() string
	GetNonce() string
	GetControlPlane() *corev3.ControlPlane
}, version string, resources int,
) *serverResponse {
	return &serverResponse{lease: w.codec.Lease(), nonce: message.GetNonce(), Response: Response{
		TypeURL: message.GetTypeUrl(), Version: version, Delta: w.delta,
		ControlPlane: message.GetControlPlane().GetIdentifier(), Resources: make([]Resource, resources),
	}}
}

// The estimated memory of decoded parts of a response, in bytes. An encoded resource may have only two bytes. Its
// metadata is a tree of small values, and takes many times its encoded size.
const (
	resourceBytes = 256
	fieldBytes    = 64
	treeFactor    = 32
)

// decodedBytes estimates the memory of a decoded response, of either variant.
func decodedBytes(response []byte) (bytes int) {
	eachField(response, func(number protowire.Number, field []byte) {
		bytes += resourceBytes + len(field)
		switch number {
		case 1, 4, 5, 6: // versions, names, and other small fields
		case 2: // resources
			eachField(field, func(number protowire.Number, part []byte) {
				bytes += fieldBytes
				if number > 4 {
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
