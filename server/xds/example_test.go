package xds_test

import (
	"context"
	"fmt"
	"net"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/server/xds"
)

// serve is a catalog that gives everybody the same collection.
type serve struct{ things *xds.Collection }

func (s serve) Collection(context.Context, *corev3.Node, string) (*xds.Collection, func(), error) {
	return s.things, nil, nil
}

// A collection is fed by hand, here with versions of our own choice, and served by any gRPC server.
func Example() {
	body, _ := anypb.New(wrapperspb.String("hello"))
	encoded, _ := proto.Marshal(body)

	things := xds.NewCollection(xds.TypeOf("example.com/v1/Thing"), xds.Debounce{})
	things.Apply(xds.Commit{
		Put:     []*xds.Entry{{Name: "greeting", Version: "v1", Any: encoded}},
		Version: "2026-11-21",
	})
	things.MarkSynced()

	engine := xds.NewServer(serve{things}, xds.Options{})
	server := grpc.NewServer(engine.ServerOptions()...)
	engine.Register(server)
	lis, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() { _ = server.Serve(lis) }()
	defer server.Stop()

	conn, _ := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	defer func() { _ = conn.Close() }()
	stream, _ := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(context.Background())
	_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: "example.com/v1/Thing"})
	response, err := stream.Recv()
	fmt.Println(response.GetVersionInfo(), len(response.GetResources()), err)
	// Output: 2026-11-21 1 <nil>
}
