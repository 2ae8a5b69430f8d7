package xds

import (
	"bytes"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec passes frames through as they are and reads requests by hand; everything else is left to the standard codec.
type codec struct{ encoding.CodecV2 }

// requestWindow bounds, in bytes, what a stream that waits for its turn to begin can have sent already. gRPC's own window
// grows to megabytes.
const requestWindow = 256 << 10

// pooledRequest is the size in bytes up to which requests are read into memory that is used again. Larger ones bring along
// versions, and are kept until these were looked at.
const pooledRequest = 32 << 10

// ServerOptions returns what the gRPC server that carries a Server must be made with: the codec, a window for requests, and a
// small read buffer, since requests are small and idle streams many. Other services can share the gRPC server.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.ReadBufferSize(4 << 10),
		grpc.StaticStreamWindowSize(requestWindow), grpc.StaticConnWindowSize(requestWindow),
		grpc.MaxRecvMsgSize(maxRequest),
	}
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return f.data, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if data.Len() > pooledRequest {
		return r.decode(data.Materialize())
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	if err := r.decode(buf.ReadOnlyData()); err != nil {
		return err
	}
	if r.initial != nil {
		r.initial.request = bytes.Clone(r.initial.request)
	}
	return nil
}
