package xds_test

import (
	"context"
	"fmt"
	"net"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/server/xds"
)

// serve is a catalog with one collection for all clients.
type serve struct{ things *xds.Collection }

func (s serve) Collection(context.Context, *corev3.Node, string) (*xds.Collection, func(), error) {
	return s.things, nil, nil
}

// A program fills a collection, here with its own versions, and any gRPC server serves it.
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
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, _ := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	defer func() { _ = conn.Close() }()
	stream, _ := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(context.Background())
	_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: "example.com/v1/Thing"})
	response, err := stream.Recv()
	fmt.Println(response.GetVersionInfo(), len(response.GetResources()), err)
	// Output: 2026-11-21 1 <nil>
}

// byType is a catalog with one collection for each type, the same for all clients. Other types get no answer.
type byType map[string]*xds.Collection

func (b byType) Collection(_ context.Context, _ *corev3.Node, typeURL string) (*xds.Collection, func(), error) {
	if c := b[typeURL]; c != nil {
		return c, nil, nil
	}
	return nil, nil, xds.ErrNoAnswer
}

// Types that depend on each other are collections of one group. Changes in one Apply become visible at once, and each
// client gets them in an order that keeps endpoints for each cluster and clusters for each route.
func ExampleGroup_Apply() {
	group := xds.NewGroup(xds.Debounce{})
	clusters, endpoints := group.Collection(xds.TypeOf(xds.ClusterURL)), group.Collection(xds.TypeOf(xds.EndpointURL))
	catalog := byType{xds.ClusterURL: clusters, xds.EndpointURL: endpoints}
	_ = xds.NewServer(catalog, xds.Options{}) // to be registered with a gRPC server, as above

	cluster, err := xds.NewEntry(&clusterv3.Cluster{
		Name:                 "reviews",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
	})
	if err != nil {
		panic(err)
	}
	assignment, err := xds.NewEntry(&endpointv3.ClusterLoadAssignment{ClusterName: "reviews"})
	if err != nil {
		panic(err)
	}
	group.Apply(map[*xds.Collection]*xds.Commit{
		clusters:  {Put: []*xds.Entry{cluster}, Reset: true},
		endpoints: {Put: []*xds.Entry{assignment}, Reset: true},
	})
	clusters.MarkSynced()
	endpoints.MarkSynced()
	fmt.Println(clusters.Get("reviews").Child, endpoints.Get("reviews").Name)
	// Output: reviews reviews
}

// byZone is a catalog: each client sees the endpoints of its zone.
type byZone map[string]*xds.Collection

func (b byZone) Collection(_ context.Context, node *corev3.Node, _ string) (*xds.Collection, func(), error) {
	if c := b[node.GetLocality().GetZone()]; c != nil {
		return c, nil, nil // clients of a zone share the collection and its encoding
	}
	return nil, nil, xds.ErrNoAnswer
}

// Each filter has a collection, which the catalog chooses by the client's node.
func ExampleCatalog() {
	zones := byZone{
		"a": xds.NewCollection(xds.TypeOf(xds.EndpointURL), xds.Debounce{}),
		"b": xds.NewCollection(xds.TypeOf(xds.EndpointURL), xds.Debounce{}),
	}
	shared, err := xds.NewEntry(&endpointv3.ClusterLoadAssignment{ClusterName: "reviews"}) // its version is derived from its content
	if err != nil {
		panic(err)
	}
	zones["a"].Apply(xds.Commit{Put: []*xds.Entry{shared}})
	coll, _, err := zones.Collection(context.Background(), &corev3.Node{Locality: &corev3.Locality{Zone: "a"}}, xds.EndpointURL)
	fmt.Println(coll.Len(), err)
	_, _, err = zones.Collection(context.Background(), &corev3.Node{}, xds.EndpointURL)
	fmt.Println(err)
	// Output:
	// 1 <nil>
	// there is no answer for this type
}

// A server that shuts down sends its clients to other servers, some at a time.
func ExampleServer_Drain() {
	engine := xds.NewServer(byType{}, xds.Options{})
	server := grpc.NewServer(engine.ServerOptions()...)
	engine.Register(server)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.GracefulStop() // refuses new connections and waits for the streams
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	engine.Drain(ctx, 2*time.Second) // ends the streams
	select {
	case <-ended:
	case <-ctx.Done():
		server.Stop() // ends the streams of clients that do not read
		<-ended
	}
	engine.Close()
	fmt.Println(len(engine.Clients()))
	// Output: 0
}
