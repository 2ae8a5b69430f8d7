package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTokensAndRules(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) (code int, out, errs string) {
		var o, e bytes.Buffer
		cmd := newRoot()
		cmd.SetArgs(args)
		cmd.SetOut(&o)
		cmd.SetErr(&e)
		code = exitCode(cmd.ExecuteContext(t.Context()), cmd, &e)
		return code, strings.TrimSpace(o.String()), e.String()
	}
	tokens := dir + "/tokens"
	require.NoError(t, os.WriteFile(tokens, []byte("# without an end of line"), 0o600))
	code, first, errs := run("token", "new", "ci", "--file", tokens)
	require.Zero(t, code, errs)
	code, second, _ := run("token", "new", "web", "--file", tokens)
	require.Zero(t, code)
	text, err := os.ReadFile(tokens)
	require.NoError(t, err)
	require.Regexp(t, `\A# without an end of line\nci sha256:[0-9a-f]{64}\nweb sha256:[0-9a-f]{64}\n\z`, string(text))
	require.NotEqual(t, first, second)
	require.NotContains(t, string(text), first)
	code, _, errs = run("token", "new", "a b", "--file", tokens)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "want letters, digits")
	code, _, _ = run("token", "new", "ci", "--file", dir+"/made")
	require.Zero(t, code)
	info, err := os.Stat(dir + "/made")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	file := dir + "/t.yaml"
	write(t, file, `configSources: [{address: 'fs:///a'}]
identity: {tokens: tokens}
access:
- who: {token: [ci], cidr: [10.0.0.0/8]}
  allow: {namespaces: [prod], types: [clusters]}
- who: {token: [ci]}
`)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--identity token:ci --identity ip:10.1.2.3 --kind se --namespace prod", 0, "allowed by " + file + ":4:3: access[0]"},
		{"--identity token:ci --identity ip:10.1.2.3 --kind se --namespace test", 3, "not allowed: " + file + `:4:3: access[0] decides, which does not have namespace "test"`},
		{"--identity token:ci --identity ip:10.1.2.3 --type routes", 3, `does not have type "routes"`},
		{"--identity token:ci --identity ip:10.1.2.3 --service channelz", 3, `does not have service "channelz"`},
		{"--identity token:ci --namespace test", 0, "allowed by " + file + ":6:3: access[1]"},
		{"--identity token:web", 3, "not allowed: no rule is for token:web"},
		{"--identity ip:10.1.2.3", 3, "not allowed: no rule is for a client without certificate or token"},
	} {
		code, out, errs := run(append([]string{"access", "check", "-c", file}, strings.Fields(c.args)...)...)
		require.Equal(t, c.code, code, errs)
		require.Contains(t, out, c.want, c.args)
	}
	code, _, errs = run("access", "check", "-c", file, "--identity", "somebody")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "want a URI, dns:NAME")
	write(t, file, "configSources: [{address: 'fs:///a'}]\n")
	code, out, _ := run("access", "check", "-c", file, "--identity", "socket")
	require.Zero(t, code)
	require.Equal(t, "allowed: the configuration has no access", out)
}
