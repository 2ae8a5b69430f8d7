package intake

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// gzipMagic begins a text of gzip. No message of protobuf begins so: it has no such type of fields.
const gzipMagic = "\x1f\x8b"

// DialOption leaves compressed messages to the Codec of the call. gRPC itself would decompress them without a budget.
func DialOption() grpc.DialOption {
	return grpc.WithDecompressor(compressed{}) //nolint:staticcheck // encoding.Compressor has no context
}

type compressed struct{}

func (compressed) Type() string { return "gzip" }

func (compressed) Do(r io.Reader) ([]byte, error) { return io.ReadAll(r) } // gRPC has received all of it

// Codec decodes the messages of one stream or call. A message counts until Release, or until the next one.
type Codec struct {
	encoding.CodecV2

	ctx      context.Context //nolint:containedctx // of the stream
	maxBytes int
	decoded  func(message []byte) (bytes int)
	lease    *Lease
}

// NewCodec returns a codec for messages of at most maxBytes bytes, decompressed. ctx names the source, and decoded
// returns how much memory a decoded message takes.
func NewCodec(
	ctx context.Context, messages encoding.CodecV2, maxBytes int, decoded func(message []byte) (bytes int),
) *Codec {
	return &Codec{CodecV2: messages, ctx: ctx, maxBytes: maxBytes, decoded: decoded}
}

// Unmarshal implements encoding.CodecV2.
func (c *Codec) Unmarshal(data mem.BufferSlice, target any) (err error) {
	c.Lease().Release()
	_, c.lease = Begin(c.ctx)
	defer func() {
		if err != nil {
			c.Lease().Release()
		}
	}()
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	text := buffer.ReadOnlyData()
	if bytes.HasPrefix(text, []byte(gzipMagic)) {
		if text, err = c.expand(text); err != nil {
			return err
		}
	} else if err := c.lease.Take(c.ctx, len(text)); err != nil {
		return err
	}
	if err := c.lease.Take(c.ctx, c.decoded(text)); err != nil {
		return err
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, target)
}

// expand decompresses a message.
func (c *Codec) expand(text []byte) ([]byte, error) {
	from, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	message, err := io.ReadAll(io.LimitReader(c.lease.Reader(c.ctx, from), int64(c.maxBytes)+1))
	if err == nil && len(message) > c.maxBytes {
		err = fmt.Errorf("the message has more than %d bytes, decompressed", c.maxBytes)
	}
	return message, err
}

// Lease returns the memory of the last message. The caller has to release it.
func (c *Codec) Lease() *Lease {
	lease := c.lease
	c.lease = nil
	return lease
}
