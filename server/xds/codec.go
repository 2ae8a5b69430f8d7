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

// A client that is silent for keepaliveTime is pinged, and has keepaliveTimeout to answer.
const keepaliveTime, keepaliveTimeout = 30 * time.Second, 10 * time.Second

// codec passes frames and other encoded messages through, and decodes requests by hand. All else is for the standard codec.
type codec struct{ encoding.CodecV2 }

// The windows of a stream and of a connection, in bytes. gRPC's own grow to megabytes. A client may send this much of a request
// before the server reads it.
const (
	streamWindow = 64 << 10
	connWindow   = 256 << 10
)

const (
	// Requests up to pooledRequest bytes are copied into pooled memory. Larger ones, which carry resume versions, keep gRPC's
	// buffers until compared.
	pooledRequest = 32 << 10
	// leastPart: below this average buffer size a large request is copied into one buffer.
	leastPart = 4 << 10
)

// ServerOptions returns the options of the gRPC server for s: the codec, the size limit of a request, keepalives that find vanished
// clients within 40 s, and a small read buffer, since requests are small and idle streams many. Other services can share the gRPC
// server. Interceptors and listeners, such as those of server/transport, add limits to those of s. They can reserve memory for a
// request and be told, by its OnRelease, when it is free.
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
	case mem.BufferSlice: // an encoded answer of another service
		return v, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) (err error) {
	r, ok := v.(*request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	// gRPC does not pass the context of the stream
	_ = runHeavy(context.Background(), r.host, data.Len() > heavyBytes, func() { err = r.unmarshal(data) })
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
