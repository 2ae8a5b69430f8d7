package references

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
)

const certificateGateway = `---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: %NAME, namespace: edge}
spec:
  selector: {app: gw}
  servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [%NAME.example], tls: {mode: SIMPLE, %TLS}}]
`

func findingsOf(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return text(first(Find(snapshot(t, path), Options{})))
}

func TestSameCertificate(t *testing.T) {
	gateway := func(name, tls string) string {
		return strings.NewReplacer("%NAME", name, "%TLS", tls).Replace(certificateGateway)
	}
	files := "serverCertificate: /a.crt, privateKey: /a.key"
	for name, c := range map[string]struct {
		second   string
		conflict bool
	}{
		"credential": {"credentialName: one", true}, "other credential": {"credentialName: two", false}, "files": {files, false},
	} {
		t.Run(name, func(t *testing.T) {
			findings := findingsOf(t, gateway("a", "credentialName: one")+gateway("b", c.second))
			require.Equal(t, c.conflict, strings.Contains(findings, "IST0138 Gateway edge/b"), findings)
		})
	}
	require.Contains(t, findingsOf(t, gateway("a", files)+gateway("b", files)), "IST0138")
}

// TestHostsDifferInCase expects no findings for references in a different case.
func TestHostsDifferInCase(t *testing.T) {
	require.Empty(t, findingsOf(t, `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: shop}
spec: {hosts: [Reviews.Example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: shop}
spec: {host: reviews.example, subsets: [{name: a, labels: {v: a}}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: g, namespace: shop}
spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["./REVIEWS.example"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: a, namespace: shop}
spec: {hosts: [reviews.EXAMPLE], gateways: [g], http: [{route: [{destination: {host: reviews.EXAMPLE, subset: a}}]}]}
`))
}

// TestExcludedHosts expects no findings for missing hosts that a Sidecar excludes.
func TestExcludedHosts(t *testing.T) {
	const sidecar = `apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: s, namespace: shop}
spec: {egress: [{hosts: ["*/*", "%s/absent.example"]}]}
`
	for _, namespace := range []string{"~", "~shop", "~*", "~."} {
		require.Empty(t, findingsOf(t, strings.Replace(sidecar, "%s", namespace, 1)), namespace)
	}
	require.Contains(t, findingsOf(t, strings.Replace(sidecar, "%s", "shop", 1)), "no ServiceEntry matches")
}

func TestAuthorities(t *testing.T) {
	for name, c := range map[string]struct{ policy, want string }{
		"rule":      {"tls: {mode: SIMPLE}", "info IST0128 DestinationRule shop/a: spec.trafficPolicy.tls: "},
		"skip":      {"tls: {mode: SIMPLE, insecureSkipVerify: true}", "warning IST0128 DestinationRule shop/a: spec.trafficPolicy.tls: "},
		"authority": {"tls: {mode: SIMPLE, caCertificates: /ca.pem}", ""},
		"named":     {"tls: {mode: SIMPLE, credentialName: ca}", ""},
		"mesh":      {"tls: {mode: ISTIO_MUTUAL}", ""},
		"port": {
			"portLevelSettings: [{port: {number: 80}}, {port: {number: 443}, tls: {mode: SIMPLE}}]",
			"info IST0129 DestinationRule shop/a: spec.trafficPolicy.portLevelSettings[1].tls: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			findings := findingsOf(t, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, namespace: shop}\n"+
				"spec: {hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}\n---\n"+
				"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a, namespace: shop}\n"+
				"spec: {host: a.example, trafficPolicy: {"+c.policy+"}}\n")
			require.True(t, strings.HasPrefix(findings, c.want), findings)
			require.Equal(t, c.want == "", findings == "", findings)
		})
	}
}

// TestGatewaysOfSomeWorkloads compares two Gateways; one selects a part of the other's workloads.
func TestGatewaysOfSomeWorkloads(t *testing.T) {
	for name, c := range map[string]struct {
		selector string
		conflict bool
	}{
		"same": {"{app: gw}", true}, "part": {"{app: gw, type: internal}", true}, "all": {"{}", true},
		"others": {"{app: other}", false}, "overlap": {"{type: internal}", false},
	} {
		t.Run(name, func(t *testing.T) {
			gateways := strings.ReplaceAll(certificateGateway, "[%NAME.example]", "[shop.example]")
			first := strings.NewReplacer("%NAME", "a", "%TLS", "credentialName: one").Replace(gateways)
			second := strings.NewReplacer("%NAME", "b", "%TLS", "credentialName: one", "{app: gw}", c.selector).Replace(gateways)
			findings := findingsOf(t, first+second)
			require.Equal(t, c.conflict, strings.Contains(findings, "IST0138 Gateway edge/b"), findings)
			require.Equal(t, c.conflict, strings.Contains(findings, "IST0145 Gateway edge/b"), findings)
		})
	}
}

// TestHostsOfGateways has a VirtualService with the hosts of several Gateways, as in istioctl's own test.
func TestHostsOfGateways(t *testing.T) {
	const objects = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: a, namespace: shop}
spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*.a.example"]}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: b, namespace: shop}
spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [b.example]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: r, namespace: shop}
spec: {hosts: HOSTS, gateways: GATEWAYS, http: [{redirect: {uri: /}}]}
`
	for name, c := range map[string]struct {
		hosts, gateways string
		want            []string
	}{
		"one each":         {"[x.a.example, b.example]", "[a, b]", nil},
		"only of one":      {"[x.a.example]", "[a, b]", []string{"spec.hosts[0]: no server of Gateway shop/b"}},
		"of none":          {"[x.a.example, c.example]", "[a]", []string{"spec.hosts[1]: no server of Gateway shop/a"}},
		"also of the mesh": {"[x.a.example, c.example]", "[a, mesh]", nil},
		"only of the mesh": {"[c.example]", "[a, mesh]", []string{"spec.hosts[0]: no server of Gateway shop/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			findings := findingsOf(t, strings.NewReplacer("HOSTS", c.hosts, "GATEWAYS", c.gateways).Replace(objects))
			require.Equal(t, len(c.want), strings.Count(findings, HostNotInGateway), findings)
			for _, want := range c.want {
				require.Contains(t, findings, want)
			}
		})
	}
}

// TestDerivedObjects expects no findings for listeners with a shared certificate, and for a route with the hosts of two
// listeners.
func TestDerivedObjects(t *testing.T) {
	const objects = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: a, namespace: shop, annotations: {FROM: Gateway/shop/g}}
spec: {servers: [{port: {number: 443, name: x, protocol: HTTPS}, hosts: ["*/a.example"], tls: {mode: SIMPLE, credentialName: c}}]}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: b, namespace: shop, annotations: {FROM: Gateway/shop/g}}
spec: {servers: [{port: {number: 443, name: x, protocol: HTTPS}, hosts: ["*/b.example"], tls: {mode: SIMPLE, credentialName: c}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ab, namespace: shop, annotations: {FROM: HTTPRoute/shop/r}}
spec: {hosts: [b.example], gateways: [a], http: [{route: [{destination: {host: web.shop.svc, port: {number: 80}}}]}]}
`
	require.Empty(t, findingsOf(t, strings.ReplaceAll(objects, "FROM", resource.DerivedFrom)))
}
