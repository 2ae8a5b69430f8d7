package testutil

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// RawClient is a connection of a client of ADS that writes HTTP/2 frames as it likes, as clients of gRPC do not.
type RawClient struct {
	T      *testing.T
	Conn   net.Conn
	Framer *http2.Framer
	Closed chan struct{} // when the server has closed the connection
	Resets chan uint32   // streams that the server has reset
	next   uint32
}

// DialRaw connects to a server at addr from a local address, of which loopback has more than one on Linux.
func DialRaw(t *testing.T, host, addr string) *RawClient {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}).DialContext(t.Context(), "tcp", addr)
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Skip("loopback has no address ", host)
	}
	require.NoError(t, err)
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	rawClient := &RawClient{
		T: t, Conn: conn, Framer: http2.NewFramer(conn, conn), Closed: make(chan struct{}), Resets: make(chan uint32, 100),
		next: 1,
	}
	require.NoError(t, rawClient.Framer.WriteSettings())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(rawClient.Closed)
		for {
			frame, err := rawClient.Framer.ReadFrame()
			if err != nil {
				return
			}
			if f, ok := frame.(*http2.RSTStreamFrame); ok {
				rawClient.Resets <- f.StreamID
			}
		}
	})
	t.Cleanup(func() {
		if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			require.NoError(t, err)
		}
		wg.Wait()
	})
	return rawClient
}

// Open begins a stream of ADS.
func (r *RawClient) Open(delta bool) (id uint32) {
	method := "StreamAggregatedResources"
	if delta {
		method = "DeltaAggregatedResources"
	}
	return r.OpenMethod(method, nil)
}

// OpenWith begins a stream of delta ADS with more headers.
func (r *RawClient) OpenWith(headers [][2]string) (id uint32) {
	return r.OpenMethod("DeltaAggregatedResources", headers)
}

// OpenMethod begins a stream of a method of ADS.
func (r *RawClient) OpenMethod(method string, headers [][2]string) (id uint32) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range append([][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", "/envoy.service.discovery.v3.AggregatedDiscoveryService/" + method},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	}, headers...) {
		require.NoError(r.T, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	id = r.next
	r.next += 2
	require.NoError(r.T, r.Framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: block.Bytes(),
		EndHeaders: true,
	}))
	return id
}

// Data sends bytes on a stream, in frames of at most 16 KiB.
func (r *RawClient) Data(id uint32, b []byte) {
	for len(b) > 0 {
		n := min(len(b), 16<<10)
		require.NoError(r.T, r.Framer.WriteData(id, false, b[:n]))
		b = b[n:]
	}
}

// Message is a request as gRPC frames it.
func (r *RawClient) Message(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	require.NoError(r.T, err)
	return append(MessagePrefix(len(b)), b...)
}

// MessagePrefix is the prefix of a message of size bytes.
func MessagePrefix(size int) []byte {
	return binary.BigEndian.AppendUint32([]byte{0}, uint32(size)) //nolint:gosec // as a test has it
}
