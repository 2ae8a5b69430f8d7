package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/e2e/fixture"
)

// istioctl runs the real one against tributary, without a Kubernetes.
func istioctl(t *testing.T, tributary *fixture.Tributary, args ...string) string {
	t.Helper()
	out, code := fixture.Run(t, append(append([]string{fixture.Istioctl(t)}, args...), "--xds-address", tributary.XDS, "--plaintext",
		"--revision", "default")...)
	require.Zero(t, code, out)
	return out
}

// The real istioctl sees the clients of tributary, an istiod and an Envoy, and the resources that each got.
func TestIstioctl(t *testing.T) {
	t.Parallel()
	mesh := startMesh(t, "echo.yaml", listing(fixture.FreePort(t), backend(t, "one")))
	istiod := mesh.StartIstiod(t)
	envoy := fixture.StartEnvoy(t, mesh.XDS)
	envoy.Await(t, holds(t, envoy, fixture.ReadObjects(t, mesh.dir)))

	var lines map[string][]string
	istiod.Await(t, func() error {
		lines = make(map[string][]string)
		out := istioctl(t, mesh.Tributary, "proxy-status", "-v", "1")
		for line := range strings.Lines(out) {
			name, _, _ := strings.Cut(line, " ")
			lines[name] = append(lines[name], line)
		}
		if len(lines) != 3 {
			return fmt.Errorf("want a header, an istiod and an Envoy: %s", out)
		}
		if strings.Contains(out, "STALE") || strings.Contains(out, "NOT SENT") {
			return fmt.Errorf("not all is in sync: %s", out)
		}
		return nil
	})
	for name, line := range lines {
		if name != "NAME" {
			require.Contains(t, line[0], "SYNCED", "of %s", name)
			require.NotContains(t, line[0], "ERROR", "of %s", name)
		}
	}

	var page []any
	require.NoError(t, fixture.GetJSON(t.Context(), mesh.URL("/debug/syncz"), &page))
	require.Len(t, page, 2)

	// istioctl reads the resources that tributary sent to it from files, as the configuration of an Envoy.
	dir := t.TempDir()
	saved := func(name, text string) string {
		write(t, dir, name, text)
		return filepath.Join(dir, name)
	}
	_, sent, err := fixture.Get(t.Context(), mesh.URL("/debug/config_dump?include_eds&proxyID="+envoyNode))
	require.NoError(t, err)
	dump := saved("dump.json", sent)
	for _, c := range []struct{ kind, file, part string }{
		{"all", dump, "endpoint/127.0.0.1:"},
		{"clusters", dump, "echo.mesh.internal"},
		{"listeners", dump, "127.0.0.1"},
		{"routes", dump, "echo.mesh.internal"},
		{"secret", dump, "No active or warming secrets found"},
	} {
		out, code := fixture.Run(t, fixture.Istioctl(t), "proxy-config", c.kind, "--file", c.file)
		require.Zero(t, code, out)
		require.Contains(t, out, c.part, "proxy-config %s", c.kind)
	}
	for query, message := range map[string]string{"": "You must provide a proxyID", "?proxyID=other": "Proxy not connected"} {
		_, text, err := fixture.Get(t.Context(), mesh.URL("/debug/config_dump"+query))
		require.NoError(t, err)
		require.Contains(t, text, message)
	}
	// The pages of istiod's debug port are not served over xDS.
	text, err := exec.CommandContext(t.Context(), fixture.Istioctl(t), "x", "internal-debug", "configz", "--xds-address", mesh.XDS,
		"--plaintext", "--revision", "default").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(text), "the admin port has the pages of /debug/")

	// The Envoy's configuration is compared with the resources that tributary sent.
	_, envoyDump, err := fixture.Get(t.Context(), envoy.URL("/config_dump?include_eds"))
	require.NoError(t, err)
	envoyFile := saved("own.json", envoyDump)
	out := istioctl(t, mesh.Tributary, "proxy-status", envoyNode, "--file", envoyFile)
	for _, line := range []string{"Clusters Match", "Listeners Match", "Routes Match"} {
		require.Contains(t, out, line)
	}

	// A client of CSDS sees both at once, and each alone.
	for node, want := range map[string]int{"": 2, envoyNode: 1, "istiod": 1} {
		clients, err := clientStatus(t.Context(), mesh.XDS,
			&matcherv3.NodeMatcher{NodeId: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Contains{Contains: node}}})
		require.NoError(t, err)
		require.Len(t, clients, want, "nodes with %q", node)
	}
	mesh.rejectedNothing(t)
}

// envoyNode is a part of the id of the Envoys of the tests.
const envoyNode = "sidecar~127.0.0.1~"

// tributary answers the requests of grpcdebug: on the port for xDS about the clients, and on the admin port about
// itself as a client.
func TestClientStatusDiscovery(t *testing.T) {
	t.Parallel()
	upper := startMesh(t, "echo.yaml", listing(fixture.FreePort(t), backend(t, "one")))
	lower := fixture.StartTributary(t, fixture.Upstream("upper", upper.XDS))
	lower.AwaitReady(t)
	envoy := fixture.StartEnvoy(t, lower.XDS)
	envoy.Await(t, holds(t, envoy, fixture.ReadObjects(t, upper.dir)))

	only := &matcherv3.NodeMatcher{NodeId: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: envoyNode}}}
	lower.Await(t, func() error {
		clients, err := clientStatus(t.Context(), lower.XDS, only)
		if err != nil || len(clients) != 1 {
			return fmt.Errorf("want the Envoy alone: %v, %w", clients, err)
		}
		for _, g := range clients[0].GetGenericXdsConfigs() {
			if g.GetConfigStatus() != statusv3.ConfigStatus_SYNCED {
				return fmt.Errorf("%s is %s", g.GetTypeUrl(), g.GetConfigStatus())
			}
		}
		return nil
	})
	unknownNode := &matcherv3.NodeMatcher{NodeId: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "nobody"}}}
	clients, err := clientStatus(t.Context(), lower.XDS, unknownNode)
	require.NoError(t, err)
	require.Empty(t, clients)

	self, err := clientStatus(t.Context(), lower.Admin)
	require.NoError(t, err)
	require.Len(t, self, 1)
	require.Equal(t, "upper", self[0].GetClientScope())
	acked := 0
	for _, g := range self[0].GetGenericXdsConfigs() {
		if g.GetClientStatus() == adminv3.ClientResourceStatus_ACKED {
			acked++
		}
	}
	require.Positive(t, acked)

	// HTTP/1.1 still reads the pages there.
	status, _, err := fixture.Get(t.Context(), lower.URL("/-/ready"))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
}

func clientStatus(ctx context.Context, address string, matchers ...*matcherv3.NodeMatcher) ([]*statusv3.ClientConfig, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stream, err := statusv3.NewClientStatusDiscoveryServiceClient(conn).StreamClientStatus(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&statusv3.ClientStatusRequest{NodeMatchers: matchers}); err != nil {
		return nil, err
	}
	answer, err := stream.Recv()
	return answer.GetConfig(), err
}
