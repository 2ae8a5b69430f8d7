package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// caller sends requests, each on a connection of its own, and counts the answers.
type caller struct {
	passed, denied atomic.Int64
}

// startCaller has a caller send requests to a port until the test ends.
func startCaller(t *testing.T, port int) *caller {
	t.Helper()
	c := new(caller)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			switch text, err := requestOnce(t, port); {
			case text == "passed":
				c.passed.Add(1)
			case err != nil && strings.HasPrefix(err.Error(), "403 "):
				c.denied.Add(1)
			}
			select {
			case <-ctx.Done():
			case <-time.After(40 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return c
}

// denies waits until more requests are denied, and fails the test if one ever passed.
func (c *caller) denies(t *testing.T, p *fixture.Process, name string) {
	t.Helper()
	before := c.denied.Load()
	p.Await(t, func() error {
		if n := c.denied.Load() - before; n < 5 {
			return fmt.Errorf("%s: %d requests are denied", name, n)
		}
		return nil
	})
	require.Zero(t, c.passed.Load(), "%s: requests passed", name)
}

// passes waits until a request passes.
func (c *caller) passes(t *testing.T, p *fixture.Process, name string) {
	t.Helper()
	p.Await(t, func() error {
		if c.passed.Load() == 0 {
			return fmt.Errorf("%s: no request passes", name)
		}
		return nil
	})
}

const inboundSidecar = `apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: in, namespace: default}
spec:
  egress: [{hosts: ["~/*"]}]
  ingress:
  - {port: {number: %d, protocol: HTTP, name: http}, captureMode: NONE, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:%d"}
`

// TestFirstSightOfPoliciesDenies has tributary see a policy that denies everything for the first time in a form that it
// cannot enforce. No request passes a real Envoy, before and after the policy is corrected, until it allows requests or
// is deleted.
func TestFirstSightOfPoliciesDenies(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n"
	const meta, spec = "metadata: {name: deny, namespace: default}\n", "spec: {action: DENY, rules: [{}]}\n"
	const lower, valid = "apiVersion: security.istio.io/v1\nkind: authorizationpolicy\n" + meta + spec, head + meta + spec
	forms := map[string]string{
		"no name":                   head + "metadata: {namespace: default}\n" + spec,
		"long name":                 head + "metadata: {name: " + strings.Repeat("a", 254) + ", namespace: default}\n" + spec,
		"kind in lower case":        lower,
		"plural":                    "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicies\n" + meta + spec,
		"tab":                       head + meta + "spec:\n\taction: DENY\n\trules: [{}]\n",
		"unclosed brace":            head + "metadata: {name: deny, namespace: default\n" + spec,
		"merge key":                 "<<: {apiVersion: security.istio.io/v1, kind: AuthorizationPolicy}\n<<: 7\n" + meta + spec,
		"NUL":                       head + meta + "spec: {action: DENY\x00, rules: [{}]}\n",
		"UTF-16LE":                  wide(valid, false),
		"UTF-16LE with a mark":      wide("\ufeff"+valid, false),
		"UTF-16BE":                  wide(valid, true),
		"UTF-16BE with a mark":      wide("\ufeff"+valid, true),
		"Latin-1":                   head + "metadata: {name: deny, namespace: default, labels: {a: 'caf\xe9'}}\n" + spec,
		"truncated":                 valid[:len(valid)-10],
		"truncated in the metadata": valid[:strings.Index(valid, "deny")],
		"sidecar: no name":          head + "metadata: {namespace: default}\n" + spec,
		"sidecar: lower case":       lower,
		"sidecar: UTF-16LE":         wide(valid, false),
		"sidecar: truncated":        valid[:len(valid)-10],
	}
	type row struct {
		name string
		mesh *mesh
		*caller
	}
	var rows []row
	service := backend(t, "passed")
	for _, name := range slices.Sorted(maps.Keys(forms)) {
		port, dir := fixture.FreePort(t), t.TempDir()
		r := row{name: name, caller: startCaller(t, port)}
		write(t, dir, "deny.yaml", forms[name])
		sidecar := strings.HasPrefix(name, "sidecar")
		if sidecar {
			write(t, dir, "mesh.yaml", fmt.Sprintf(inboundSidecar, port, service))
		} else {
			write(t, dir, "mesh.yaml", fmt.Sprintf(frontGateway, port))
		}
		r.mesh = &mesh{fixture.StartTributary(t, fixture.Files("mesh", dir).With("defaultNamespace", "default")), dir}
		if sidecar {
			fixture.StartEnvoy(t, r.mesh.XDS)
		} else {
			fixture.StartGateway(t, r.mesh.XDS, "/nonexistent")
		}
		rows = append(rows, r)
	}
	for _, r := range rows {
		r.denies(t, r.mesh.Process, r.name)
	}
	for _, r := range rows {
		r.mesh.write(t, "deny.yaml", valid)
	}
	for _, r := range rows {
		r.mesh.Await(t, func() error {
			_, page, err := fixture.Get(t.Context(), r.mesh.URL("/debug/quarantine"))
			if err == nil && strings.Contains(page, "deny.yaml") {
				err = fmt.Errorf("%s: %s", r.name, page)
			}
			return err
		})
		r.denies(t, r.mesh.Process, r.name+", mended")
	}
	for i, r := range rows {
		if i%2 == 0 {
			require.NoError(t, os.Remove(filepath.Join(r.mesh.dir, "deny.yaml")))
		} else {
			r.mesh.write(t, "deny.yaml", strings.Replace(valid, "DENY", "ALLOW", 1))
		}
	}
	for _, r := range rows {
		r.passes(t, r.mesh.Process, r.name+", allowed")
		r.mesh.rejectedNothing(t)
	}
}

// wide returns a text in UTF-16.
func wide(s string, bigEndian bool) string {
	var text []byte
	for _, unit := range utf16.Encode([]rune(s)) {
		if bigEndian {
			text = append(text, byte(unit>>8), byte(unit))
		} else {
			text = append(text, byte(unit), byte(unit>>8))
		}
	}
	return string(text)
}
