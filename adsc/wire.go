package adsc

import (
	"context"

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
