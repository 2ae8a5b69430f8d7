package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	sotw "github.com/envoyproxy/go-control-plane/pkg/client/sotw/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	mcp "istio.io/api/mcp/v1alpha1"

	"tributary/e2e/fixture"
)

const (
	serviceEntries = "networking.istio.io/v1/ServiceEntry"
	gateways       = "networking.istio.io/v1/Gateway"
	sidecars       = "networking.istio.io/v1/Sidecar"
)

// TestUnknownNonce_IsAnswered shows that the first request for a type is answered whatever its nonce says, as on istiod's streams,
// which all begin with one that no server gave.
func TestUnknownNonce_IsAnswered(t *testing.T) {
	t.Parallel()
	_, _, stream := serveStream(t)
	for _, typeURL := range []string{serviceEntries, gateways} {
		stream.Subscribe(t, typeURL, time.Now().String())
		res := stream.Next(t)
		assert.Equal(t, typeURL, res.GetTypeUrl())
		assert.NotEmpty(t, res.GetNonce())
		stream.Ack(t, res)
	}
}

// TestStaleNonce shows that a request about an older response than the last is ignored: it brings no response, and
// neither its ACK nor its NACK counts.
func TestStaleNonce(t *testing.T) {
	t.Parallel()
	dir, tributary, stream := serveStream(t)
	stream.Subscribe(t, serviceEntries, "")
	first := stream.Next(t)
	stream.Ack(t, first)
	write(t, dir, "more.yaml", serviceEntry("more", 80))
	second := stream.Next(t)
	require.NotEqual(t, first.GetVersionInfo(), second.GetVersionInfo())

	stream.Ack(t, first)
	stream.Nack(t, first, "", "too late to complain")
	stream.answers(t, gateways) // Had the two been answered, those answers would be before this one.

	stream.Ack(t, second)
	state := awaitAnswered(t, tributary, second)
	assert.Empty(t, state.Nack)
	assert.Equal(t, 2, state.Responses)
	stream.answers(t, sidecars)
}

// TestNack shows that a refused response is remembered with its reason, is not sent again, and is followed by the next
// change.
func TestNack(t *testing.T) {
	t.Parallel()
	dir, tributary, stream := serveStream(t)
	stream.Subscribe(t, serviceEntries, "")
	first := stream.Next(t)
	stream.Nack(t, first, "", "not to my liking")
	state := awaitAnswered(t, tributary, first)
	assert.Contains(t, state.Nack.Error, "not to my liking")
	assert.Empty(t, state.Acked)
	stream.answers(t, gateways) // Had the NACK been answered, that answer would be before this one.

	write(t, dir, "more.yaml", serviceEntry("more", 80))
	second := stream.Next(t)
	assert.Equal(t, serviceEntries, second.GetTypeUrl())
	assert.Len(t, second.GetResources(), 2)
	stream.Ack(t, second)
	state = awaitAnswered(t, tributary, second)
	assert.Equal(t, second.GetNonce(), state.Acked.Nonce)
	assert.Equal(t, 2, state.Responses)
	stream.answers(t, sidecars)
}

// TestVersionAliases shows that an istiod which asks for an older version of a kind is served as one that asks for v1:
// it gets the same bytes, under the type URL that it asked for.
func TestVersionAliases(t *testing.T) {
	t.Parallel()
	data, err := filepath.Abs(filepath.Join("testdata", "kinds"))
	require.NoError(t, err)
	tributary := fixture.StartTributary(t, fixture.Files("rules", data))
	tributary.AwaitReady(t)
	stream := fixture.OpenStream(t, tributary.XDS, "aliases")
	for kind, versions := range map[string][]string{
		"ServiceEntry":          {"networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3"},
		"VirtualService":        {"networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3"},
		"DestinationRule":       {"networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3"},
		"Gateway":               {"networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3"},
		"Sidecar":               {"networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3"},
		"WorkloadEntry":         {"networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3"},
		"WorkloadGroup":         {"networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3"},
		"AuthorizationPolicy":   {"security.istio.io/v1", "security.istio.io/v1beta1"},
		"PeerAuthentication":    {"security.istio.io/v1", "security.istio.io/v1beta1"},
		"RequestAuthentication": {"security.istio.io/v1", "security.istio.io/v1beta1"},
		"Telemetry":             {"telemetry.istio.io/v1", "telemetry.istio.io/v1alpha1"},
	} {
		var current *discovery.DiscoveryResponse
		for _, version := range versions {
			typeURL := version + "/" + kind
			stream.Subscribe(t, typeURL, "made up")
			res := stream.Next(t)
			stream.Ack(t, res)
			assert.Equal(t, typeURL, res.GetTypeUrl())
			require.Len(t, res.GetResources(), 1, typeURL)
			if current == nil {
				current = res
			}
			assert.Equal(t, current.GetVersionInfo(), res.GetVersionInfo(), typeURL)
			assert.Equal(t, current.GetResources()[0].GetTypeUrl(), res.GetResources()[0].GetTypeUrl(), typeURL)
			assert.Equal(t, current.GetResources()[0].GetValue(), res.GetResources()[0].GetValue(), typeURL)

			var resource mcp.Resource
			require.NoError(t, res.GetResources()[0].UnmarshalTo(&resource), typeURL)
			assert.Regexp(t, "^shop/", resource.GetMetadata().GetName(), typeURL)
			assert.NotEmpty(t, resource.GetMetadata().GetVersion(), typeURL)
			assert.NotNil(t, resource.GetMetadata().GetCreateTime(), "%s: up to 1.13, istiod fails on an object without it", typeURL)
			_, err := resource.GetBody().UnmarshalNew()
			assert.NoError(t, err, typeURL)
		}
	}
}

// TestUnknownType shows that a kind which tributary does not know is answered, and empty: an istiod of the future waits
// for every kind that it asks for.
func TestUnknownType(t *testing.T) {
	t.Parallel()
	_, _, stream := serveStream(t)
	stream.answers(t, "networking.istio.io/v1/FutureKind")
}

// TestKeepalive shows that a client which pings an idle stream every 15 seconds, twice as often as istiod, keeps it: a
// server with gRPC's defaults ends it at the third ping.
func TestKeepalive(t *testing.T) {
	t.Parallel()
	pings := keepalive.ClientParameters{Time: 15 * time.Second, PermitWithoutStream: true}
	_, _, stream := serveStream(t, grpc.WithKeepaliveParams(pings))
	stream.Subscribe(t, serviceEntries, "")
	stream.Ack(t, stream.Next(t))
	time.Sleep(50 * time.Second) // Three pings.
	require.NoError(t, stream.Pending())
	stream.answers(t, gateways)
}

// TestStockClient shows that go-control-plane's own client gets a kind, and its changes, be they accepted or refused.
func TestStockClient(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "first.yaml", serviceEntry("first", 80))
	tributary := fixture.StartTributary(t, fixture.Files("rules", dir))
	conn, err := grpc.NewClient(tributary.XDS, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client := sotw.NewADSClient(ctx, &core.Node{Id: "stock"}, serviceEntries)
	require.NoError(t, client.InitConnect(conn))
	fetch := func() (names []string) {
		res, err := client.Fetch()
		require.NoError(t, err)
		for _, r := range res.Resources {
			var resource mcp.Resource
			require.NoError(t, r.UnmarshalTo(&resource))
			names = append(names, resource.GetMetadata().GetName())
		}
		return names
	}
	assert.Equal(t, []string{"shop/first"}, fetch())
	require.NoError(t, client.Ack())
	write(t, dir, "second.yaml", serviceEntry("second", 80))
	assert.ElementsMatch(t, []string{"shop/first", "shop/second"}, fetch())
	require.NoError(t, client.Nack("not to my liking"))
	require.NoError(t, os.Remove(filepath.Join(dir, "first.yaml")))
	assert.Equal(t, []string{"shop/second"}, fetch())
	require.NoError(t, client.Ack())
}

// TestIdleIstiod shows that istiod's own stream lives through 5 minutes of its keepalives without a change.
func TestIdleIstiod(t *testing.T) {
	t.Parallel()
	nightly(t, "takes 5 minutes")
	dir := t.TempDir()
	write(t, dir, "a.yaml", serviceEntry("a", 80))
	tributary, istiod := serve(t, dir)
	istiod.AwaitFolders(t, dir)
	before, err := streams(t, tributary)
	require.NoError(t, err)
	require.Len(t, before, 1)

	time.Sleep(5 * time.Minute)
	after, err := streams(t, tributary)
	require.NoError(t, err)
	require.Equal(t, before, after, "istiod had to connect again, or was sent something")
	write(t, dir, "b.yaml", serviceEntry("b", 80))
	istiod.AwaitFolders(t, dir)
}

// stream is fixture.Stream with the assertions of this file.
type stream struct{ *fixture.Stream }

// serveStream serves a folder with one ServiceEntry and opens a stream.
func serveStream(t *testing.T, opts ...grpc.DialOption) (dir string, tributary *fixture.Tributary, s stream) {
	t.Helper()
	dir = t.TempDir()
	write(t, dir, "first.yaml", serviceEntry("first", 80))
	tributary = fixture.StartTributary(t, fixture.Files("rules", dir))
	tributary.AwaitReady(t)
	return dir, tributary, stream{fixture.OpenStream(t, tributary.XDS, "e2e-client", opts...)}
}

// answers subscribes to a type without resources, and fails the test unless the very next response has that type.
func (s stream) answers(t *testing.T, typeURL string) {
	t.Helper()
	s.Subscribe(t, typeURL, "")
	res := s.Next(t)
	require.Equal(t, typeURL, res.GetTypeUrl(), "a response to something else came first")
	require.Empty(t, res.GetResources())
	s.Ack(t, res)
	require.NoError(t, s.Pending())
}

// client is a stream in tributary's /debug/clients.
type client struct {
	Stream uint64         `json:"stream"`
	Node   string         `json:"node"`
	Types  []subscription `json:"types"`
}

// subscription is where a stream stands with a type.
type subscription struct {
	TypeURL   string   `json:"type_url"`
	Acked     exchange `json:"acked"`
	Nack      exchange `json:"nack"`
	Responses int      `json:"responses"`
}

// exchange is the last ACK or NACK.
type exchange struct {
	Nonce string `json:"nonce"`
	Error string `json:"error"`
}

// streams are those that are open.
func streams(t *testing.T, tributary *fixture.Tributary) ([]client, error) {
	t.Helper()
	var list []client
	err := fixture.GetJSON(t.Context(), tributary.URL("/debug/clients"), &list)
	return list, err
}

// awaitAnswered waits until tributary knows that its only client accepted or refused the response, and returns where the
// client then stands.
func awaitAnswered(t *testing.T, tributary *fixture.Tributary, res *discovery.DiscoveryResponse) subscription {
	t.Helper()
	var current subscription
	tributary.WaitFor(t, 5*time.Second, func() error {
		list, err := streams(t, tributary)
		if err != nil {
			return err
		}
		for _, c := range list {
			for _, current = range c.Types {
				if current.TypeURL == res.GetTypeUrl() && (current.Acked.Nonce == res.GetNonce() || current.Nack.Nonce == res.GetNonce()) {
					return nil
				}
			}
		}
		return fmt.Errorf("the streams and their subscriptions are %+v", list)
	})
	return current
}
