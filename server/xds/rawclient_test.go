package xds

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// raw is a connection of a client that writes frames as it likes, as clients of gRPC do not.
type raw struct {
	w      *fixture
	conn   net.Conn
	framer *http2.Framer
	closed chan struct{} // when the server has closed the connection
	resets chan uint32   // streams that the server has reset
	next   uint32
}

func (w *fixture) raw() *raw { return w.rawFrom("127.0.0.1") }

// rawFrom is raw from an address, of which loopback has more than one on Linux.
func (w *fixture) rawFrom(host string) *raw {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}).DialContext(w.t.Context(), "tcp", w.addr)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		w.t.Skip("loopback has no address ", host)
	}
	require.NoError(w.t, err)
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(w.t, err)
	r := &raw{w: w, conn: conn, framer: http2.NewFramer(conn, conn), closed: make(chan struct{}), resets: make(chan uint32, 100), next: 1}
	require.NoError(w.t, r.framer.WriteSettings())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(r.closed)
		for {
			f, err := r.framer.ReadFrame()
			if err != nil {
				return
			}
			if f, ok := f.(*http2.RSTStreamFrame); ok {
				r.resets <- f.StreamID
			}
		}
	})
	w.t.Cleanup(func() {
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			require.NoError(w.t, err)
		}
		wg.Wait()
	})
	return r
}

// open begins a stream of ADS.
func (r *raw) open(delta bool) (id uint32) {
	method := "StreamAggregatedResources"
	if delta {
		method = "DeltaAggregatedResources"
	}
	return r.openMethod(method)
}

func (r *raw) openMethod(method string) (id uint32) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", "/envoy.service.discovery.v3.AggregatedDiscoveryService/" + method},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		require.NoError(r.w.t, enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	id = r.next
	r.next += 2
	require.NoError(r.w.t, r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}))
	return id
}

// data sends bytes on a stream, in frames of at most 16 KiB.
func (r *raw) data(id uint32, b []byte) {
	for len(b) > 0 {
		n := min(len(b), 16<<10)
		require.NoError(r.w.t, r.framer.WriteData(id, false, b[:n]))
		b = b[n:]
	}
}

// message is a request as gRPC frames it.
func (r *raw) message(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	require.NoError(r.w.t, err)
	return append(prefixOf(len(b)), b...)
}

// prefixOf is the prefix of a message of size bytes.
func prefixOf(size int) []byte {
	return binary.BigEndian.AppendUint32([]byte{0}, uint32(size)) //nolint:gosec // as a test has it
}

// deaf opens a stream that asks for everything of a type, and reads next to nothing. It returns a function that hangs up.
func (w *fixture) deaf(typeURL string) (hangUp func()) {
	r := w.raw()
	r.data(r.open(true), r.message(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: typeURL}))
	return func() { _ = r.conn.Close() }
}

// large makes a type of which gRPC does not take all responses at once if the client does not read.
func (w *fixture) large(typeURL string) {
	pad := strings.Repeat("x", maxChunk-1000)
	w.coll(typeURL).Apply(Commit{Put: []*Entry{thing(w.t, "a", "1", pad), thing(w.t, "b", "1", pad), thing(w.t, "c", "1", pad)}})
	w.coll(typeURL).MarkSynced()
}

// serveOn runs a gRPC server on a port of its own.
func serveOn(t *testing.T, g *grpc.Server) (addr string, stop func()) {
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- g.Serve(lis) }()
	return lis.Addr().String(), func() {
		g.Stop()
		require.NoError(t, <-done)
	}
}
