package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/bad.yaml", entry("bad", 80000))
	write(t, dir+"/good/good.yaml", entry("good", 80))
	write(t, dir+"/tributary.yaml", "configSources: [{address: 'fs://./good'}]\n")
	write(t, dir+"/empty.yaml", "# nothing\n")
	write(t, dir+"/none/a.txt", "")
	write(t, dir+"/foreign.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
	write(t, dir+"/mistyped.yaml", strings.Replace(entry("a", 80), "networking.istio.io", "network.istio.io", 1))
	write(t, dir+"/away.yaml", "configSources: [{address: 'fs://./away'}, {address: 'fs://./good'}]\n")
	write(t, dir+"/identity.yaml", "configSources: [{address: 'fs://./good'}]\nlisten: {xds: '127.0.0.1:0', admin: "+
		"'127.0.0.1:0'}\nstateDir: off\nidentity: {tokens: /nowhere}\n")
	write(t, dir+"/slip.yaml", "configSource: []\n")
	write(t, dir+"/unclosed.yaml", "configSources: [{address: 'fs://./good'\nlisten: {}\n")
	write(t, dir+"/broken.yaml", "configSources: [{address: 'ftp://x'}]\n")
	write(t, dir+"/state.yaml", anywhere+"stateDir: empty.yaml/state\nconfigSources: [{address: 'fs://./good'}]\n")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{}, 0, "Available Commands"},
		{[]string{"help"}, 0, "Available Commands"},
		{[]string{"version"}, 0, "tributary "},
		{[]string{"--version"}, 0, "tributary version "},
		{[]string{"help", "token", "new"}, 0, "New makes a token"},
		{[]string{"completion"}, 0, "Available Commands"},
		{[]string{"version", "-o", "json"}, 0, `"version": `},
		{[]string{"completion", "bash"}, 0, "bash completion"},
		{[]string{"validate", dir + "/good", dir + "/tributary.yaml"}, 0, "1 object valid, 0 errors, 0 warnings"},
		{[]string{"validate", dir + "/tributary.yaml"}, 0, "1 object valid, 0 errors, 0 warnings"},

		{[]string{"nonsense"}, 2, `unknown command "nonsense"`},
		{[]string{"stat"}, 2, `unknown command "stat" for "tributary" (did you mean status?)`},
		{[]string{"help", "explian"}, 2, `unknown command "explian" for "tributary" (did you mean explain?)`},
		{[]string{"get", "se", "--timeout", "-1s"}, 2, "--timeout -1s: must not be negative"},
		{[]string{"get"}, 2, "got no argument; want: tributary get {KIND"},
		{[]string{"get", "nonsense"}, 2, "serviceentries (se)"},
		{[]string{"get", "se", "-o", "xml"}, 2, "want one of table, wide, name, yaml, json"},
		{[]string{"get", "se", "x", "-A"}, 2, "-n, not -A"},
		{[]string{"get", "se", "-n", "a", "-A"}, 2, "do not go together"},
		{[]string{"get", "listeners", "-A"}, 2, "listeners have no namespaces: leave out --all-namespaces"},
		{[]string{"serve", "--nonsense"}, 2, "unknown flag: --nonsense"},
		{[]string{"serve", "-c", "x", "--config-source", "fs:///x"}, 2, "do not go together"},
		{[]string{"serve", "--log-level", "loud"}, 2, "loud"},
		{[]string{"validate"}, 2, "got no argument; want: tributary validate {PATH... | -c FILE}"},

		{[]string{"explain", "a", "b", "c"}, 2, "got 3 arguments; want: tributary explain {KIND"},
		{[]string{"explain", "se"}, 2, "tributary explain serviceentry shop/reviews"},
		{[]string{"explain", "shop/reviews"}, 2, "want a kind and a name, or a host"},
		{[]string{"explain", "cheese", "shop/reviews"}, 2, `unknown kind "cheese"`},
		{[]string{"get", "se", "shop/"}, 2, `want NAMESPACE/NAME, got "shop/"`},
		{[]string{"diff", "-", "-"}, 2, "standard input can be one side only"},
		{[]string{"diff"}, 2, "want two sides to compare, got 0"},
		{[]string{"diff", "a", "b", "--server", "c:1"}, 2, "want two sides to compare, got 3"},
		{[]string{"diff", "a", "b", "--kind", "cheese"}, 2, `unknown kind "cheese"`},
		{[]string{"bootstrap", "nginx"}, 2, "istiod, envoy, grpc, tributary"},
		{[]string{"bootstrap", "envoy", "--server", "nowhere"}, 2, "want host:port"},
		{[]string{"guard", "release"}, 2, "got no argument; want: tributary guard release SOURCE"},
		{[]string{"guard"}, 0, "Available Commands"},

		{[]string{"upgrade"}, 1, "error: tributary upgrade was removed: restart the service (systemctl restart tributary"},
		{[]string{"upgrade", "-c", "/etc/tributary/tributary.yaml"}, 1, "was removed: restart the service"},
		{[]string{"upgrade", "--help"}, 1, "was removed: restart the service"},
		{[]string{"guard", "list", "--admin", "127.0.0.1:1"}, 1, "no server listens on 127.0.0.1:1"},
		{[]string{"load", "--server", "127.0.0.1:1"}, 1, "tributary load was removed: run it from the source: go run -C bench ./load"},
		{[]string{"diff", dir + "/missing", dir}, 1, "error: " + dir + "/missing does not exist\n"},
		{[]string{"diff", dir + "/good", "--server", "127.0.0.1:1"}, 1, "127.0.0.1:1 is unavailable"},
		{[]string{"explain", "a.example", "--admin", "127.0.0.1:1"}, 1, "no server listens on 127.0.0.1:1"},
		{[]string{"status", "--admin", "127.0.0.1:1"}, 1, "no server listens on 127.0.0.1:1"},
		{[]string{"get", "se", "--server", "127.0.0.1:1"}, 1, "127.0.0.1:1 is unavailable"},
		{[]string{"validate", dir + "/missing"}, 1, dir + "/missing: no such file or directory"},

		{[]string{"validate", dir + "/bad.yaml"}, 3, dir + "/bad.yaml:4:47: ServiceEntry shop/bad: port number 80000"},
		{[]string{"validate", "-o", "json", dir + "/bad.yaml"}, 3, `"name": "bad"`},
		{[]string{"validate", "-o", "sarif", dir + "/bad.yaml"}, 3, `"ruleId": "invalid"`},
		{[]string{"validate", dir + "/empty.yaml"}, 0, "warning: nothing is in it"},
		{[]string{"validate", "--strict", dir + "/empty.yaml"}, 3, "0 errors, 1 warning"},
		{[]string{"validate", dir + "/none"}, 0, "0 objects valid, 0 errors, 1 warning; 1 file not read by its name"},
		{
			[]string{"validate", "--strict", "--verbose", dir + "/none"},
			3,
			"not read, as its name does not end in .yaml, .yml or .json: " + dir + "/none/a.txt",
		},
		{[]string{"validate", "--strict", dir + "/foreign.yaml"}, 0, "0 objects valid, 0 errors, 0 warnings; 1 of other APIs passed over"},
		{[]string{"validate", "-o", "json", dir + "/foreign.yaml"}, 0, `"severity": "note"`},
		{[]string{"validate", "--strict", dir + "/mistyped.yaml"}, 3, "Istio's is of networking.istio.io/v1"},
		{[]string{"validate", dir + "/away.yaml"}, 3, "source away (fs://" + dir + "/away): "},
		{[]string{"validate", "--offline", dir + "/away.yaml"}, 0, "not checked: source away"},
		{[]string{"validate", dir + "/broken.yaml"}, 3, dir + `/broken.yaml:1:27: configSources[0].address: unknown scheme "ftp"; known: consul`},

		{[]string{"serve", "-c", dir + "/identity.yaml"}, 78, "identity.tokens: /nowhere: no such file or directory"},
		{[]string{"validate", dir + "/slip.yaml"}, 3, "configSource: unknown key (did you mean configSources?)"},
		{[]string{"serve", "-c", dir + "/state.yaml"}, 1, dir + "/state.yaml:2:11: stateDir: "},
		{[]string{"serve", "-c", dir + "/unclosed.yaml"}, 78, "not valid YAML: want a comma or a } before this"},
		{[]string{"serve", "-c", dir + "/missing.yaml"}, 78, dir + "/missing.yaml: no such file or directory"},
		{[]string{"serve", "-c", dir + "/broken.yaml"}, 78, dir +
			`/broken.yaml:1:27: configSources[0].address: unknown scheme "ftp"; known: consul`},
		{[]string{"serve", "--config-source", "ftp://x"}, 78, `unknown scheme "ftp"`},
		{[]string{"serve", "--config-source", "fs:///x", "--listen", "nowhere"}, 78, `listen.xds: want host:port or unix:///PATH, got "nowhere"`},
	} {
		got := command(t, c.args...)
		assert.Equal(t, c.code, got.code, "%v: %s%s", c.args, got.stdout, got.stderr)
		assert.Contains(t, got.stdout+got.stderr, c.says, "%v", c.args)
		onlyItsFlags(t, c.args, got.stderr)
	}
}

func TestValidateStdin(t *testing.T) {
	root := newRoot()
	var buffer bytes.Buffer
	root.SetIn(strings.NewReader(strings.ReplaceAll(entry("bad", 80000), "shop", "mall")))
	root.SetOut(&buffer)
	root.SetErr(&buffer)
	root.SetArgs([]string{"validate", "-"})
	require.Error(t, root.ExecuteContext(t.Context()))
	assert.Contains(t, buffer.String(), "stdin:4:47: ServiceEntry mall/bad: port number 80000")
}

// Settings that Envoys ignore are reported to those who ask for them.
func TestValidateForEnvoy(t *testing.T) {
	const nowhere = "stdin:4:14: DestinationRule default/d: warning: spec.host: no ServiceEntry has the host a.example: add one, or correct " +
		"the host (unknown-host)\n"
	for client, want := range map[string]string{
		"envoy": nowhere + "stdin:4:49: DestinationRule default/d: warning: spec.trafficPolicy.tunnel has no effect on Envoys: connections " +
			"are made directly\n" +
			"stdin:4:14: DestinationRule default/d: warning: spec.host has no effect on Envoys: there is no host a.example\n",
		"": nowhere,
	} {
		root := newRoot()
		var buffer bytes.Buffer
		root.SetIn(strings.NewReader("apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: d}\n" +
			"spec: {host: a.example, trafficPolicy: {tunnel: {targetHost: a.example, targetPort: 80}}}\n"))
		root.SetOut(&buffer)
		root.SetErr(io.Discard)
		root.SetArgs([]string{"validate", "--for", client, "-"})
		require.NoError(t, root.ExecuteContext(t.Context()))
		assert.Equal(t, want, buffer.String())
	}
	root := newRoot()
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"validate", "--for", "nginx", "-"})
	require.ErrorContains(t, root.ExecuteContext(t.Context()), "want envoy")
}

func TestDiffStdin(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	root := newRoot()
	var buffer bytes.Buffer
	root.SetIn(strings.NewReader(entry("reviews", 81)))
	root.SetOut(&buffer)
	root.SetErr(&buffer)
	root.SetArgs([]string{"diff", dir + "/a.yaml", "-"})
	require.Error(t, root.ExecuteContext(t.Context()))
	assert.Contains(t, buffer.String(), "+++ stdin:1 ServiceEntry shop/reviews\n")
	assert.Contains(t, buffer.String(), "1 object differs, 0 are only in "+dir+"/a.yaml, 0 only in stdin\n")
}
