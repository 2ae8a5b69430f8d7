package e2e

import (
	"fmt"
	"strings"
	"testing"

	"tributary/e2e/fixture"
)

// TestMixedResolutionsBehindIstiod merges one service of three registries: the first has addresses, the second names
// (one of them unknown to DNS), and the third leaves it to DNS. A fourth without healthy instances comes before them. A
// real Envoy behind a real istiod has all of them, by DNS, and each answers; so does another port of the host; a subset
// has the endpoints with its labels.
func TestMixedResolutionsBehindIstiod(t *testing.T) {
	t.Parallel()
	backendOne, backendTwo, backendThree := backend(t, "one"), backend(t, "two"), backend(t, "three")
	port, secondPort := fixture.FreePort(t), fixture.FreePort(t)
	entry := func(resolution, rest string) string {
		return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: echo, namespace: default}
spec:
  hosts: [echo.localhost]
  location: MESH_INTERNAL
  resolution: %s
%s`, resolution, rest)
	}
	ports := fmt.Sprintf("  ports: [{number: %d, name: http, protocol: HTTP}]\n", port)
	var sources []fixture.ConfigSource
	for name, text := range map[string]string{
		"a-empty": entry("STATIC", ports),
		"b-addresses": entry("STATIC", ports+fmt.Sprintf("  endpoints: [{address: 127.0.0.1, ports: {http: %d}, labels: {version: one}, "+
			"locality: eu/a}]\n", backendOne)),
		"c-names": entry("DNS", ports+fmt.Sprintf(`  endpoints:
  - {address: localhost, ports: {http: %d}, labels: {version: two}, locality: eu/b}
  - {address: missing.invalid, ports: {http: %d}}
`, backendTwo, backendTwo)),
		"d-itself": entry("DNS", fmt.Sprintf("  ports: [{number: %d, targetPort: %d, name: http, protocol: HTTP}]\n", port, backendThree)),
	} {
		dir := t.TempDir()
		write(t, dir, "echo.yaml", text)
		sources = append(sources, fixture.Files(name, dir).With("merge", "endpoints").With("precedence", -int(name[0])))
	}
	// Another port of the host has addresses only: istiod joins it if it is resolved like the first one.
	dir := t.TempDir()
	write(t, dir, "other.yaml", strings.ReplaceAll(entry("STATIC", fmt.Sprintf(`  ports: [{number: %d, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: %d}}]
`, secondPort, backendOne)), "name: echo,", "name: other,"))
	sources = append(sources, fixture.Files("e-other", dir).With("merge", "endpoints"))
	rules := t.TempDir()
	sources = append(sources, fixture.Files("rules", rules))
	write(t, rules, "rule.yaml", `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: echo, namespace: default}
spec:
  host: echo.localhost
  subsets:
  - {name: one, labels: {version: one}}
  - {name: two, labels: {version: two}}
`)
	tributary := fixture.StartTributary(t, sources...)
	tributary.AwaitReady(t)
	istiod := tributary.StartIstiod(t)
	envoy := fixture.StartEnvoy(t, istiod.GRPC)

	answers := func(port int, want ...string) {
		t.Helper()
		envoy.Await(t, func() error {
			seen := map[string]bool{}
			for range 60 {
				name, err := requestAs(t, port, "echo.localhost")
				if err != nil {
					return err
				}
				seen[name] = true
			}
			for _, name := range want {
				if !seen[name] {
					return fmt.Errorf("%s never answered, but %v", name, seen)
				}
			}
			if len(seen) != len(want) {
				return fmt.Errorf("answers of %v", seen)
			}
			return nil
		})
	}
	answers(port, "one", "two", "three")
	answers(secondPort, "one")
	write(t, rules, "route.yaml", strings.ReplaceAll(echoRoute("two"), "echo.mesh.internal", "echo.localhost"))
	answers(port, "two")
}
