package main

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// hinted are the flags that a text names.
var hinted = regexp.MustCompile("(?:^|[\\s`(])(--[a-z][a-z-]+|-[a-z]\\b)")

// onlyItsFlags checks that the output of a command names only flags that it has and that were given.
func onlyItsFlags(t *testing.T, args []string, output string) {
	t.Helper()
	command, _, err := newRoot().Find(args)
	if err != nil || !command.HasParent() || slices.Contains([]string{"help", "completion", "__complete"}, args[0]) {
		return
	}
	command.InitDefaultHelpFlag()
	for _, m := range hinted.FindAllStringSubmatch(output, -1) {
		name := m[1]
		exists := command.Flags().Lookup(name[min(2, len(name)-1):]) != nil
		if len(name) == 2 {
			exists = command.Flags().ShorthandLookup(name[1:]) != nil
		}
		assert.True(t, exists || slices.Contains(args, name), "%v names %s: %s", args, name, output)
	}
}

// TestCommands_InvalidAddresses: the message about a wrong address of a server names the flag or variable, and the exit
// code is that of wrong usage.
func TestCommands_InvalidAddresses(t *testing.T) {
	dir := t.TempDir()
	a := testutil.NewAuthority(t)
	cert, key := a.Loopback(time.Now().Add(time.Hour)).Files(dir)
	write(t, dir+"/empty", "\n")
	write(t, dir+"/none.pem", "nothing\n")
	write(t, dir+"/good/good.yaml", entry("good", 80))
	write(t, dir+"/any.yaml", "listen: {admin: '127.0.0.1:0'}\n")
	t.Chdir(dir) // without a configuration
	for _, c := range []struct {
		variable, value string
		args            []string
		says            string
	}{
		{envServer, "foo", []string{"get", "se"}, "$TRIBUTARY_SERVER foo: want host:port"},
		{envServer, "foo", []string{"watch", "se"}, "$TRIBUTARY_SERVER foo: want host:port"},
		{envServer, "http://a:1", []string{"diff", "good"}, "$TRIBUTARY_SERVER http://a:1: http:// is not for xDS: want host:port; an " +
			"HTTP address may be the admin port (listen.admin)"},
		{envAdmin, "foo", []string{"status"}, "$TRIBUTARY_ADMIN foo: want host:port, https://host:port or unix:///PATH"},
		{"", "", []string{"status", "--admin", "foo"}, "--admin foo: want host:port"},
		{
			envAdmin, "127.0.0.1:1",
			[]string{"status", "-c", "any.yaml"},
			"listen.admin of any.yaml 127.0.0.1:0: want the port that it listens on, which its log has: give it with --admin",
		},
		{"", "", []string{"watch", "se", "--server", "http://a:1"}, "--server http://a:1: http:// is not for xDS"},

		{"", "", []string{"get", "se", "--token-file", "/nope"}, "--token-file: open /nope: no such file or directory"},
		{"", "", []string{"get", "se", "--token-file", "empty", "--tls"}, "--token-file: empty is empty"},
		{
			"", "",
			[]string{"get", "se", "--token-file", "none.pem"},
			"--token-file: a token is shown over TLS only: give --tls, or another flag of TLS",
		},
		{envToken, "none.pem", []string{"get", "se"}, "$TRIBUTARY_TOKEN_FILE: a token is shown over TLS only"},
		{envToken, "/nope", []string{"get", "se", "--tls"}, "$TRIBUTARY_TOKEN_FILE: open /nope: no such file or directory"},
		{envToken, "/nope", []string{"status", "--admin", "https://127.0.0.1:1"}, "$TRIBUTARY_TOKEN_FILE: open /nope: no such file or directory"},

		{"", "", []string{"get", "se", "--tls-ca", "/nope"}, "--tls-ca: open /nope: no such file or directory"},
		{"", "", []string{"get", "se", "--tls-ca", "none.pem"}, "--tls-ca: no certificate in none.pem"},
		{envCA, "/nope", []string{"watch", "se"}, "$TRIBUTARY_TLS_CA: open /nope: no such file or directory"},
		{envKey, "/nope", []string{"get", "se", "--tls-cert", cert}, "$TRIBUTARY_TLS_KEY: open /nope: no such file or directory"},
		{
			"", "",
			[]string{"get", "se", "--tls-cert", cert, "--tls-key", cert},
			"--tls-cert " + cert + " and --tls-key " + cert + ": the key's file has a certificate, and no private key",
		},
		{"", "", []string{"get", "se", "--tls-ca", "spiffe://"}, "--tls-server-name: missing; name the SPIFFE ID of the server"},
		{"", "", []string{"status", "--tls-ca", "/nope"}, "--tls-ca: open /nope: no such file or directory"},
		{"", "", []string{"get", "se", "--at", "1m", "--tls-ca", "/nope"}, "--tls-ca: open /nope: no such file or directory"},
		{
			"", "",
			[]string{"diff", "--at", "1m", "--tls-cert", cert, "--tls-key", key, "--tls-ca", "/nope"},
			"--tls-ca: open /nope: no such file or directory",
		},

		{"", "", []string{"get", "se", "--store", "kv"}, "--store kv: no configuration file; tried"},
		{"", "", []string{"get", "se", "--store", "kv"}, "; name that which has it with -c, or give consul-kv://host:port/prefix\n"},
		{"", "", []string{"apply", "-f", "good"}, "which store? give --store consul-kv://host:port/prefix, or -c"},

		{"", "", []string{"history", "--limit", "0"}, "--limit 0: want a number above 0"},
		{"", "", []string{"history", "--since", "2100-01-01"}, "--since 2100-01-01 is in the future"},
		{"", "", []string{"get", "se", "--at", "2100-01-01"}, "--at 2100-01-01 is in the future"},
		{"", "", []string{"diff", "--at", "2100-01-01"}, "--at 2100-01-01 is in the future"},
		{"", "", []string{"bootstrap", "istiod", "--node-id", "x"}, "--node-id is for envoy and grpc, and not for istiod"},
		{"", "", []string{"bootstrap", "tributary", "--label", "a=b"}, "--label is for envoy and grpc, and not for tributary"},
		{"", "", []string{"bootstrap", "envoy", "--kubernetes=false"}, "--kubernetes is for istiod, and not for envoy"},
	} {
		t.Run("", func(t *testing.T) {
			if c.variable != "" {
				t.Setenv(c.variable, c.value)
			}
			got := command(t, c.args...)
			assert.Equal(t, exitUsage, got.code, "%v", c.args)
			assert.Contains(t, got.stderr, c.says, "%v", c.args)
			onlyItsFlags(t, c.args, got.stderr)
		})
	}
}

// A wrong variable is no error of a command that does not use the server that it names.
func TestCommands_UnusedVariables(t *testing.T) {
	t.Setenv(envServer, "foo")
	dir := t.TempDir()
	write(t, dir+"/a/a.yaml", entry("good", 80))
	assert.Zero(t, command(t, "diff", dir+"/a", dir+"/a").code)
	got := command(t, "get", "se", "--server", "127.0.0.1:1")
	assert.Contains(t, got.stderr, "127.0.0.1:1 is unavailable: nobody listens there")
	got = command(t, "diff", dir+"/none", dir+"/a")
	assert.Equal(t, result{1, "", "error: " + dir + "/none does not exist\n"}, got)
}

// TestTLSOfTheAdminPort requests an earlier version of objects, which only the admin port serves.
func TestTLSOfTheAdminPort(t *testing.T) {
	dir := t.TempDir()
	a := testutil.NewAuthority(t)
	cert, key := a.Loopback(time.Now().Add(time.Hour)).Files(dir)
	write(t, dir+"/ca.pem", a.PEM)
	write(t, dir+"/rules/a.yaml", entry("reviews", 80))
	write(t, dir+"/tributary.yaml", "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0', adminTLS: {certificate: '"+cert+"', key: '"+key+
		"'}}\n"+
		"stateDir: state\nconfigSources: [{address: 'fs://./rules'}]\n")
	s := serving(t, "-c", dir+"/tributary.yaml")
	eventually(t, func() error {
		return contains(command(t, "get", "se", "-A", "-o", "name", "--at", "0s", "--admin", s.admin, "--tls-ca", dir+"/ca.pem").stdout,
			"serviceentry/shop/reviews")
	})
	got := command(t, "diff", "--at", "0s", "--admin", s.admin, "--tls-ca", dir+"/ca.pem")
	require.Zero(t, got.code, got.stderr)
}

func TestCompletionOfValues(t *testing.T) {
	for _, c := range []struct {
		line []string
		want string
	}{
		{[]string{"access", "check", "--type", ""}, "clusters\n"},
		{[]string{"access", "check", "--service", ""}, "csds\n"},
		{[]string{"access", "check", "--kind", ""}, "serviceentries\tServiceEntry\n"},
	} {
		assert.Contains(t, command(t, append([]string{"__complete"}, c.line...)...).stdout, c.want, "%v", c.line)
	}
}
