package main

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// All requests of get use one stream, or two, and the results are told apart.
func TestGet_OneClientForManyKinds(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80)+"---\n"+strings.ReplaceAll(entry("reviews", 80), "shop", "mall")+
		"---\napiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: s, namespace: shop}\nspec: {egress: [{hosts: ['*/*']}]}\n")
	server := serving(t, served(dir)...)
	server.awaitReady(t)
	result := command(t, "get", "all", "-A", "--server", server.xds)
	require.Zero(t, result.code, result.stderr)
	require.Contains(t, result.stdout, "serviceentry/reviews")
	require.Contains(t, result.stdout, "sidecar/s")
	require.LessOrEqual(t, strings.Count(server.log.String(), "client connected"), 3)

	result = command(t, "get", "se", "shop/reviews", "mall/reviews", "--server", server.xds)
	require.Contains(t, result.stdout, "NAMESPACE")
	result = command(t, "get", "se,serviceentry", "-A", "-o", "name", "--server", server.xds)
	require.Equal(t, "serviceentry/mall/reviews\nserviceentry/shop/reviews\n", result.stdout)
	result = command(t, "get", "se", "-A", "-l", "app=x", "--server", server.xds)
	require.Contains(t, result.stderr, "no serviceentries with labels app=x")

	require.Zero(t, command(t, "explain", "serviceentry/mall/reviews", "--admin", server.admin).code)
	require.Contains(t, command(t, "validate", dir+"/a.yaml").stderr, "3 objects valid")
}

// A flag of TLS is refused if the address has no TLS.
func TestCommands_TLSFlags(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is at hand
	require.NoError(t, err)
	defer listener.Close() //nolint:errcheck // it is over
	first := make(chan byte, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		b := make([]byte, 1)
		_, _ = conn.Read(b)
		first <- b[0]
		_ = conn.Close()
	}()
	require.Equal(t, 1, command(t, "status", "--tls", "--admin", listener.Addr().String()).code)
	require.EqualValues(t, 22, <-first, "a handshake")
}
