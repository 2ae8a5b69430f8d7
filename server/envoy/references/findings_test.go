package references

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
		second string
		found  bool
	}{
		"credential": {"credentialName: one", true}, "other credential": {"credentialName: two", false}, "files": {files, false},
	} {
		t.Run(name, func(t *testing.T) {
			found := findingsOf(t, gateway("a", "credentialName: one")+gateway("b", c.second))
			require.Equal(t, c.found, strings.Contains(found, "IST0138 Gateway edge/b"), found)
		})
	}
	require.Contains(t, findingsOf(t, gateway("a", files)+gateway("b", files)), "IST0138")
}

// TestHostsDifferInCase finds nothing wrong with references whose case differs.
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

// TestExcludedHosts finds nothing wrong with hosts that a Sidecar excludes and no object has.
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
			found := findingsOf(t, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, namespace: shop}\n"+
				"spec: {hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}\n---\n"+
				"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a, namespace: shop}\n"+
				"spec: {host: a.example, trafficPolicy: {"+c.policy+"}}\n")
			require.True(t, strings.HasPrefix(found, c.want), found)
			require.Equal(t, c.want == "", found == "", found)
		})
	}
}
