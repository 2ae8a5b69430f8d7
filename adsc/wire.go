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
	nonce   string // of the response that it replies to; state of the world: of the last one
	reason  string // of a rejection; empty for an acknowledgement

	names   []string // state of the world: the selection
	version string   // state of the world: of the last response that was taken

	subscribe, unsubscribe []string          // delta
	versions               map[string]string // delta, first request: of the client's resources
}

// errorDetail returns r.reason in the form of the protocol.
func (r *request) errorDetail() *rpcstatus.Status {
	if r.reason == "" {
		return nil
	}
	return &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: r.reason}
}

// answer is a response as the server sent it: without Complete and Server.
type answer struct {
	Response

	nonce string
	lease *intake.Lease // of its memory, until it is handled
}

// chunkMark is the key of a header, and chunkMarkEnd its value, of a server that splits large delta responses and sets
// system_version_info on the last part only. The protocol itself has no such mark. Without it, a client cannot know
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

func (w wire) recv() (*answer, error) {
	if w.delta {
		return w.recvDelta()
	}
	var discoveryResponse discoveryv3.DiscoveryResponse
	if err := w.RecvMsg(&discoveryResponse); err != nil {
		return nil, err
	}
	message := w.answer(&discoveryResponse, discoveryResponse.GetVersionInfo(), len(discoveryResponse.GetResources()))
	for i, body := range discoveryResponse.GetResources() {
		message.Resources[i].Body = body
	}
	return message, nil
}

func (w wire) recvDelta() (*answer, error) {
	var deltaResponse discoveryv3.DeltaDiscoveryResponse
	if err := w.RecvMsg(&deltaResponse); err != nil {
		return nil, err
	}
	message := w.answer(&deltaResponse, deltaResponse.GetSystemVersionInfo(), len(deltaResponse.GetResources()))
	message.Removed = deltaResponse.GetRemovedResources()
	for i, r := range deltaResponse.GetResources() {
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

// answer returns the fields that both variants have.
func (w wire) answer(message interface {
	GetTypeUrl() string
	GetNonce() string
	GetControlPlane() *corev3.ControlPlane
}, version string, resources int,
) *answer {
	return &answer{lease: w.codec.Lease(), nonce: message.GetNonce(), Response: Response{
		TypeURL: message.GetTypeUrl(), Version: version, Delta: w.delta,
		ControlPlane: message.GetControlPlane().GetIdentifier(), Resources: make([]Resource, resources),
	}}
}

// The decoded sizes of parts of a response, in bytes: a resource may have two bytes, and its metadata is a tree of
// small values.
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
		case 1, 4, 5, 6: // versions, names, and other small fields
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
