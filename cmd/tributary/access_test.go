package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTokensAndRules(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) (code int, out, errs string) {
		var buffer, e bytes.Buffer
		command := newRoot()
		command.SetArgs(args)
		command.SetOut(&buffer)
		command.SetErr(&e)
		code = exitCode(command.ExecuteContext(t.Context()), command, &e)
		return code, strings.TrimSpace(buffer.String()), e.String()
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
		{
			"--identity token:ci --identity ip:10.1.2.3 --kind se --namespace test", 3,
			"not allowed: " + file + `:4:3: access[0] decides, which does not have namespace "test"`,
		},
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
	for args, want := range map[string]string{
		"--identity token:ci --type foo":          "--type foo: want one of clusters, endpoints",
		"--identity token:ci --service chanelz":   "--service chanelz (did you mean channelz?): want one of",
		"--identity ip:10.1.2":                    `identity "ip:10.1.2": want an IP address behind ip:, such as ip:10.1.2.3`,
		"--identity token:ci --kind ServiceEntri": "did you mean",
	} {
		code, _, errs = run(append([]string{"access", "check", "-c", file}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, errs, want)
	}
	_, _, errs = run("access", "check", "-c", file, "--identity", "token:cj")
	require.Contains(t, errs, "warning: some rules match networks, and the client has no address: add --identity ip:ADDRESS")
	require.Contains(t, errs, `warning: there is no token of the name "cj" in `+tokens+" (did you mean ci?)")
	code, _, errs = run("validate", "--offline", "-c", file)
	require.Zero(t, code, errs)
	write(t, tokens, "ci sha256:00\n")
	code, out, _ := run("validate", "--offline", "-c", file)
	require.Equal(t, exitFindings, code)
	require.Contains(t, out, file+":2:20: identity.tokens: "+tokens+": line 1: want a NAME and sha256:HASH")
	require.NoError(t, os.Remove(tokens))
	_, out, _ = run("validate", "-c", file)
	require.Contains(t, out, file+":2:20: identity.tokens: "+tokens+": no such file or directory")
	_, _, errs = run("validate", "--offline", "-c", file)
	require.Contains(t, errs, "not checked: "+file+":2:20: identity.tokens: "+tokens+": no such file or directory")
	code, _, errs = run("serve", "-c", file)
	require.Equal(t, exitConfig, code)
	require.Contains(t, errs, file+":2:20: identity.tokens: "+tokens+": no such file or directory")
	write(t, tokens, strings.Replace(string(text), "ci ", "cj ", 1))
	_, out, _ = run("validate", "--offline", "-c", file)
	require.Contains(t, out, file+`:4:17: warning: access[0].who.token[0]: there is no token of the name "ci" in `+tokens+
		" (did you mean cj?)")
	write(t, file, "configSources: [{address: 'fs:///a'}]\nlisten: {adminTLS: {certificate: c.pem, key: k.pem}}\n")
	_, out, _ = run("validate", "-c", file)
	require.Contains(t, out, file+":2:20: listen.adminTLS: open "+dir+"/c.pem: no such file or directory")

	write(t, file, "configSources: [{address: 'fs:///a'}]\n")
	code, out, _ = run("access", "check", "-c", file, "--identity", "socket")
	require.Zero(t, code)
	require.Equal(t, "allowed: the configuration has no access", out)

	for _, text := range []string{"", "- a\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"} {
		write(t, file, text)
		code, out, _ = run("validate", "-c", file)
		require.Equal(t, exitFindings, code, text)
		require.Contains(t, out, file+":1:1: ")
		code, _, _ = run("serve", "-c", file)
		require.Equal(t, exitConfig, code)
	}
	code, _, _ = run("token", "new", "lost", "--file", tokens)
	require.Zero(t, code)
	cmd := newRoot()
	cmd.SetArgs([]string{"token", "new", "full", "--file", tokens})
	cmd.SetOut(full{})
	require.ErrorIs(t, cmd.ExecuteContext(t.Context()), errFull)
	text, err = os.ReadFile(tokens)
	require.NoError(t, err)
	require.NotContains(t, string(text), "full", "nobody has it")
}

// full is a device that refuses writes.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }
