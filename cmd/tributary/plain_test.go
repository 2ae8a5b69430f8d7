package main

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A wrong command line gets a message in plain words, not in those of a library.
func TestOutput_NoLibraryMessages(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	write(t, dir+"/no.pem", "nonsense")
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"get", "se", "--timeout", "x"}, 2, "error: --timeout x: want a duration, such as 10s or 5m\n"},
		{[]string{"history", "--limit", "x"}, 2, "error: --limit x: want a whole number\n"},
		{[]string{"status", "--check=maybe"}, 2, "error: --check maybe: want true or false\n"},
		{[]string{"get", "se", "--log-level", "loud"}, 2, "error: --log-level loud: want debug, info, warn or error\n"},
		{[]string{"get", "se", "--metadata", "x"}, 2, "error: --metadata x: want KEY=VALUE\n"},
		{[]string{"get", "se", "-o", "tabel"}, 2, "error: --output tabel: want one of table, wide, name, yaml, json, jsonpath=EXPRESSION\n"},
		{[]string{"get", "se", "-l", "app in ("}, 2, "error: --selector app in (: want conditions such as app=reviews,"},
		{[]string{"apply"}, 2, "error: --filename is missing\n"},
		{[]string{"verify"}, 2, "error: give --istiod or --envoy\n"},
		{
			[]string{"serve", "-c", "x", "--config-source", "fs:///x"},
			2,
			"error: --config and --config-source do not go together: give one of them\n",
		},
		{[]string{"get", "se", "--server", "x:99999"}, 2, "want a port from 1 to 65535, got 99999\n"},
		{[]string{"get", "se", "--tls-cert", "/x"}, 2, "error: --tls-cert wants its private key, --tls-key, too\n"},
		{[]string{"status", "--tls-key", "/x"}, 2, "error: --tls-key is for the certificate of --tls-cert, which is missing\n"},
		{[]string{"get", "clusters,listeners"}, 2, "error: clusters are of Envoy: ask for them alone\n"},
		{[]string{"get", "se,"}, 2, `error: want KIND[,KIND...], got "se,"`},
		{[]string{"bootstrap", "istoid"}, 2, `unknown client "istoid" (did you mean istiod?)`},
		{[]string{"status", "--admin", "127.0.0.1"}, 2, `error: --admin 127.0.0.1: want host:port, https://host:port or unix:///PATH`},
		{[]string{"status", "--admin", "https://127.0.0.1"}, 2, `error: --admin https://127.0.0.1: want host:port`},
		{[]string{"status", "--admin", "127.0.0.1:99999"}, 2, `error: --admin 127.0.0.1:99999: want host:port`},
		{[]string{"status", "--tls", "--admin", s.admin}, 1, "it does not speak TLS"},
		{[]string{"get", "se", "--server", "nowhere.invalid:1"}, 1, "nowhere.invalid"},
		{[]string{"verify", "--istiod", "http://" + s.xds, "--server", s.xds}, 1, "it does not speak HTTP/1.1"},
		{[]string{"verify", "--envoy", "http://" + s.admin}, 1, "is http://" + s.admin + " the admin server of an Envoy?"},
		{
			[]string{"get", "se", "--server", s.xds, "--tls-cert", dir + "/no.pem", "--tls-key", dir + "/no.pem"},
			2,
			"no.pem: there is no certificate in it, or not as PEM",
		},
	} {
		result := command(t, c.args...)
		assert.Equal(t, c.code, result.code, "%v: %s%s", c.args, result.stdout, result.stderr)
		assert.Contains(t, result.stderr, c.says, "%v", c.args)
		for _, raw := range []string{"rpc error", "strconv", "slog:", "desc =", "dial tcp", "net/http", "tls: ", "name resolver"} {
			assert.NotContains(t, result.stderr, raw, "%v", c.args)
		}
	}
}

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

// A Tab completes existing names, whatever their form.
func TestTabs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	s := serving(t, served(dir)...)
	s.awaitReady(t)
	t.Setenv(envServer, s.xds)
	t.Setenv(envAdmin, s.admin)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "se/"}, "se/shop/reviews\n"},
		{[]string{"get", "se,v"}, "se,virtualservices\t"},
		{[]string{"get", "vs,se", "-n", ""}, "shop\n"},
		{[]string{"get", "all", "-n", ""}, "shop\n"},
		{[]string{"get", "se", ""}, "shop/reviews\n"},
		{[]string{"explain", "se/"}, "se/shop/reviews\n"},
		{[]string{"explain", "se", "-n", ""}, "shop\n"},
		{[]string{"history", "-n", ""}, "shop\n"},
		{[]string{"history", "--source", ""}, "\n:4"},
		{[]string{"diff", "--kind", ""}, "serviceentries\t"},
		{[]string{"serve", "--log-level", ""}, "debug\n"},
	} {
		got := command(t, append([]string{"__complete"}, c.args...)...)
		assert.Contains(t, got.stdout, c.want, "%v", c.args)
	}
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
