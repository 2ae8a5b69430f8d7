package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
)

// virtualService routes requests for a host to another one.
func virtualService(name, to string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.mesh.internal]
  http: [{route: [{destination: {host: %[2]s}}]}]
`, name, to)
}

// kv is a Consul with rules in its key-value store, and a tributary that serves them.
type kv struct {
	consul    *fixture.Consul
	tributary *fixture.Tributary
	store     string
}

func startKV(t *testing.T, o fixture.ConsulOptions) *kv {
	t.Helper()
	consul := fixture.StartConsul(t, o)
	store := "consul-kv://" + consul.HTTP + "/mesh"
	return &kv{consul, fixture.StartTributary(t, fixture.ConfigSource{Name: "kv", Address: store}), store}
}

// run runs a command of tributary on the store, and returns all that it wrote.
func (k *kv) run(t *testing.T, env []string, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), fixture.TributaryBinary(t), append(args, "--store", k.store)...)
	cmd.Env = append(os.Environ(), env...)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return err.Error(), -1
	}
	return string(text), cmd.ProcessState.ExitCode()
}

func (k *kv) apply(t *testing.T, content string) (out string, code int) {
	t.Helper()
	file := testutil.WriteFile(t, t.TempDir(), "rules.yaml", content)
	return k.run(t, nil, "apply", "-f", file)
}

// editor is the environment with a shell script as the editor; it gets the file as $1.
func editor(t *testing.T, script string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "editor")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\nset -e\n"+script+"\n"), 0o700))
	return []string{"VISUAL=", "EDITOR=" + file, "TMPDIR=" + t.TempDir()}
}

// TestRulesInConsul shows that rules that are applied, edited and deleted in Consul's key-value store reach istiod,
// that of two simultaneous changes one wins and the other gets an error, and the effect of an outage of Consul.
func TestRulesInConsul(t *testing.T) {
	t.Parallel()
	k := startKV(t, fixture.ConsulOptions{})
	istiod := k.tributary.StartIstiod(t)
	istiod.AwaitConfigs(t, fixture.Objects{})

	out, code := k.apply(t, virtualService("reviews", "v1.mesh.internal"))
	require.Contains(t, out, "virtualservice/reviews created\n")
	require.Zero(t, code)
	istiod.AwaitText(t, virtualService("reviews", "v1.mesh.internal"))
	out, _ = k.apply(t, virtualService("reviews", "v1.mesh.internal"))
	require.Contains(t, out, "virtualservice/reviews unchanged\n")
	out, _ = k.apply(t, virtualService("reviews", "v2.mesh.internal"))
	require.Contains(t, out, "virtualservice/reviews configured\n")
	istiod.AwaitText(t, virtualService("reviews", "v2.mesh.internal"))

	out, code = k.run(t, editor(t, `sed -i s/v2.mesh/v3.mesh/ "$1"`), "edit", "vs", "reviews", "-n", "shop")
	require.Equal(t, "virtualservice/reviews edited\n", out)
	require.Zero(t, code)
	istiod.AwaitText(t, virtualService("reviews", "v3.mesh.internal"))

	t.Run("two edits at the same time", func(t *testing.T) {
		saved := filepath.Join(t.TempDir(), "saved")
		opened := filepath.Join(t.TempDir(), "opened")
		slow := editor(t, "touch "+opened+"; until [ -e "+saved+` ]; do sleep 0.02; done; sed -i s/v3.mesh/first.mesh/ "$1"`)
		type result struct {
			out  string
			code int
		}
		first := make(chan result, 1)
		go func() {
			out, code := k.run(t, slow, "edit", "vs", "reviews", "-n", "shop")
			first <- result{out, code}
		}()
		fixture.Await(t, func() error { _, err := os.Stat(opened); return err })
		out, code := k.run(t, editor(t, `sed -i s/v3.mesh/second.mesh/ "$1"`), "edit", "vs", "reviews", "-n", "shop")
		require.Equal(t, "virtualservice/reviews edited\n", out)
		require.Zero(t, code)
		require.NoError(t, os.WriteFile(saved, nil, 0o600))
		lost := <-first
		require.Equal(t, 1, lost.code)
		require.Contains(t, lost.out, "virtualservice/reviews in namespace shop was changed by another user")
		require.Contains(t, lost.out, "edit it again\nthe edit is kept in ")
		istiod.AwaitText(t, virtualService("reviews", "second.mesh.internal"))
	})

	t.Run("a stale version", func(t *testing.T) {
		mine, code := k.run(t, nil, "get", "vs", "reviews", "-n", "shop", "-o", "yaml")
		require.Zero(t, code)
		out, _ := k.apply(t, virtualService("reviews", "theirs.mesh.internal"))
		require.Contains(t, out, "virtualservice/reviews configured\n")
		out, code = k.apply(t, strings.ReplaceAll(mine, "second.mesh", "mine.mesh"))
		require.Equal(t, 1, code)
		require.Contains(t, out, "virtualservice/reviews in namespace shop was changed by another user: resource version is stale")
		istiod.AwaitText(t, virtualService("reviews", "theirs.mesh.internal"))
	})

	t.Run("Consul is down", func(t *testing.T) {
		rules := fixture.ParseObjects(t, virtualService("reviews", "theirs.mesh.internal"))
		watch := guard(t, istiod, rules)
		k.consul.Kill()
		k.tributary.Await(t, pageNames(t, k.tributary, "/debug/sources", `"unreachable"`))
		for _, args := range [][]string{{"delete", "vs", "reviews", "-n", "shop"}, {"get", "vs", "-A"}} {
			out, code := k.run(t, nil, args...)
			require.Equal(t, 1, code, args)
			require.Contains(t, out, k.consul.HTTP, args)
		}
		out, code := k.apply(t, virtualService("reviews", "lost.mesh.internal"))
		require.Equal(t, 1, code)
		require.Contains(t, out, "nobody listens there")
		k.tributary.Kill() // even a restart has the last that was good
		k.tributary.Restart(t)
		k.tributary.AwaitAlive(t)
		k.tributary.AwaitReady(t)
		late := k.tributary.StartIstiod(t)
		late.AwaitConfigs(t, rules)
		k.consul.Restart(t)
		k.consul.AwaitLeader(t)
		k.tributary.WaitFor(t, 40*time.Second, pageNames(t, k.tributary, "/debug/sources", `"healthy"`))
		watch.stop(t)
	})

	t.Run("Consul is wiped", func(t *testing.T) {
		watch := guard(t, istiod, fixture.ParseObjects(t, virtualService("reviews", "theirs.mesh.internal")))
		k.consul.Wipe(t)
		k.tributary.WaitFor(t, 40*time.Second, pageNames(t, k.tributary, "/debug/sources", "lost its data"))
		watch.stop(t)
		out, _ := k.apply(t, virtualService("reviews", "new.mesh.internal"))
		require.Contains(t, out, "virtualservice/reviews created\n")
		istiod.AwaitText(t, virtualService("reviews", "new.mesh.internal"))
	})

	out, code = k.run(t, nil, "delete", "vs", "reviews", "-n", "shop")
	require.Equal(t, "virtualservice/reviews deleted\n", out)
	require.Zero(t, code)
	istiod.AwaitConfigs(t, fixture.Objects{})
}

// TestRightsInConsul shows the necessary rights, that a token that loses its rights loses no served object, and the
// messages about it.
func TestRightsInConsul(t *testing.T) {
	t.Parallel()
	const management = "7b0cd6a9-8f3c-4b43-9a43-0d9ed3e5d6c1"
	consul := fixture.StartConsul(t, fixture.ConsulOptions{ManagementToken: management, TLS: true})
	token := func(right string) *api.ACLToken {
		policy, _, err := consul.API().ACL().PolicyCreate(&api.ACLPolicy{
			Name: "mesh-" + right, Rules: fmt.Sprintf(`key_prefix "mesh/" { policy = %q }`, right),
		}, nil)
		require.NoError(t, err)
		created, _, err := consul.API().ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLLink{{ID: policy.ID}}}, nil)
		require.NoError(t, err)
		return created
	}
	reader, writer := token("read"), token("write")
	file := testutil.WriteFile(t, t.TempDir(), "token", reader.SecretID)

	source := fixture.ConfigSource{Name: "kv", Address: "consul-kv+https://" + consul.TLS + "/mesh"}
	source.Options = consul.SecureSource("kv").With("tokenFile", file).Options
	tributary := fixture.StartTributary(t, source)
	k := &kv{consul, tributary, "consul-kv://" + consul.HTTP + "/mesh"}
	rules := testutil.WriteFile(t, t.TempDir(), "rules.yaml", virtualService("reviews", "v1.mesh.internal"))

	out, code := k.run(t, []string{"CONSUL_HTTP_TOKEN="}, "apply", "-f", rules)
	require.Equal(t, 1, code, out)
	require.Contains(t, out, `it needs key_prefix "mesh/" { policy = `)
	out, code = k.run(t, []string{"CONSUL_HTTP_TOKEN=" + reader.SecretID}, "apply", "-f", rules)
	require.Equal(t, 1, code)
	require.Contains(t, out, `it needs key_prefix "mesh/" { policy = "write" }`)
	require.NotContains(t, out, reader.SecretID)
	out, _ = k.run(t, []string{"CONSUL_HTTP_TOKEN=" + writer.SecretID}, "apply", "-f", rules)
	require.Contains(t, out, "virtualservice/reviews created\n")

	istiod := tributary.StartIstiod(t)
	want := fixture.ReadObjects(t, rules)
	istiod.AwaitConfigs(t, want)
	watch := guard(t, istiod, want)
	_, err := consul.API().ACL().TokenDelete(reader.AccessorID, nil)
	require.NoError(t, err)
	// The query that waits is answered when something changes.
	_, err = consul.API().KV().Put(&api.KVPair{Key: "mesh/note.yaml", Value: []byte("# nothing\n")}, nil)
	require.NoError(t, err)
	tributary.Await(t, pageNames(t, tributary, "/debug/sources", `"denied"`))
	status := tributary.Ask(t, "status")
	assert.Contains(t, status, "denied")
	assert.NotContains(t, status+tributary.Output(), reader.SecretID)

	// Without any token Consul lists no key.
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	tributary.WaitFor(t, 40*time.Second, pageNames(t, tributary, "/debug/sources", "no token is sent"))

	require.NoError(t, os.WriteFile(file, []byte(writer.SecretID), 0o600)) // a new token, without a restart
	tributary.WaitFor(t, 40*time.Second, pageNames(t, tributary, "/debug/sources", `"healthy"`))
	watch.stop(t)
	require.NoError(t, os.WriteFile(rules, []byte(virtualService("reviews", "v2.mesh.internal")), 0o600))
	out, _ = k.run(t, []string{"CONSUL_HTTP_TOKEN=" + writer.SecretID}, "apply", "-f", rules)
	require.Contains(t, out, "virtualservice/reviews configured\n")
	istiod.AwaitFolders(t, rules)
}

// TestStoreOnConsul runs the tests of the contract of the store on Consul's key-value store.
func TestStoreOnConsul(t *testing.T) {
	t.Parallel()
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run=^TestStoreOnConsul$", "./sources/consulkv")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "TRIBUTARY_TEST_CONSUL="+consul.HTTP)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: TestStoreOnConsul/Concurrent_updates_lose_nothing")
}
