package adsc_test

import (
	"context"
	"fmt"
	"net"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/adsc"
	"tributary/server/xds"
)

const greetings = "example.com/v1/Greeting"

// catalog serves the same collection to every client.
type catalog struct{ greetings *xds.Collection }

func (c catalog) Collection(context.Context, *corev3.Node, string) (*xds.Collection, func(), error) {
	return c.greetings, nil, nil
}

func entry(name, version, text string) *xds.Entry {
	body, _ := anypb.New(wrapperspb.String(text))
	encoded, _ := proto.Marshal(body)
	return &xds.Entry{Name: name, Version: version, Any: encoded}
}

// serveGreetings serves a collection until stop is called.
func serveGreetings() (address string, coll *xds.Collection, stop func()) {
	coll = xds.NewCollection(xds.TypeOf(greetings), xds.Debounce{})
	coll.Apply(xds.Commit{Put: []*xds.Entry{entry("en", "1", "hello"), entry("fr", "1", "salut")}})
	coll.MarkSynced()
	engine := xds.NewServer(catalog{coll}, xds.Options{})
	server := grpc.NewServer(engine.ServerOptions()...)
	engine.Register(server)
	lis, _ := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	go func() { _ = server.Serve(lis) }()
	return lis.Addr().String(), coll, server.Stop
}

// A client that follows all resources of a type, and rejects unusable ones by name.
func Example() {
	address, coll, stop := serveGreetings()
	defer stop()

	seen := make(chan string)
	client, err := adsc.New(adsc.Config{
		Addresses: []string{address},
		Node:      &corev3.Node{Id: "example"},
		Mode:      adsc.Auto, // delta, where the server has it
		Subscriptions: []adsc.Subscription{{
			TypeURL: greetings,
			Handler: func(_ context.Context, response *adsc.Response) error {
				var bad []string
				for _, resource := range response.Resources {
					var text wrapperspb.StringValue
					if err := resource.Body.UnmarshalTo(&text); err != nil {
						bad = append(bad, resource.Name)
						continue
					}
					seen <- fmt.Sprintf("%s is %q", resource.Name, text.GetValue())
				}
				for _, name := range response.Removed {
					seen <- name + " has gone"
				}
				if len(bad) > 0 {
					return &adsc.RejectedError{Names: bad, Err: fmt.Errorf("not text: %v", bad)}
				}
				return nil
			},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- client.Run(ctx) }()

	fmt.Println(<-seen)
	fmt.Println(<-seen)
	coll.Apply(xds.Commit{Put: []*xds.Entry{entry("de", "1", "hallo")}})
	fmt.Println(<-seen)
	coll.Apply(xds.Commit{Remove: []string{"en"}})
	fmt.Println(<-seen)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// en is "hello"
	// fr is "salut"
	// de is "hallo"
	// en has gone
	// context canceled
}
