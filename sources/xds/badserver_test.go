package xds

import (
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/internal/testutil"
	"tributary/resource"
	"tributary/sources"
)

// Each of the following is a row of the table in README.md, as are those of badinput_test.go. Here a server is good
// first.

// TestServer_FailsAfterGoodStream has a server misbehave on each stream after a good one.
func TestServer_FailsAfterGoodStream(t *testing.T) {
	for _, c := range []struct {
		name  string
		bad   func(stream) error
		state sources.State
		shown string
	}{
		{"it ends each stream at once", func(stream) error { return nil }, sources.Unreachable, "the server ended it"},
		{"it never answers", func(s stream) error { <-s.Context().Done(); return nil }, sources.Healthy, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			fakeIstiod := newFakeIstiod()
			fakeIstiod.set(entriesV1, wrapped(t, "shop/a", "a.example.com"))
			var bad atomic.Bool
			met := make(chan struct{}, 1)
			reader := read(t, Settings{Mode: "sotw", SubscribedResources: onlyEntries}, scripted(t, func(s stream) error {
				if !bad.Load() {
					return fakeIstiod.serve(s)
				}
				select {
				case met <- struct{}{}:
				default:
				}
				return c.bad(s)
			}))
			reader.awaitState(t, sources.Healthy, "")
			bad.Store(true)
			fakeIstiod.end()
			<-met
			if c.state != sources.Healthy { // an open and silent stream looks like that of a server without changes
				reader.awaitState(t, c.state, c.shown)
			}
			require.Equal(t, "a", reader.names())
			require.True(t, reader.status().Synced)
		})
	}
}

// TestPort_WithoutGRPCServer has a port that accepts connections without a gRPC server, from the beginning or from some
// time on.
func TestPort_WithoutGRPCServer(t *testing.T) {
	for _, c := range []struct {
		name  string
		serve func(net.Conn)
		shown string
	}{
		{"it closes each at once", func(conn net.Conn) { _ = conn.Close() }, "it closed the connection at once"},
		{"it is silent", func(net.Conn) {}, "it does not answer as a server of gRPC does"},
		{
			"it says something else", func(conn net.Conn) { _, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.6\r\n")) },
			"it does not answer as a server of gRPC does",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := readWith(t, Settings{Mode: "sotw"}, func(s *Source) { s.config.ConnectTimeout = 50 * time.Millisecond }, listening(t, c.serve))
			r.awaitState(t, sources.Unreachable, c.shown)
			require.False(t, r.status().Synced)

			f := newFakeIstiod()
			f.set(entriesV1, wrapped(t, "shop/a", "a.example.com"))
			good := scripted(t, f.serve)
			turned := make(chan struct{})
			turn := sync.OnceFunc(func() { close(turned) })
			defer turn()
			r = readWith(t, Settings{Mode: "sotw", SubscribedResources: onlyEntries},
				func(s *Source) { s.config.ConnectTimeout = 50 * time.Millisecond },
				listening(t, func(conn net.Conn) {
					select {
					case <-turned:
						c.serve(conn)
					default:
						passOn(t, conn, good, turned)
					}
				}))
			r.awaitNames(t, "a")
			turn()
			r.awaitState(t, sources.Unreachable, c.shown)
			require.Equal(t, "a", r.names())
			require.True(t, r.status().Synced && r.status().Stale)
		})
	}
}

// passOn has a connection be one to another address until end is closed.
func passOn(t *testing.T, conn net.Conn, to string, end <-chan struct{}) {
	t.Helper()
	var d net.Dialer
	on, err := d.DialContext(t.Context(), "tcp", to)
	if err != nil {
		_ = conn.Close()
		return
	}
	var passing sync.WaitGroup
	t.Cleanup(passing.Wait)
	for _, direction := range [][2]net.Conn{{conn, on}, {on, conn}} {
		passing.Go(func() { _, _ = io.Copy(direction[0], direction[1]) })
	}
	passing.Go(func() {
		<-end
		_ = conn.Close()
		_ = on.Close()
	})
}

// listening has each connection served until the test ends, and returns the address.
func listening(t *testing.T, serve func(net.Conn)) string {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		var open []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			open = append(open, conn)
			serve(conn)
		}
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		accepting.Wait()
	})
	return listener.Addr().String()
}

// TestLargeResponse is about 200 MB, which the default limit lets through.
func TestLargeResponse(t *testing.T) {
	f := newFakeIstiod()
	f.set(entriesV1, wrapped(t, "shop/a", "a.example.com"))
	r := read(t, Settings{Mode: "sotw", SubscribedResources: onlyEntries}, scripted(t, f.serve, grpc.MaxSendMsgSize(1<<30)))
	r.awaitNames(t, "a")
	f.set(entriesV1, &anypb.Any{TypeUrl: resource.MCPTypeURL, Value: make([]byte, 80<<20)}, wrapped(t, "shop/b", "b.example.com"))
	r.awaitNames(t, "a b") // the large one may be any
	r.awaitState(t, sources.Degraded, "1 resources cannot be read and have no name")
	reason := <-f.nacks
	require.Contains(t, reason, entriesV1+" (unnamed): ")
	require.Less(t, len(reason), 1000)
}

// TestMalformedResponse_KeepsResources is about a message that ends in the middle, and about one that is something
// else, after a good one.
func TestMalformedResponse_KeepsResources(t *testing.T) {
	good, err := proto.Marshal(&discoveryv3.DiscoveryResponse{
		TypeUrl: entriesV1, Nonce: "1", Resources: []*anypb.Any{wrapped(t, "shop/a", "a.example.com")},
	})
	require.NoError(t, err)
	for name, bad := range map[string][]byte{"it is cut": good[:len(good)-10], "it is none": []byte("\xff\xff\xff truncated")} {
		t.Run(name, func(t *testing.T) {
			g := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
				for _, message := range [][]byte{good, bad} {
					if err := s.SendMsg(message); err != nil {
						return err
					}
				}
				<-s.Context().Done()
				return nil
			}))
			r := read(t, Settings{Mode: "sotw", SubscribedResources: onlyEntries}, serveGRPC(t, g))
			r.awaitState(t, sources.Unreachable, "failed to unmarshal the received message")
			require.Equal(t, "a", r.names())
		})
	}
}

// TestServerCertificate_ExpiresDuringStream has a server with a certificate that expires while a stream is open.
func TestServerCertificate_ExpiresDuringStream(t *testing.T) {
	certs := testutil.NewAuthority(t)
	var current atomic.Pointer[switched]
	use := func(expired bool) { current.Store(&switched{loopback(certs, expired)}) }
	use(false)
	fakeIstiod := newFakeIstiod()
	fakeIstiod.set(entriesV1, wrapped(t, "shop/a", "a.example.com"))
	address := scripted(t, fakeIstiod.serve, grpc.Creds(switching{&current}))
	r := read(t, Settings{Mode: "sotw", SubscribedResources: onlyEntries, TLS: &TLS{Mode: "SIMPLE", CACertificates: certs.PEM}}, address)
	r.awaitNames(t, "a")

	use(true)
	fakeIstiod.set(entriesV1, wrapped(t, "shop/a", "a.example.com"), wrapped(t, "shop/b", "b.example.com"))
	r.awaitNames(t, "a b") // the stream that is open goes on
	fakeIstiod.end()
	r.awaitState(t, sources.Unreachable, "certificate has expired")
	fakeIstiod.set(entriesV1, wrapped(t, "shop/c", "c.example.com"))
	require.Equal(t, "a b", r.names())
	require.True(t, r.status().Synced)

	use(false)
	r.awaitState(t, sources.Healthy, "")
	r.awaitNames(t, "c")
}

// TestBadInputByDelta has one delta response with every kind of fault. The valid resources take effect, and the
// rejection names the others.
func TestBadInputByDelta(t *testing.T) {
	cut := wrapped(t, "shop/cut", "changed.example.com")
	cut.Value = cut.Value[:len(cut.Value)-5]
	raw, err := anypb.New(specOf(t, entry(t, "raw", "raw.example.com")))
	require.NoError(t, err)
	nacks := make(chan string, 10)
	send := make(chan *discoveryv3.DeltaDiscoveryResponse, 3)
	reader := read(t, Settings{Mode: "delta", SubscribedResources: onlyEntries}, scriptedDelta(t, send, nacks))
	named := func(name string, body *anypb.Any) *discoveryv3.Resource {
		return &discoveryv3.Resource{Name: name, Version: "1", Resource: body}
	}
	fine := func(name string) *discoveryv3.Resource {
		return named("shop/"+name, wrapped(t, "shop/"+name, name+".example.com"))
	}
	send <- &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: entriesV1, SystemVersionInfo: "1", Nonce: "1",
		Resources: []*discoveryv3.Resource{fine("cut"), fine("raw"), fine("gone"), fine("stays")},
	}
	reader.awaitNames(t, "cut gone raw stays")
	send <- &discoveryv3.DeltaDiscoveryResponse{TypeUrl: "unheard.of/v1/Thing", Nonce: "1", Resources: []*discoveryv3.Resource{fine("thing")}}
	send <- &discoveryv3.DeltaDiscoveryResponse{
		TypeUrl: entriesV1, SystemVersionInfo: "2", Nonce: "1",
		Resources: []*discoveryv3.Resource{
			named("shop/cut", cut),
			named("shop/raw", raw),
			named("slashless", wrapped(t, "slashless", "s.example.com")),
			fine("new"),
			fine("new"),
			{},
		},
		RemovedResources: []string{"shop/gone", "shop/never-heard-of", ""},
	}
	reader.awaitNames(t, "cut new raw stays")
	reason := <-nacks
	for _, want := range []string{"shop/cut: ", "shop/raw: ", `"slashless"`} {
		require.Contains(t, reason, want)
	}
	require.NotContains(t, reason, "stays")
	var quarantined []string
	for _, q := range reader.status().Quarantined {
		quarantined = append(quarantined, q.Key().Name)
		require.Equal(t, slices.Contains([]string{"cut", "raw"}, q.Key().Name), q.LastGoodServes, q.Key().Name)
	}
	require.Subset(t, quarantined, []string{"cut", "raw"})
}

// scriptedDelta serves the responses of send on delta streams, and reports rejections.
func scriptedDelta(t *testing.T, send <-chan *discoveryv3.DeltaDiscoveryResponse, nacks chan<- string) string {
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, &deltaServer{send: send, nacks: nacks})
	return serveGRPC(t, g)
}

type deltaServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	send  <-chan *discoveryv3.DeltaDiscoveryResponse
	nacks chan<- string
}

func (d *deltaServer) DeltaAggregatedResources(s discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() {
		for {
			select {
			case r := <-d.send:
				if s.Send(r) != nil {
					return
				}
			case <-s.Context().Done():
				return
			}
		}
	})
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		if e := r.GetErrorDetail(); e != nil {
			d.nacks <- e.GetMessage()
		}
	}
}

// TestDeltaComplaints_EndWithTheirCause: a stream of changes is one that no complete set follows on.
func TestDeltaComplaints_EndWithTheirCause(t *testing.T) {
	nacks := make(chan string, 200)
	send := make(chan *discoveryv3.DeltaDiscoveryResponse, 3)
	r := read(t, Settings{Mode: "delta", SubscribedResources: onlyEntries}, scriptedDelta(t, send, nacks))
	fine := func(name string) *discoveryv3.Resource {
		return &discoveryv3.Resource{Name: "shop/" + name, Version: "1", Resource: wrapped(t, "shop/"+name, name+".example.com")}
	}
	change := func(resources []*discoveryv3.Resource, removed ...string) {
		send <- &discoveryv3.DeltaDiscoveryResponse{
			TypeUrl: entriesV1, SystemVersionInfo: "v", Nonce: "n", Resources: resources,
			RemovedResources: removed,
		}
	}
	change([]*discoveryv3.Resource{fine("a"), fine("b")})
	r.awaitNames(t, "a b")

	for range 100 {
		change([]*discoveryv3.Resource{fine("a"), fine("a"), fine("b"), fine("b"), {}})
		<-nacks
	}
	r.awaitState(t, sources.Degraded, "shop/b: sent twice")
	require.Equal(t, 2, strings.Count(r.status().Message, "sent twice"), "each complaint is made once: %s", r.status().Message)
	change([]*discoveryv3.Resource{fine("a")})
	await(t, "the complaint about a ends", func() bool { return !strings.Contains(r.status().Message, "shop/a") })
	require.NotContains(t, r.status().Message, "no name", "it was about another response")
	r.awaitState(t, sources.Degraded, "shop/b: sent twice")
	change(nil, "shop/b")
	r.awaitState(t, sources.Healthy, "")
}
