package xds

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec passes frames through as they are and reads requests by hand; everything else is left to the standard codec.
type codec struct{ encoding.CodecV2 }

// ServerOptions returns what the gRPC server that carries a Server must be made with: the codec, and a small read
// buffer, since requests are small and idle streams many. Other services can share the gRPC server.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.ReadBufferSize(4 << 10),
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
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return r.decode(buf.ReadOnlyData())
}
