package xdstest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// quiet is how long a test checks that no response arrives. A short time can only let a wrong server pass.
const quiet = 50 * time.Millisecond

// Answer is a response of either variant.
type Answer struct {
	TypeURL, Version, Nonce string

	Puts    []string // "name@version" of delta, and the texts of state of the world, if the resources are texts
	Names   []string // delta: of all resources
	Removed []string
	Unknown []string // delta: names that an alias says not to exist
	Bodies  []*anypb.Any
	Size    int
}

// ReadAnswer reads a response from a stream. The texts of delta begin with "name@version".
func ReadAnswer(t testing.TB, stream grpc.ClientStream, delta bool) (Answer, error) {
	if !delta {
		var m discoveryv3.DiscoveryResponse
		if err := stream.RecvMsg(&m); err != nil {
			return Answer{}, err
		}
		answer := Answer{
			TypeURL: m.TypeUrl, Version: m.VersionInfo, Nonce: m.Nonce, Bodies: m.Resources, Size: proto.Size(&m),
		}
		for _, body := range m.Resources {
			if body.MessageIs(&wrapperspb.StringValue{}) {
				answer.Puts = append(answer.Puts, Text(t, body))
			}
		}
		return answer, nil
	}
	var m discoveryv3.DeltaDiscoveryResponse
	if err := stream.RecvMsg(&m); err != nil {
		return Answer{}, err
	}
	answer := Answer{
		TypeURL: m.TypeUrl, Version: m.SystemVersionInfo, Nonce: m.Nonce, Removed: m.RemovedResources, Size: proto.Size(&m),
	}
	for _, resource := range m.Resources {
		if resource.Resource == nil && slices.Equal(resource.Aliases, []string{resource.Name}) {
			answer.Unknown = append(answer.Unknown, resource.Name)
			continue
		}
		answer.Bodies, answer.Names = append(answer.Bodies, resource.Resource), append(answer.Names, resource.Name)
		named := resource.Name + "@" + resource.Version
		if !resource.Resource.MessageIs(&wrapperspb.StringValue{}) {
			continue
		}
		if text := Text(t, resource.Resource); !strings.HasPrefix(text, named) {
			return answer, fmt.Errorf("resource %s says %q", named, text)
		}
		answer.Puts = append(answer.Puts, named)
	}
	return answer, nil
}

// Client is a stream of either variant that keeps its responses. The methods check what they do.
type Client struct {
	Delta   bool
	Node    *corev3.Node // of each request
	Answers chan Answer

	t      testing.TB
	stream grpc.ClientStream
	err    chan error
}

// Dial opens a stream of ADS, until the test ends.
func Dial(t testing.TB, address string, delta bool) *Client {
	t.Helper()
	return DialMethod(t, address, delta, func(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
		if delta {
			return discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		}
		return discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	})
}

// DialMethod is Dial for a stream that open opens.
func DialMethod(
	t testing.TB, address string, delta bool, open func(context.Context, *grpc.ClientConn) (grpc.ClientStream, error),
) *Client {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := open(ctx, conn)
	require.NoError(t, err)
	c := &Client{
		Delta: delta, Node: &corev3.Node{Id: "test-node"}, Answers: make(chan Answer, 1000), t: t, stream: stream,
		err: make(chan error, 1),
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			answer, err := ReadAnswer(t, stream, delta)
			if err != nil {
				c.err <- err
				return
			}
			c.Answers <- answer
		}
	})
	t.Cleanup(func() {
		cancel()
		reading.Wait()
		require.NoError(t, conn.Close())
	})
	return c
}

// Send sends a request as it is.
func (c *Client) Send(request proto.Message) {
	c.t.Helper()
	require.NoError(c.t, c.stream.SendMsg(request))
}

// Close half-closes the stream.
func (c *Client) Close() {
	c.t.Helper()
	require.NoError(c.t, c.stream.CloseSend())
}

// Ask sends a request. In delta, names are subscribed to, and unsubscribed from with a minus.
func (c *Client) Ask(typeURL string, names ...string) {
	c.t.Helper()
	c.Request(typeURL, "", nil, names...)
}

// Ack acknowledges an answer. In state of the world, it repeats the names subscribed to.
func (c *Client) Ack(answer Answer, names ...string) {
	c.t.Helper()
	if c.Delta {
		names = nil
	}
	c.Request(answer.TypeURL, answer.Nonce, nil, names...)
}

// Nack rejects an answer.
func (c *Client) Nack(answer Answer, reason string, names ...string) {
	c.t.Helper()
	detail := &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: reason}
	c.Request(answer.TypeURL, answer.Nonce, detail, names...)
}

// Request sends a request with a nonce and a rejection; its names are those of Ask.
func (c *Client) Request(typeURL, nonce string, detail *rpcstatus.Status, names ...string) {
	c.t.Helper()
	if !c.Delta {
		c.Send(&discoveryv3.DiscoveryRequest{
			Node: c.Node, TypeUrl: typeURL, ResponseNonce: nonce, ErrorDetail: detail, ResourceNames: names,
		})
		return
	}
	request := &discoveryv3.DeltaDiscoveryRequest{
		Node: c.Node, TypeUrl: typeURL, ResponseNonce: nonce, ErrorDetail: detail,
	}
	for _, name := range names {
		if name, unsubscribe := strings.CutPrefix(name, "-"); unsubscribe {
			request.ResourceNamesUnsubscribe = append(request.ResourceNamesUnsubscribe, name)
		} else {
			request.ResourceNamesSubscribe = append(request.ResourceNamesSubscribe, name)
		}
	}
	c.Send(request)
}

// Next waits for the next answer.
func (c *Client) Next() Answer {
	c.t.Helper()
	select {
	case answer := <-c.Answers:
		return answer
	case err := <-c.err:
		c.err <- err
		if len(c.Answers) > 0 { // it came before the end
			return <-c.Answers
		}
		require.NoError(c.t, err, "stream ended")
	case <-time.After(Patience):
		require.FailNow(c.t, "no response")
	}
	panic("unreachable")
}

// Expect waits for the next answer, which has to have these items, "name@version" and "-name", in any order.
func (c *Client) Expect(typeURL string, items ...string) Answer {
	c.t.Helper()
	answer := c.Next()
	got := slices.Clone(answer.Puts)
	for _, name := range answer.Removed {
		got = append(got, "-"+name)
	}
	slices.Sort(got)
	slices.Sort(items)
	require.Equal(c.t, typeURL, answer.TypeURL)
	require.Equal(c.t, items, slices.Clip(got), "content of the response of %s", typeURL)
	return answer
}

// ExpectAck is Expect, and then Ack with the names.
func (c *Client) ExpectAck(typeURL string, names []string, items ...string) Answer {
	c.t.Helper()
	answer := c.Expect(typeURL, items...)
	c.Ack(answer, names...)
	return answer
}

// Subscribe is Ask, and then ExpectAck.
func (c *Client) Subscribe(typeURL string, names []string, items ...string) Answer {
	c.t.Helper()
	c.Ask(typeURL, names...)
	return c.ExpectAck(typeURL, names, items...)
}

// Silence checks that no response arrives.
func (c *Client) Silence() {
	c.t.Helper()
	select {
	case answer := <-c.Answers:
		require.Fail(c.t, "unexpected response", "%+v", answer)
	case err := <-c.err:
		require.NoError(c.t, err, "stream ended")
	case <-time.After(quiet):
	}
}

// Ended waits for the error that ends the stream.
func (c *Client) Ended() error {
	c.t.Helper()
	return await(c.t, c.err, Patience, "stream goes on")
}
