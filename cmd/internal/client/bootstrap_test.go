package client_test

import (
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // named by Any in Envoy's
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/encoding/protojson"
	mesh "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"

	"tributary/adsc"
	"tributary/cmd/internal/client"
	"tributary/config"
	"tributary/internal/xdstest"
)

var update = flag.Bool("update", false, "write the golden files")

func write(t *testing.T, kind string, opts client.Bootstrap) string {
	t.Helper()
	var builder strings.Builder
	hint, err := client.WriteBootstrap(&builder, kind, opts)
	require.NoError(t, err)
	assert.NotEmpty(t, hint)
	return builder.String()
}

func options(server string) client.Bootstrap {
	return client.Bootstrap{Server: server, NodeID: `a "node"`, Kubernetes: true}
}

// servers are addresses that a person may give.
var servers = []string{"mesh.example:16010", "127.0.0.1:15010", "[::1]:1"}

func TestGolden(t *testing.T) {
	for _, kind := range client.BootstrapClients() {
		got := write(t, kind, options("mesh.example:16010"))
		path := "testdata/" + kind + ".golden"
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), got)
	}
}

func TestTLSNeedsFiles(t *testing.T) {
	for want, settings := range map[string]*adsc.TLS{
		"--tls-ca":                      {Mode: adsc.TLSSimple},
		"privateKey: missing":           {Mode: adsc.TLSMutual, ClientCertificate: "c", CACertificates: "a"},
		"istiod shows no certificate":   {Mode: adsc.TLSMutual, ClientCertificate: "c", PrivateKey: "k", CACertificates: "a"},
		"open nowhere: no such file or": {Mode: adsc.TLSSimple, CACertificates: "nowhere"},
	} {
		_, err := client.WriteBootstrap(io.Discard, "istiod", client.Bootstrap{Server: "h:1", TLS: settings})
		require.ErrorContains(t, err, want)
	}
}

func TestIstiod(t *testing.T) {
	for _, server := range servers {
		for _, kubernetes := range []bool{true, false} {
			opts := options(server)
			opts.Kubernetes = kubernetes
			text := write(t, "istiod", opts)
			assert.Contains(t, text, "k8s://", "either way the most common mistake is warned of")
			asJSON, err := yaml.YAMLToJSONStrict([]byte(text))
			require.NoError(t, err)
			var meshConfig mesh.MeshConfig
			require.NoError(t, protojson.Unmarshal(asJSON, &meshConfig))
			assert.Equal(t, "xds://"+server, meshConfig.GetConfigSources()[0].GetAddress())
			if kubernetes {
				assert.Equal(t, "k8s://", meshConfig.GetConfigSources()[1].GetAddress())
			} else {
				assert.Len(t, meshConfig.GetConfigSources(), 1)
			}
		}
	}
}

func TestEnvoy(t *testing.T) {
	for _, server := range servers {
		opts := options(server)
		opts.Metadata = map[string]string{"NAMESPACE": `a "space"`}
		asJSON, err := yaml.YAMLToJSONStrict([]byte(write(t, "envoy", opts)))
		require.NoError(t, err)
		var bootstrap bootstrapv3.Bootstrap
		require.NoError(t, protojson.Unmarshal(asJSON, &bootstrap))
		require.NoError(t, bootstrap.ValidateAll())
		assert.Equal(t, `a "node"`, bootstrap.GetNode().GetId())
		assert.Equal(t, `a "space"`, bootstrap.GetNode().GetMetadata().GetFields()["NAMESPACE"].GetStringValue())
		cluster := bootstrap.GetStaticResources().GetClusters()[0]
		assert.Equal(t, cluster.GetName(),
			bootstrap.GetDynamicResources().GetAdsConfig().GetGrpcServices()[0].GetEnvoyGrpc().GetClusterName())
		address := cluster.GetLoadAssignment().GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress()
		assert.Contains(t, server, strings.Trim(address.GetAddress(), "[]"))
		assert.NotContains(t, address.GetAddress(), "[")
	}
}

// TestGRPC has grpc-go's own kind use it.
func TestGRPC(t *testing.T) {
	server := xdstest.ListenSotW(t)
	opts := options(server.Address)
	opts.Metadata = map[string]string{"GENERATOR": "grpc"}
	resolver, err := xds.NewXDSResolverWithConfigForTesting([]byte(write(t, "grpc", opts)))
	require.NoError(t, err)
	conn, err := grpc.NewClient("xds:///reviews.example:80", grpc.WithResolvers(resolver),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	conn.Connect()
	node := server.Next().Receive().GetNode()
	assert.Equal(t, `a "node"`, node.GetId())
	assert.Equal(t, "grpc", node.GetMetadata().GetFields()["GENERATOR"].GetStringValue())
	require.NoError(t, conn.Close())
}

func TestTributary(t *testing.T) {
	for _, server := range servers {
		cfg, err := config.Parse("tributary.yaml", []byte(write(t, "tributary", options(server))))
		require.NoError(t, err)
		assert.Equal(t, "xds://"+server, cfg.ConfigSources[0].Address)
	}
}

func TestWrong(t *testing.T) {
	for kind, server := range map[string]string{
		"nginx": "a:1", "envoy": "a", "grpc": "a:b", "istiod": ":1",
		"tributary": "a:70000",
	} {
		_, err := client.WriteBootstrap(&strings.Builder{}, kind, options(server))
		require.Error(t, err, kind)
	}
}
