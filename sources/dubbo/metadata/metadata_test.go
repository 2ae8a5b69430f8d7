package metadata

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/internal/testutil"
	"tributary/sources/dubbo/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testdata(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return b
}

// instanceAt is one that says that it serves its metadata at an address.
func instanceAt(t *testing.T, address, protocol, revision string, v2 bool) provider.Instance {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	return provider.Instance{
		Application: "q", Host: host, Port: n, Revision: revision,
		Service: &provider.MetadataService{Protocol: protocol, Port: n, V2: v2},
	}
}

func requireGreeter(t *testing.T, m provider.Metadata, protocol string, port int) {
	t.Helper()
	require.Len(t, m.Services, 1)
	service := m.Services[0]
	require.Equal(t, "20", service.Params["weight"])
	service.Params = nil
	require.Equal(t, provider.Service{
		Name: "demo.GreetService", Group: "g1", Version: "1.0.0", Protocol: protocol, Port: port, Path: "demo.GreetService",
	}, service)
}

const revision330 = "c2b1ae1b368f295af9f158f1c2ca4efd"

// The answer of Java 3.3.0.
func TestOverHTTP(t *testing.T) {
	body := testdata(t, "http-3.3.0.json")
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "application/json" && r.URL.Path == "/org.apache.dubbo.metadata.MetadataService/getMetadataInfo" &&
			r.URL.Query().Get("revision") == revision330 {
			_, _ = response.Write(body)
			return
		}
		_, _ = io.WriteString(response, "null")
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	m, how, err := New().Ask(t.Context(), instanceAt(t, address, "tri", revision330, true))
	require.NoError(t, err)
	require.Equal(t, "their own metadata (http)", how)
	requireGreeter(t, m, "tri", 28061)

	_, err = overHTTP(t.Context(), address, instanceAt(t, address, "tri", "other", true))
	require.ErrorIs(t, err, provider.ErrNoMetadata)
}

// tripleServer answers one method of gRPC.
func tripleServer(t *testing.T, method string, answer []byte) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if called, _ := grpc.MethodFromServerStream(stream); called != method {
			return fmt.Errorf("no method %s", called)
		}
		var request []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		return stream.SendMsg(&answer)
	}))
	testutil.ServeGRPC(t, listener, server)
	return listener.Addr().String()
}

// The answer of Java 3.3.0.
func TestOverTriple(t *testing.T) {
	address := tripleServer(t, "/org.apache.dubbo.metadata.MetadataServiceV2/GetMetadataInfo", testdata(t, "tri-3.3.0-info.bin"))
	metadata, how, err := New().Ask(t.Context(), instanceAt(t, address, "tri", revision330, true))
	require.NoError(t, err)
	require.Equal(t, "their own metadata (tri)", how)
	require.Equal(t, revision330, metadata.Revision)
	requireGreeter(t, metadata, "tri", 28061)

	_, _, err = New().Ask(t.Context(), instanceAt(t, address, "tri", "another", true))
	require.ErrorContains(t, err, "now has revision "+revision330)
}

// The answer of Java 3.2.19.
func TestOverWrappedTriple(t *testing.T) {
	address := tripleServer(t, "/org.apache.dubbo.metadata.MetadataService/getExportedURLs", testdata(t, "tri-3.2.19-urls.bin"))
	m, how, err := New().Ask(t.Context(), instanceAt(t, address, "tri", "r", false))
	require.NoError(t, err)
	require.Equal(t, "their own metadata (tri, hessian2)", how)
	requireGreeter(t, m, "tri", 28062)

	// dubbo-go 3.3.0 says that it has the second version of the service.
	_, how, err = New().Ask(t.Context(), instanceAt(t, address, "tri", "r", true))
	require.NoError(t, err)
	require.Equal(t, "their own metadata (tri, hessian2)", how)
}

// TestInstanceWithoutServicesYet_Reported is asked while it starts, as Java 3.3.6 answers then.
func TestInstanceWithoutServicesYet_Reported(t *testing.T) {
	nothing := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte{0x78})
	address := tripleServer(t, "/org.apache.dubbo.metadata.MetadataService/getExportedURLs", nothing)
	_, _, err := New().Ask(t.Context(), instanceAt(t, address, "tri", "r", false))
	require.ErrorIs(t, err, errNothingYet)
}

// dubboServer sends a heartbeat, and answers calls of a method, and others with an error.
func dubboServer(t *testing.T, method string, body []byte) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	serve := func(conn net.Conn) {
		defer conn.Close() //nolint:errcheck // nothing is lost
		head := make([]byte, headSize)
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		request := make([]byte, binary.BigEndian.Uint32(head[12:]))
		if _, err := io.ReadFull(conn, request); err != nil {
			return
		}
		_, _ = conn.Write([]byte{0xda, 0xbb, 0xe2, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 'N'})
		answer := body
		head[2], head[3] = 0x02, statusFine
		if !strings.HasPrefix(string(request), "\x052.0.20\x29org.apache.dubbo.metadata.MetadataService\x051.0.0"+
			string(appendString(nil, method))) {
			head[3], answer = 70, appendString(nil, "Not found exported service")
		}
		binary.BigEndian.PutUint32(head[12:], uint32(len(answer)))
		_, _ = conn.Write(append(head, answer...))
	}
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return listener.Addr().String()
}

const revision336 = "c3a55dd1f0c9d97b4effa72c72b3dbf5"

// The answers of Java 3.3.6.
func TestOverDubbo(t *testing.T) {
	address := dubboServer(t, "getMetadataInfo", testdata(t, "dubbo-3.3.6-info.bin"))
	m, how, err := New().Ask(t.Context(), instanceAt(t, address, "dubbo", revision336, false))
	require.NoError(t, err)
	require.Equal(t, "their own metadata (dubbo)", how)
	require.Equal(t, revision336, m.Revision)
	requireGreeter(t, m, "dubbo", 28063)

	// dubbo-go 3.3.2.
	address = dubboServer(t, "getMetadataInfo", testdata(t, "dubbo-go-3.3.2-info.bin"))
	m, err = overDubbo(t.Context(), address, instanceAt(t, address, "dubbo", "", false))
	require.NoError(t, err)
	require.Len(t, m.Services, 1)
	require.Equal(t, "com.acme.Greeter g1 1.0.0 tri 27682", fmt.Sprint(m.Services[0].Name, " ", m.Services[0].Group, " ",
		m.Services[0].Version, " ", m.Services[0].Protocol, " ", m.Services[0].Port))

	address = dubboServer(t, "getExportedURLs", testdata(t, "dubbo-3.3.6-urls.bin"))
	m, how, err = New().Ask(t.Context(), instanceAt(t, address, "dubbo", "r", false))
	require.NoError(t, err)
	require.Equal(t, "their own metadata (dubbo, URLs)", how)
	requireGreeter(t, m, "dubbo", 28063)

	address = dubboServer(t, "none", nil)
	_, _, err = New().Ask(t.Context(), instanceAt(t, address, "dubbo", "r", false))
	require.ErrorContains(t, err, "status 70: \"Not found exported service\"")
	address = dubboServer(t, "getMetadataInfo", []byte{0x92})
	_, err = overDubbo(t.Context(), address, instanceAt(t, address, "dubbo", "r", false))
	require.ErrorIs(t, err, provider.ErrNoMetadata)
}

func TestSilentInstance_EndsWithContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, protocol := range []string{"dubbo", "tri"} {
		_, _, err = New().Ask(ctx, instanceAt(t, listener.Addr().String(), protocol, "r", true))
		require.ErrorIs(t, err, context.Canceled)
	}
	_, _, err = New().Ask(t.Context(), provider.Instance{Host: "127.0.0.1"})
	require.ErrorContains(t, err, "does not say how")
}

func TestStrings(t *testing.T) {
	for _, s := range []string{
		"", "a", strings.Repeat("x", 31), strings.Repeat("é", 32), strings.Repeat("中", 1023),
		strings.Repeat("y", 1024), "a😀b", strings.Repeat("😀", 600),
	} {
		r := &reader{rest: appendString(nil, s)}
		got := r.string()
		require.NoError(t, r.err)
		require.Equal(t, s, got)
		require.Empty(t, r.rest)
	}
	for body, want := range map[string][]string{
		"\x79\x01a":                    {"a"},
		"X\x92\x01a\x01b":              {"a", "b"},
		"W\x01a\x01bZ":                 {"a", "b"},
		"V\x04type\x91R\x00\x01a\x01b": {"ab"},
		"r\x90\x01a\x01b":              {"a", "b"},
		"N":                            nil,
	} {
		r := &reader{rest: []byte(body)}
		got, err := stringsOf(r.value(0))
		require.NoError(t, errors.Join(err, r.err), "%q", body)
		require.Equal(t, want, got, "%q", body)
	}
}

func TestLongs(t *testing.T) {
	for body, want := range map[string]int{
		"\xe0": 0, "\xd8": -8, "\xef": 15, "\xf8\x00": 0, "\xf0\x00": -2048, "\xff\xff": 2047, "\x3c\x00\x00": 0, "\x38\x00\x00": -262144,
		"\x3f\xff\xff": 262143, "Y\x00\x04\x00\x00": 262144, "L\xff\xff\xff\xff\xff\xff\xff\xff": -1,
	} {
		r := &reader{rest: []byte(body)}
		got := r.value(0)
		require.NoError(t, r.err)
		require.Equal(t, want, got, "%q", body)
	}
}

func FuzzAnswers(f *testing.F) {
	for _, name := range []string{
		"dubbo-3.3.6-urls.bin", "dubbo-3.3.6-info.bin", "dubbo-go-3.3.2-info.bin", "tri-3.2.19-urls.bin",
		"tri-3.3.0-info.bin",
	} {
		b, err := os.ReadFile("testdata/" + name)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		if v, err := answerOf(b); err == nil {
			_, _ = infoOf(v)
		}
		_, _ = parseInfo(b)
		_, _ = stringsOf((&reader{rest: b}).value(0))
	})
}
