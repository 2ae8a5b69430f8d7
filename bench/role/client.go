package role

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/bench/wire"
)

// Client opens many streams to one server and acknowledges its responses. Its exported methods are called by net/rpc.
type Client struct {
	sent, received, bytes atomic.Uint64

	watch atomic.Pointer[watch]

	close    func() // the open streams
	versions map[string]string
}

// OpenArgs are the number of streams to open and their subscriptions.
type OpenArgs struct {
	Address     string
	Streams     int
	Connections int // shared by the streams; 0 gives each its own
	Delta       bool
	TypeURLs    []string // the first of them is measured
	Names       []string // none is a wildcard
	Node        string
	Metadata    map[string]string
	// Resources that each stream waits for, unless it waits for a Marker.
	Resources int
	Marker    string
	// Resume sends the versions that Learn has found, of the first type.
	Resume bool
	// Reopen closes the open streams first, as a part of the measurement.
	Reopen  bool
	Timeout time.Duration
}

// Arrivals are the times at which a set of streams had the awaited resources.
type Arrivals struct{ At []time.Time }

// Since returns the time from start until a share q of the streams was served; 1 is the last one.
func (a Arrivals) Since(start time.Time, q float64) time.Duration {
	if len(a.At) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(a.At)))) - 1
	return a.At[max(i, 0)].Sub(start)
}

// Opened tells of streams that were opened.
type Opened struct {
	Start    time.Time
	Arrivals Arrivals
}

// Open opens all streams at once and waits until each has its resources.
func (c *Client) Open(args OpenArgs, reply *Opened) error {
	w := newWatch(args.Streams)
	w.resources, w.marker = args.Resources, []byte(args.Marker)
	c.watch.Store(w)
	reply.Start = time.Now()
	if args.Reopen {
		if err := c.Close(struct{}{}, nil); err != nil {
			return err
		}
	} else if c.close != nil {
		return errors.New("there are open streams")
	}
	if err := c.open(args); err != nil {
		return err
	}
	var err error
	reply.Arrivals, err = w.wait(args.Timeout)
	return err
}

func (c *Client) open(args OpenArgs) error {
	connections := make([]*grpc.ClientConn, args.Connections)
	if args.Connections == 0 {
		connections = make([]*grpc.ClientConn, args.Streams)
	}
	for i := range connections {
		conn, err := dial(args.Address)
		if err != nil {
			return err
		}
		connections[i] = conn
	}
	var subscriptions []wire.Subscription
	for i, url := range args.TypeURLs {
		s := wire.Subscription{Delta: args.Delta, Node: wire.Node(args.Node, args.Metadata), TypeURL: url, Names: args.Names}
		if args.Resume && i == 0 {
			s.Versions = c.versions
		}
		subscriptions = append(subscriptions, s)
	}
	first := make([]wire.Bytes, len(subscriptions)) // shared by all streams: with versions it is large
	for i, s := range subscriptions {
		first[i] = s.First()
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range args.Streams {
		conn := connections[i%len(connections)]
		running.Go(func() {
			err := c.stream(ctx, i, conn, subscriptions, first)
			if ctx.Err() == nil {
				c.watch.Load().fail(fmt.Errorf("stream %d: %w", i, err))
			}
		})
	}
	c.close = func() {
		cancel()
		for _, conn := range connections {
			_ = conn.Close()
		}
		running.Wait()
	}
	return nil
}

// dial makes a connection as Istio's own client does: windows of 1 MiB, no limit on messages.
func dial(address string) (*grpc.ClientConn, error) {
	const window = 1 << 20
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<30)))
}

// stream serves one stream until ctx ends or the stream breaks.
func (c *Client) stream(ctx context.Context, id int, conn *grpc.ClientConn, subs []wire.Subscription, first []wire.Bytes) error {
	method := wire.MethodSotW
	if subs[0].Delta {
		method = wire.MethodDelta
	}
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	stream, err := conn.NewStream(ctx, desc, method, grpc.ForceCodecV2(wire.Codec{}), grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for i := range first {
		if err := stream.SendMsg(&first[i]); err != nil {
			return err
		}
		c.sent.Add(1)
	}
	seen := 0 // resources of the first type, as the client holds them
	for {
		var r wire.Response
		if err := stream.RecvMsg(&r); err != nil {
			return err
		}
		now := time.Now()
		if err := r.Scan(); err != nil {
			return err
		}
		i := slices.IndexFunc(subs, func(s wire.Subscription) bool { return s.TypeURL == r.TypeURL })
		if i < 0 {
			return fmt.Errorf("response of type %q", r.TypeURL)
		}
		request := wire.Bytes(subs[i].ACK(&r))
		if err := stream.SendMsg(&request); err != nil {
			return err
		}
		c.received.Add(1)
		c.sent.Add(1)
		c.bytes.Add(uint64(r.Size))
		if i == 0 {
			if subs[0].Delta {
				seen += r.Resources
			} else {
				seen = r.Resources
			}
			c.watch.Load().look(id, now, seen, &r)
		}
		r.Free()
	}
}

// ArmArgs say which change the streams are to look for.
type ArmArgs struct{ Marker string }

// Arm prepares for a change; Await waits for it.
func (c *Client) Arm(args ArmArgs, _ *struct{}) error {
	w := newWatch(len(c.watch.Load().arrived))
	w.marker = []byte(args.Marker)
	c.watch.Store(w)
	return nil
}

// Await waits until every stream has the awaited resources.
func (c *Client) Await(timeout time.Duration, reply *Arrivals) error {
	var err error
	*reply, err = c.watch.Load().wait(timeout)
	return err
}

// Traffic is the traffic of a client process since it started.
type Traffic struct{ Sent, Received, Bytes uint64 }

// Traffic returns the traffic so far.
func (c *Client) Traffic(_ struct{}, reply *Traffic) error {
	*reply = Traffic{Sent: c.sent.Load(), Received: c.received.Load(), Bytes: c.bytes.Load()}
	return nil
}

// Close closes the open streams and their connections.
func (c *Client) Close(_ struct{}, _ *struct{}) error {
	if c.close != nil {
		c.close()
		c.close = nil
	}
	return nil
}

// Collect gives memory back, so that the client's garbage is not collected while the server is measured.
func (*Client) Collect(_ struct{}, _ *struct{}) error {
	debug.FreeOSMemory()
	return nil
}

// Learn opens one delta stream and keeps the versions of all it is sent, for streams that resume. It decodes everything,
// and is not measured.
func (c *Client) Learn(args OpenArgs, _ *struct{}) error {
	conn, err := dial(args.Address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), args.Timeout)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	request := &discovery.DeltaDiscoveryRequest{
		Node:                   &core.Node{Id: args.Node},
		TypeUrl:                args.TypeURLs[0],
		ResourceNamesSubscribe: args.Names,
	}
	versions := make(map[string]string, args.Resources)
	for len(versions) < args.Resources {
		if err := stream.Send(request); err != nil {
			return err
		}
		c.sent.Add(1)
		response, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("after %d versions: %w", len(versions), err)
		}
		c.received.Add(1)
		for _, r := range response.GetResources() {
			versions[r.GetName()] = r.GetVersion()
		}
		request = &discovery.DeltaDiscoveryRequest{TypeUrl: args.TypeURLs[0], ResponseNonce: response.GetNonce()}
	}
	c.versions = versions
	return nil
}

// watch waits for the resources of a set of streams.
type watch struct {
	marker    []byte // if not empty, in a response
	resources int    // otherwise, in all responses together

	arrived  []atomic.Int64 // by stream, Unix nanoseconds; 0 before
	pending  atomic.Int64
	finished chan struct{}
	end      sync.Once
	err      error // set before done is closed
}

func newWatch(streams int) *watch {
	w := &watch{arrived: make([]atomic.Int64, streams), finished: make(chan struct{})}
	w.pending.Store(int64(streams))
	return w
}

// look is called by a stream for each response.
func (w *watch) look(stream int, now time.Time, resources int, r *wire.Response) {
	if w.arrived[stream].Load() != 0 {
		return
	}
	arrived := resources >= w.resources
	if len(w.marker) > 0 {
		arrived = r.Contains(w.marker)
	}
	if !arrived {
		return
	}
	w.arrived[stream].Store(now.UnixNano())
	if w.pending.Add(-1) == 0 {
		w.end.Do(func() { close(w.finished) })
	}
}

func (w *watch) fail(err error) {
	w.end.Do(func() {
		w.err = err
		close(w.finished)
	})
}

func (w *watch) wait(timeout time.Duration) (Arrivals, error) {
	select {
	case <-w.finished:
	case <-time.After(timeout):
		return Arrivals{}, fmt.Errorf("%d of %d streams do not have it after %v", w.pending.Load(), len(w.arrived), timeout)
	}
	if w.err != nil {
		return Arrivals{}, w.err
	}
	times := make([]time.Time, len(w.arrived))
	for i := range w.arrived {
		times[i] = time.Unix(0, w.arrived[i].Load())
	}
	slices.SortFunc(times, time.Time.Compare)
	return Arrivals{At: times}, nil
}
