package wire

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// Frame is a message that knows its own bytes, in or out.
type Frame interface {
	// Encoded returns the message for sending. The buffers are shared and never written to.
	Encoded() mem.BufferSlice
	// Decode reads a received message. The data is the transport's: whoever keeps it takes a reference.
	Decode(data mem.BufferSlice) error
}

// Codec is a gRPC codec for Frames. It has the name "proto", because its messages are protobuf.
type Codec struct{}

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(Frame)
	if !ok {
		return nil, fmt.Errorf("wire: cannot encode a %T", v)
	}
	return f.Encoded(), nil
}

// Unmarshal implements encoding.CodecV2.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(Frame)
	if !ok {
		return fmt.Errorf("wire: cannot decode into a %T", v)
	}
	return f.Decode(data)
}

// Name implements encoding.CodecV2.
func (Codec) Name() string { return "proto" }

// Bytes is a message that is kept as bytes.
type Bytes []byte

// Encoded implements Frame.
func (b *Bytes) Encoded() mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(*b)} }

// Decode implements Frame; it copies.
func (b *Bytes) Decode(data mem.BufferSlice) error {
	*b = data.Materialize()
	return nil
}
