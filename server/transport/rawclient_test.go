package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
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
	return r.openMethod(method, nil)
}

// openWith begins a stream of delta ADS with more headers.
func (r *raw) openWith(headers [][2]string) (id uint32) {
	return r.openMethod("DeltaAggregatedResources", headers)
}

func (r *raw) openMethod(method string, headers [][2]string) (id uint32) {
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range append([][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", "/envoy.service.discovery.v3.AggregatedDiscoveryService/" + method},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	}, headers...) {
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
