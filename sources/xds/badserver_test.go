package xds

import (
	"crypto/tls"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	prometheustest "github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/internal/testutil"
	"tributary/internal/xdstest"
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
			fakeIstiod := newIstiod(t, "a")
			var bad atomic.Bool
			met := make(chan struct{}, 1)
			reader := read(t, sotwEntries, scripted(t, func(s stream) error {
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
			fakeIstiod.EndStreams()
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
	t.Parallel()
	for _, c := range []struct {
		name  string
		serve func(net.Conn)
		shown string
	}{
		{"it closes each at once", func(conn net.Conn) { _ = conn.Close() }, "it closed the connection at once"},
		{"it is silent", func(net.Conn) {}, "it accepts connections, but does not answer"},
		{
			"it says something else", func(conn net.Conn) { _, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.6\r\n")) },
			"it does not answer as a server of gRPC does",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			impatient := func(s *Source) { s.config.ConnectTimeout = 50 * time.Millisecond }
			r := readWith(t, Settings{Mode: "sotw"}, impatient, listening(t, c.serve))
			r.awaitState(t, sources.Unreachable, c.shown)
			require.False(t, r.status().Synced)

			good := scripted(t, newIstiod(t, "a").serve)
			turned := make(chan struct{})
			turn := sync.OnceFunc(func() { close(turned) })
			defer turn()
			r = readWith(t, sotwEntries, impatient, listening(t, func(conn net.Conn) {
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

// TestLargeResponse_ReportsUnnamedResourceInShort is about 200 MB, which the default limit lets through.
func TestLargeResponse_ReportsUnnamedResourceInShort(t *testing.T) {
	f := newIstiod(t, "a")
	r := read(t, sotwEntries, scripted(t, f.serve, grpc.MaxSendMsgSize(1<<30)))
	r.awaitNames(t, "a")
	f.Set(entriesV1, append(sent(t, "b"), &anypb.Any{TypeUrl: resource.MCPTypeURL, Value: make([]byte, 80<<20)})...)
	r.awaitNames(t, "a b") // the large one may be any
	r.awaitState(t, sources.Degraded, "1 resources cannot be read and have no name")
	reason := <-f.Nacks
	require.Contains(t, reason, entriesV1+" (unnamed): ")
	require.Less(t, len(reason), 1000)
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (bytesCodec) Unmarshal([]byte, any) error   { return nil }
func (bytesCodec) Name() string                  { return "proto" }

// TestMalformedResponse_KeepsResources is about a message that ends in the middle, and about one that is something
// else, after a good one.
func TestMalformedResponse_KeepsResources(t *testing.T) {
	good, err := proto.Marshal(&discoveryv3.DiscoveryResponse{
		TypeUrl: entriesV1, Nonce: "1", Resources: sent(t, "a"),
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
			address, _ := xdstest.Serve(t, g)
			r := read(t, sotwEntries, address)
			r.awaitState(t, sources.Unreachable, "failed to unmarshal the received message")
			require.Equal(t, "a", r.names())
		})
	}
}

// TestServerCertificate_ExpiresDuringStream has a server with a certificate that expires while a stream is open.
func TestServerCertificate_ExpiresDuringStream(t *testing.T) {
	certs := testutil.NewAuthority(t)
	var current atomic.Pointer[tls.Certificate]
	use := func(expired bool) { current.Store(certificate(certs, expired)) }
	use(false)
	fakeIstiod := newIstiod(t, "a")
	address := scripted(t, fakeIstiod.serve, grpc.Creds(presenting(current.Load)))
	r := read(t, Settings{Mode: "sotw", SubscribedResources: onlyEntries, TLS: &TLS{Mode: "SIMPLE", CACertificates: certs.PEM}}, address)
	r.awaitNames(t, "a")

	use(true)
	fakeIstiod.set("a", "b")
	r.awaitNames(t, "a b") // the stream that is open goes on
	fakeIstiod.EndStreams()
	r.awaitState(t, sources.Unreachable, "certificate has expired")
	fakeIstiod.set("c")
	require.Equal(t, "a b", r.names())
	require.True(t, r.status().Synced)

	use(false)
	r.awaitState(t, sources.Healthy, "")
	r.awaitNames(t, "c")
}

// TestDelta_BadInputReported has one delta response with every kind of fault. The valid resources take effect, and the
// rejection names the others.
func TestDelta_BadInputReported(t *testing.T) {
	server := xdstest.ListenDelta(t)
	reader := read(t, deltaEntries, server.Address)
	stream := server.Next()
	stream.Receive()
	stream.Exchange(sentDelta(t, "cut", "raw", "gone", "stays"))
	reader.awaitNames(t, "cut gone raw stays")
	unknown, bad := sentDelta(t, "thing"), sentDelta(t, "cut", "raw", "new", "new", "-gone", "-never-heard-of")
	unknown.TypeUrl = "unheard.of/v1/Thing"
	bad.Resources[0].Resource = truncated(t, "cut")
	bad.Resources[1].Resource = xdstest.Packed(t, specOf(t, entry(t, "raw", "raw.example.com")))
	bad.Resources = append(bad.Resources, &discoveryv3.Resource{},
		&discoveryv3.Resource{Name: "slashless", Version: "1", Resource: wrapped(t, "slashless", "s.example.com")})
	bad.RemovedResources = append(bad.RemovedResources, "")
	stream.Send(unknown)
	reason := stream.Exchange(bad).GetErrorDetail().GetMessage()
	reader.awaitNames(t, "cut new raw stays")
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

// TestDeltaComplaints_EndWithTheirCause: a stream of changes is one that no complete set follows on.
func TestDeltaComplaints_EndWithTheirCause(t *testing.T) {
	server := xdstest.ListenDelta(t)
	r := read(t, deltaEntries, server.Address)
	stream := server.Next()
	stream.Receive()
	stream.Exchange(sentDelta(t, "a", "b"))
	r.awaitNames(t, "a b")

	twice := sentDelta(t, "a", "a", "b", "b")
	twice.Resources = append(twice.Resources, &discoveryv3.Resource{})
	for range 100 {
		require.NotNil(t, stream.Exchange(twice).GetErrorDetail())
	}
	r.awaitState(t, sources.Degraded, "shop/b: sent twice")
	require.Equal(t, 2, strings.Count(r.status().Message, "sent twice"), "each complaint is made once: %s", r.status().Message)
	stream.Send(sentDelta(t, "a"))
	await(t, "the complaint about a ends", func() bool { return !strings.Contains(r.status().Message, "shop/a") })
	require.NotContains(t, r.status().Message, "no name", "it was about another response")
	r.awaitState(t, sources.Degraded, "shop/b: sent twice")
	stream.Send(sentDelta(t, "-b"))
	r.awaitState(t, sources.Healthy, "")
}

func TestUnreportedRemovals_FoundByCompare(t *testing.T) {
	resources := make(chan *discoveryv3.DeltaDiscoveryResponse, 1)
	resources <- sentDelta(t, "a", "b", "c")
	// It begins every stream with its resources, and reports no removals.
	forgetful := &xdstest.Server{Delta: func(_ int, s xdstest.DeltaStream) error {
		response := <-resources
		resources <- response
		if err := s.Send(response); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	}}
	r := readWith(t, deltaEntries, func(s *Source) { s.config.CompareAfter = time.Millisecond }, forgetful.Serve(t))
	r.awaitNames(t, "a b c")
	r.runAgain(t, func() {
		<-resources
		resources <- sentDelta(t, "b", "c")
	})
	r.awaitNames(t, "b c")
	require.GreaterOrEqual(t, prometheustest.ToFloat64(r.source.differences), 1.0)
}
