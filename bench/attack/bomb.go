package attack

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/bench/wire"
)

// bombSize is the decompressed size of a bomb: a little less than tributary's default limit, so that the server reads
// all of it.
const bombSize = 15 << 20

// bomb is a request of zeros in an unknown field, compressed to a thousandth.
var bomb = sync.OnceValue(func() []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(protowire.AppendVarint(protowire.AppendTag(nil, 15, protowire.BytesType), bombSize)) // into memory
	_, _ = w.Write(make([]byte, bombSize))
	_ = w.Close()
	return packed.Bytes()
})

// register has gRPC compress with it, in this process.
var register = sync.OnceFunc(func() { encoding.RegisterCompressor(packed{}) })

// sendBombs sends them, 20 a second on each stream.
func sendBombs(ctx context.Context, r *run, n int) error {
	register()
	s, hangUp, err := r.stream(ctx, n, wire.MethodDelta, grpc.UseCompressor(packed{}.Name()))
	if err != nil {
		return err
	}
	defer hangUp()
	err = each(ctx, 20, func() error {
		request := wire.Bytes("in place of it a bomb is sent")
		r.sent.Add(1)
		return s.SendMsg(&request)
	})
	if ctx.Err() == nil {
		return drain(s)
	}
	return err
}

// packed is a compressor that makes a bomb of anything, so that the attacker has no work.
type packed struct{}

// Name implements encoding.Compressor.
func (packed) Name() string { return "gzip" }

// Compress implements encoding.Compressor.
func (packed) Compress(w io.Writer) (io.WriteCloser, error) { return bombWriter{w}, nil }

// Decompress implements encoding.Compressor.
func (packed) Decompress(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }

type bombWriter struct{ to io.Writer }

func (bombWriter) Write(b []byte) (int, error) { return len(b), nil }

func (b bombWriter) Close() error {
	_, err := b.to.Write(bomb())
	return err
}
