package config_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"tributary/config"
	"tributary/internal/intake"
	"tributary/internal/xdstest"
	"tributary/sources"
	"tributary/sources/consul/consultest"
	"tributary/sources/eureka/eurekatest"
	"tributary/sources/kube/kubetest"
	"tributary/sources/nacos/nacostest"
)

// sumLimits are small, so that the floods of these tests are short.
var sumLimits = intake.Limits{Answer: 4 << 20, Memory: 16 << 20, Objects: 4 << 20}

// floodRow has a server with endless responses, and a well-behaved one.
type floodRow struct {
	query   string // of the address
	hostile func(t *testing.T) string
	honest  func(t *testing.T) string // nil if recovery is not tested
}

const bomb = "takes more than 4194304 bytes of memory, decompressed and decoded (limits.answerBytes)"

// floodRows has the servers of schemes. A scheme without a row gets httpBomb.
var floodRows = map[string]floodRow{
	"consul":            {"", httpBomb, func(t *testing.T) string { return consultest.New(t).Address() }},
	"consul?kind=dubbo": {"", httpBomb, func(t *testing.T) string { return consultest.New(t).Address() }},
	"consul-kv":         {"", httpBomb, func(t *testing.T) string { return consultest.New(t).Address() }},
	"eureka":            {"", httpBomb, func(t *testing.T) string { return eurekatest.Start(t).Host() }},
	"k8s": {"", httpBomb, func(t *testing.T) string {
		return kubetest.Start(t, "serviceentries.networking.istio.io").Host()
	}},
	"nacos?kind=dubbo":    {"?kind=dubbo&grpcOffset=0", grpcBomb, honestNacos},
	"nacos?kind=services": {"?kind=services&grpcOffset=0", grpcBomb, honestNacos},
	"xds":                 {"", grpcBomb, honestXDS},
	"zookeeper":           {"", hugeZooKeeper, emptyZooKeeper},
}

func honestNacos(t *testing.T) string {
	address := strings.TrimPrefix(nacostest.Start(t).Address(), "nacos://")
	host, _, _ := strings.Cut(address, "?")
	return host
}

// TestSums runs every source against a server with responses that expand without end: the memory stays below the
// budget, the health names the address, the figure and the key, and the source recovers when the server behaves.
func TestSums(t *testing.T) {
	for _, scheme := range config.Schemes() {
		label := scheme.Names[0]
		if scheme.Kind != "" {
			label += "?kind=" + scheme.Kind
		}
		floodRow, exists := floodRows[label]
		if !exists {
			floodRow.hostile = httpBomb
		}
		if !strings.Contains(scheme.Address, "%s") { // it reads no server
			continue
		}
		t.Run(label, func(t *testing.T) {
			t.Parallel() // it mostly waits for retries
			server := newSwitch(t, floodRow.hostile(t))
			address := strings.Replace(scheme.Address, "%s", server.address, 1)
			if floodRow.query != "" {
				address, _, _ = strings.Cut(address, "?")
			}
			source := &config.Source{Address: address + floodRow.query, Settings: scheme.Settings()}
			if kube, isKube := source.Settings.(*config.Kube); isKube {
				kube.TLSSettings = &config.TLSSettings{Mode: "DISABLE"}
			}
			read, err := source.New(config.Parts{})
			require.NoError(t, err)
			pool := intake.NewPool(sumLimits)
			ctx, cancel := context.WithCancel(pool.Source(t.Context()))
			sink, ended := newHealthSink(), make(chan struct{})
			go func() {
				defer close(ended)
				for ctx.Err() == nil {
					if err := read.Run(ctx, sink); err != nil && ctx.Err() == nil {
						sink.Report(sources.Health{State: sources.Unreachable, Message: err.Error()})
					}
				}
			}()
			defer func() {
				cancel()
				<-ended
				require.Zero(t, pool.Taken())
			}()
			sink.await(t, func(h sources.Health) bool {
				require.LessOrEqual(t, pool.Taken(), sumLimits.Memory)
				return strings.Contains(h.Message, bomb) && strings.Contains(h.Message, server.address)
			})
			if floodRow.honest != nil {
				server.to(floodRow.honest(t))
				sink.await(t, func(h sources.Health) bool { return h.State == sources.Healthy })
			}
		})
	}
}

// healthSink remembers the health.
type healthSink struct {
	mu      sync.Mutex
	health  sources.Health
	changed chan struct{}
}

func newHealthSink() *healthSink { return &healthSink{changed: make(chan struct{}, 1)} }

func (*healthSink) ReplaceAll([]sources.Content) error { return nil }
func (*healthSink) Groups() []string                   { return nil }
func (*healthSink) Synced()                            {}
func (s *healthSink) Report(h sources.Health) {
	s.mu.Lock()
	s.health = h
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *healthSink) await(t *testing.T, holds func(sources.Health) bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		s.mu.Lock()
		health := s.health
		s.mu.Unlock()
		if holds(health) {
			return
		}
		select {
		case <-s.changed:
		case <-late:
			require.Fail(t, "waited in vain", "%+v", health)
		}
	}
}

// serverSwitch passes connections to one of several servers.
type serverSwitch struct {
	address string
	target  atomic.Pointer[string]
	mu      sync.Mutex
	open    []net.Conn
}

func newSwitch(t *testing.T, target string) *serverSwitch {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &serverSwitch{address: listener.Addr().String()}
	s.target.Store(&target)
	t.Cleanup(func() {
		_ = listener.Close()
		s.cut()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", *s.target.Load()) //nolint:noctx // it is this machine
			if err != nil {
				_ = client.Close()
				continue
			}
			s.mu.Lock()
			s.open = append(s.open, client, server)
			s.mu.Unlock()
			for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = client.Close()
					_ = server.Close()
				}()
			}
		}
	}()
	return s
}

func (s *serverSwitch) to(target string) {
	s.target.Store(&target)
	s.cut()
}

func (s *serverSwitch) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.open {
		_ = conn.Close()
	}
	s.open = nil
}

// zipped returns a text of so many bytes, compressed.
func zipped(text string, size int) []byte {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	for range size / len(text) {
		_, _ = io.WriteString(writer, text)
	}
	_ = writer.Close()
	return packed.Bytes()
}

// httpBomb answers everything with JSON of 256 MiB in 0.3 MB.
func httpBomb(t *testing.T) string {
	packed := zipped(strings.Repeat("{},", 10_000), 256<<20)
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		response.Header().Set("Content-Type", "application/json")
		response.Header().Set("Content-Encoding", "gzip")
		response.Header().Set("X-Consul-Index", "5")
		start := zipped("[", 1)
		_, _ = response.Write(append(start, packed...)) // gzip has several members
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// packedCodec sends messages as they are.
type packedCodec struct{}

func (packedCodec) Name() string { return "proto" }

func (packedCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (packedCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

// storedGzip declares gzip, and sends already compressed bytes.
type storedGzip struct{}

func (storedGzip) Name() string                                 { return "gzip" }
func (storedGzip) Compress(w io.Writer) (io.WriteCloser, error) { return writeCloser{w}, nil }
func (storedGzip) Decompress(r io.Reader) (io.Reader, error)    { return r, nil }

type writeCloser struct{ io.Writer }

func (writeCloser) Close() error { return nil }

// grpcBomb answers each message of every stream with one of 256 MiB, in fields of two bytes.
func grpcBomb(t *testing.T) string {
	packed := zipped(strings.Repeat("\x12\x00", 10_000), 256<<20)
	server := grpc.NewServer(grpc.ForceServerCodecV2(packedCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := grpc.SetSendCompressor(stream.Context(), "gzip"); err != nil {
			return err
		}
		for {
			if err := stream.RecvMsg(nil); err != nil {
				return err
			}
			if err := stream.SendMsg(packed); err != nil {
				return err
			}
		}
	}))
	address, _ := xdstest.Serve(t, server)
	return address
}

// honestXDS has no resources of any type.
func honestXDS(t *testing.T) string {
	return (&xdstest.Server{SotW: xdstest.NewContent().SotW}).Serve(t)
}

// zooKeeper opens sessions, and answers each request with an error, or with content.
func zooKeeper(t *testing.T, failure uint32, content []byte) string {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	serve := func(conn net.Conn) {
		defer conn.Close() //nolint:errcheck // it is a test
		for first := true; ; first = false {
			var size [4]byte
			if _, err := io.ReadFull(conn, size[:]); err != nil {
				return
			}
			request := make([]byte, binary.BigEndian.Uint32(size[:]))
			if _, err := io.ReadFull(conn, request); err != nil {
				return
			}
			answer := append(bytes.Clone(request[:4]), make([]byte, 8)...) // the number of the request, and a transaction
			answer = append(binary.BigEndian.AppendUint32(answer, failure), content...)
			if first { // protocol, timeout, session, password
				answer = binary.BigEndian.AppendUint32(make([]byte, 4, 64), 30_000)
				answer = binary.BigEndian.AppendUint64(answer, 1)
				answer = append(binary.BigEndian.AppendUint32(answer, 16), make([]byte, 16)...)
			}
			if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...)); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return listener.Addr().String()
}

// hugeZooKeeper answers everything with 8 MiB.
func hugeZooKeeper(t *testing.T) string { return zooKeeper(t, 0, make([]byte, 8<<20)) }

// emptyZooKeeper has no node.
func emptyZooKeeper(t *testing.T) string { return zooKeeper(t, 0xffffff9b, nil) }

func init() { encoding.RegisterCompressor(storedGzip{}) } // before any connection
