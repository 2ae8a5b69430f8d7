// Package spiffetest is a SPIFFE Workload API for tests: a gRPC server on a unix socket, as an agent of SPIRE has it.
package spiffetest

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tributary/internal/testutil"
)

// API is a Workload API.
type API struct {
	workload.UnimplementedSpiffeWorkloadAPIServer

	t      testing.TB
	socket string

	mu      sync.Mutex
	answer  *workload.X509SVIDResponse // nil for no identity
	changed chan struct{}              // is closed when answer is another
	server  *grpc.Server               // nil while it is away
	serving sync.WaitGroup
}

// New returns a Workload API that gives no identity yet. It serves until the test ends.
func New(t testing.TB) *API {
	dir, err := os.MkdirTemp("", "spiffe") //nolint:usetesting // t.TempDir is too long for the name of a socket
	require.NoError(t, err)
	api := &API{t: t, socket: filepath.Join(dir, "agent.sock"), changed: make(chan struct{})}
	api.Start()
	t.Cleanup(func() {
		api.Stop()
		require.NoError(t, os.RemoveAll(dir))
	})
	return api
}

// Address is where it serves.
func (a *API) Address() string { return "unix://" + a.socket }

// Start has it serve again.
func (a *API) Start() {
	a.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(a.t.Context(), "unix", a.socket)
	require.NoError(a.t, err)
	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, a)
	a.mu.Lock()
	a.server = server
	a.mu.Unlock()
	a.serving.Go(func() { _ = server.Serve(listener) })
}

// Stop has it go away.
func (a *API) Stop() {
	a.mu.Lock()
	server := a.server
	a.server = nil
	a.mu.Unlock()
	if server != nil {
		server.Stop()
	}
	a.serving.Wait()
}

// Sign makes an X509-SVID, valid for an hour unless it says otherwise.
func Sign(authority *testutil.Authority, id string, notAfter time.Time) testutil.Pair {
	parsed, err := url.Parse(id)
	if err != nil {
		panic(err) // a mistake in a test
	}
	return authority.Sign(&x509.Certificate{
		URIs: []*url.URL{parsed}, NotAfter: notAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
}

// Domains are trust domains, by name, and who signs for them.
type Domains map[string]*testutil.Authority

// Give has it give these identities, the first of which is the default, and name who signs for our own trust domain and
// for others. Without identities it refuses.
func (a *API) Give(authority *testutil.Authority, others Domains, svids ...testutil.Pair) {
	answer := &workload.X509SVIDResponse{FederatedBundles: make(map[string][]byte)}
	for name, by := range others {
		answer.FederatedBundles[name] = der(by.PEM)
	}
	for _, one := range svids {
		answer.Svids = append(answer.Svids, &workload.X509SVID{
			SpiffeId: one.Leaf.URIs[0].String(), X509Svid: one.Leaf.Raw, X509SvidKey: der(one.Key), Bundle: der(authority.PEM),
		})
	}
	if len(svids) == 0 {
		answer = nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
	close(a.changed)
	a.changed = make(chan struct{})
}

func der(text string) []byte {
	block, _ := pem.Decode([]byte(text))
	return block.Bytes
}

// FetchX509SVID implements workload.SpiffeWorkloadAPIServer.
func (a *API) FetchX509SVID(_ *workload.X509SVIDRequest,
	stream grpc.ServerStreamingServer[workload.X509SVIDResponse],
) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	if !slices.Equal(md.Get("workload.spiffe.io"), []string{"true"}) {
		return status.Error(codes.InvalidArgument, "security header missing from request")
	}
	for {
		a.mu.Lock()
		answer, changed := a.answer, a.changed
		a.mu.Unlock()
		if answer == nil {
			return status.Error(codes.PermissionDenied, "no identity issued")
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}
