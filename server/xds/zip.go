package xds

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcgzip "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// A client that accepts gzip is sent what all streams share compressed, and it is compressed once for all of them: gzip
// members may follow each other (RFC 1952, 2.2), so a message is a member of the stream's own, which is stored as it is, and
// those of the parts. gRPC compresses whole messages and knows nothing of that; so the compressor that is registered for gzip
// passes through what comes with a mark, and leaves everything else to gRPC's own.

// zipLeast is the size in bytes from which a part is worth compressing.
const zipLeast = 1 << 10

func isZipMark(b []byte) bool { return len(b) > 0 && &b[0] == &zipMark.ReadOnlyData()[0] }

// zipMark stands before what is compressed already. It is known by its place in memory.
var zipMark = mem.SliceBuffer("zipped")

func init() { //nolint:gochecknoinits // gRPC takes compressors at no other time
	encoding.RegisterCompressor(passing{encoding.GetCompressor(grpcgzip.Name)})
}

type passing struct{ encoding.Compressor }

// Decompress has what a client compressed unpacked in turns, a piece at a time: it may be a thousand times as large as what came.
func (p passing) Decompress(r io.Reader) (io.Reader, error) {
	plain, err := p.Compressor.Decompress(r)
	if err != nil {
		return nil, err
	}
	return inTurns{plain}, nil
}

// inTurns reads what is there already when it is its turn.
type inTurns struct{ io.Reader }

func (r inTurns) Read(b []byte) (n int, err error) {
	_ = heavyWork.Do(context.Background(), "", func() { n, err = r.Reader.Read(b) }) // whose it is, gRPC does not say
	return n, err
}

func (p passing) Compress(w io.Writer) (io.WriteCloser, error) {
	return &passingWriter{w, p.Compressor, nil}, nil
}

// passingWriter decides by the first write.
type passingWriter struct {
	to     io.Writer
	gzip   encoding.Compressor
	writer io.WriteCloser
}

func (p *passingWriter) Write(b []byte) (n int, err error) {
	if p.writer == nil && isZipMark(b) {
		p.writer = asItIs{p.to}
		return len(b), nil
	}
	if err := p.begin(); err != nil {
		return 0, err
	}
	return p.writer.Write(b)
}

func (p *passingWriter) begin() (err error) {
	if p.writer == nil {
		p.writer, err = p.gzip.Compress(p.to)
	}
	return err
}

func (p *passingWriter) Close() error {
	if err := p.begin(); err != nil {
		return err
	}
	return p.writer.Close()
}

type asItIs struct{ io.Writer }

func (asItIs) Close() error { return nil }

// acceptsGzip has the responses of the stream compressed, if its client accepts that and takes several members, and reports
// whether it does. gRPC's C core (Python, C++) says that it accepts gzip and fails on the second member.
func acceptsGzip(ss grpc.ServerStream) bool {
	agent := strings.Join(metadata.ValueFromIncomingContext(ss.Context(), "user-agent"), " ")
	accepted, err := grpc.ClientSupportedCompressors(ss.Context())
	return strings.Contains(agent, "grpc-go/") && err == nil && slices.Contains(accepted, grpcgzip.Name) &&
		grpc.SetSendCompressor(ss.Context(), grpcgzip.Name) == nil
}

// zip is a run of bytes compressed. It is kept for as long as what it belongs to: it is a tenth of its size, and takes far more
// time to make.
type zip struct {
	once   sync.Once
	member *encoded
}

// zipped returns the bytes as a member of gzip, compressed if they are shared by streams.
func (e *encoded) zipped() *encoded {
	if e.zip == nil || e.len() < zipLeast {
		return newEncoded(stored(e.buf.ReadOnlyData()))
	}
	e.zip.once.Do(func() {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is a valid one
		_, _ = w.Write(e.buf.ReadOnlyData())            // a buffer takes everything
		_ = w.Close()
		e.zip.member = newEncoded(bytes.Clone(b.Bytes()))
	})
	return e.zip.member
}

// stored is a member of gzip that has b as it is.
func stored(b []byte) []byte {
	const block = 1<<16 - 1
	m := make([]byte, 0, 10+len(b)+5*(len(b)/block+1)+8)
	m = append(m, 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255)
	for rest := b; ; {
		n := min(len(rest), block)
		last := byte(0)
		if n == len(rest) {
			last = 1
		}
		m = append(m, last)
		m = binary.LittleEndian.AppendUint16(m, uint16(n))
		m = binary.LittleEndian.AppendUint16(m, ^uint16(n))
		m = append(m, rest[:n]...)
		if rest = rest[n:]; last == 1 {
			break
		}
	}
	m = binary.LittleEndian.AppendUint32(m, crc32.ChecksumIEEE(b))
	return binary.LittleEndian.AppendUint32(m, uint32(len(b))) //nolint:gosec // the length modulo 2^32, as the format has it
}
