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

// Shared parts of responses are compressed once for all clients that accept gzip: gzip members may follow each other
// (RFC 1952, 2.2), so a message is a member with the stream's own header, uncompressed, and the members of the parts.
// gRPC can only compress whole messages; so our compressor for gzip passes through messages with a mark, and leaves all
// others to gRPC's compressor.

// zipLeast is the smallest part, in bytes, that is compressed.
const zipLeast = 1 << 10

func isZipMark(b []byte) bool { return len(b) > 0 && &b[0] == &zipMark.ReadOnlyData()[0] }

// zipMark marks a message as compressed. It is recognized by its address in memory.
var zipMark = mem.SliceBuffer("zipped")

func init() { //nolint:gochecknoinits // gRPC allows it only now
	encoding.RegisterCompressor(passing{encoding.GetCompressor(grpcgzip.Name)})
}

type passing struct{ encoding.Compressor }

// Decompress unpacks a client's message piece by piece, each as heavy work: it may be a thousand times as large as its
// compressed form.
func (p passing) Decompress(r io.Reader) (io.Reader, error) {
	plain, err := p.Compressor.Decompress(r)
	if err != nil {
		return nil, err
	}
	return heavyReader{plain}, nil
}

// heavyReader makes each Read heavy work; the compressed data is in memory.
type heavyReader struct{ io.Reader }

func (r heavyReader) Read(b []byte) (n int, err error) {
	_ = heavyWork.Do(context.Background(), "", func() { n, err = r.Reader.Read(b) }) // gRPC does not tell the client
	return n, err
}

func (p passing) Compress(w io.Writer) (io.WriteCloser, error) {
	return &passingWriter{w, p.Compressor, nil}, nil
}

// passingWriter compresses unless the first write is the mark.
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

// enableGzip compresses the responses of the stream, if its client accepts gzip with several members, and reports
// whether it does. gRPC's C core (Python, C++) claims to accept gzip and fails on the second member.
func enableGzip(serverStream grpc.ServerStream) bool {
	agent := strings.Join(metadata.ValueFromIncomingContext(serverStream.Context(), "user-agent"), " ")
	accepted, err := grpc.ClientSupportedCompressors(serverStream.Context())
	return strings.Contains(agent, "grpc-go/") && err == nil && slices.Contains(accepted, grpcgzip.Name) &&
		grpc.SetSendCompressor(serverStream.Context(), grpcgzip.Name) == nil
}

// zip is the compressed form of a run of bytes. It is a tenth of their size and slow to make, so it lives as long as
// their owner.
type zip struct {
	once   sync.Once
	member *encoded
}

// zipped returns the bytes as a member of gzip, compressed if streams share them.
func (e *encoded) zipped() *encoded {
	if e.zip == nil || e.len() < zipLeast {
		return newEncoded(stored(e.buf.ReadOnlyData()))
	}
	e.zip.once.Do(func() {
		var buffer bytes.Buffer
		w, _ := gzip.NewWriterLevel(&buffer, gzip.BestSpeed) // the level is a valid one
		_, _ = w.Write(e.buf.ReadOnlyData())                 // a buffer takes everything
		_ = w.Close()
		e.zip.member = newEncoded(bytes.Clone(buffer.Bytes()))
	})
	return e.zip.member
}

// stored returns a gzip member with uncompressed content.
func stored(content []byte) []byte {
	const block = 1<<16 - 1
	member := make([]byte, 0, 10+len(content)+5*(len(content)/block+1)+8)
	member = append(member, 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255)
	for rest := content; ; {
		size := min(len(rest), block)
		last := byte(0)
		if size == len(rest) {
			last = 1
		}
		member = append(member, last)
		member = binary.LittleEndian.AppendUint16(member, uint16(size))
		member = binary.LittleEndian.AppendUint16(member, ^uint16(size))
		member = append(member, rest[:size]...)
		if rest = rest[size:]; last == 1 {
			break
		}
	}
	member = binary.LittleEndian.AppendUint32(member, crc32.ChecksumIEEE(content))
	return binary.LittleEndian.AppendUint32(member,
		uint32(len(content))) //nolint:gosec // the length modulo 2^32, as the format has it
}
