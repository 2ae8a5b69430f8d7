package xds

import (
	"bytes"
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
)

// A client that says nothing for keepaliveTime is pinged, and has keepaliveTimeout to answer.
const keepaliveTime, keepaliveTimeout = 30 * time.Second, 10 * time.Second

// codec passes frames through as they are, and what others have encoded, and reads requests by hand; everything else is left to the
// standard codec.
type codec struct{ encoding.CodecV2 }

// The windows of a stream and of a connection, in bytes. gRPC's own grow to megabytes. A stream may send this much of a request
// before it is read; then all of it, for which there is room.
const (
	streamWindow = 64 << 10
	connWindow   = 256 << 10
)

const (
	// pooledRequest is the size in bytes up to which requests are put together, in memory that is used again. Larger ones bring
	// along versions, and are kept as they came until these were looked at.
	pooledRequest = 32 << 10
	// leastPart is how large in bytes the parts of a large request are at least, on average. Smaller ones take more memory than
	// what they hold; of gRPC's clients none sends such.
	leastPart = 4 << 10
)

// ServerOptions returns the options of the gRPC server that carries s: the codec, the bound of a request, keepalives that find clients
// that vanished within 40 s, and a small read buffer, since requests are small and idle streams many. Other services can share the gRPC
// server. Interceptors and listeners, such as those of server/transport, bound what clients cost beyond the Limits of s: they give each
// request a function that ends the reservation of its memory.
func (s *Server) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.ReadBufferSize(4 << 10),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.MaxRecvMsgSize(s.opts.Limits.RequestBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
	}
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case *frame:
		return v.data, nil
	case mem.BufferSlice: // an answer of another service, which has encoded it
		return v, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) (err error) {
	r, ok := v.(*request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	// gRPC does not say when nobody needs it any more
	_ = heavily(context.Background(), r.host, data.Len() > heavyBytes, func() { err = r.unmarshal(data) })
	return err
}

func (r *request) unmarshal(data mem.BufferSlice) error {
	switch size := data.Len(); {
	case size <= pooledRequest:
		buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer buf.Free()
		err := r.decode(buf.ReadOnlyData())
		if r.initial != nil {
			r.initial.parts = [][]byte{bytes.Clone(buf.ReadOnlyData())}
		}
		if r.tooMany() {
			r.whole = &versions{parts: [][]byte{bytes.Clone(buf.ReadOnlyData())}}
		}
		return err
	case size/len(data) < leastPart:
		whole := data.Materialize()
		err := r.decode(whole)
		if r.tooMany() {
			r.whole = &versions{parts: [][]byte{whole}}
		}
		return err
	}
	parts := make([][]byte, len(data))
	for i, b := range data {
		parts[i] = b.ReadOnlyData()
	}
	err := r.decode(parts...)
	switch {
	case r.tooMany():
		data.Ref()
		r.whole = &versions{parts: parts, memory: data}
	case r.initial != nil:
		data.Ref()
		r.initial.memory = data
	}
	return err
}
