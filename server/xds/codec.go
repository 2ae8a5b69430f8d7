package xds

import (
	"context"

	"tributary/server/xds/wire"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec passes frames and other encoded messages through, and decodes requests by hand. All else is for the standard
// codec.
type codec struct{ encoding.CodecV2 }

// The windows of a stream and of a connection, in bytes. gRPC's own grow to megabytes. A client may send this much of a
// request before the server reads it.
const (
	streamWindow = 64 << 10
	connWindow   = 256 << 10
)

// requestBytes is the size of one request. A request that resumes a subscription to 100,000 resources has their names
// and versions, some 8 MB.
const requestBytes = 16 << 20

// ServerOptions returns the options of the gRPC server for s: the codec, the size limit of a request, and a small read
// buffer, since requests are small and idle streams many. Other services can share the gRPC server. The options of a
// Limiter of server/transport, which come after these, add other limits, and keepalives that find vanished clients.
// Interceptors can reserve memory for a request; its OnRelease sets the function that frees it.
func (s *Server) ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.ReadBufferSize(4 << 10),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.MaxRecvMsgSize(requestBytes),
	}
}

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	switch message := message.(type) {
	case *frame:
		return message.data, nil
	case mem.BufferSlice: // an encoded answer of another service
		return message, nil
	}
	return c.CodecV2.Marshal(message)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) (err error) {
	request, ok := v.(*wire.Request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	// gRPC does not pass the context of the stream
	_ = runHeavy(context.Background(), request.Host, data.Len() > heavyBytes, func() { err = request.Unmarshal(data) })
	return err
}
