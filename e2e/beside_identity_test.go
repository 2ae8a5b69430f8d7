package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/e2e/fixture"
)

// besideIdentities has services with endpoints that are authenticated for each possible reason, or not at all.
const besideIdentities = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: listed, namespace: shop}
spec:
  hosts: [listed.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: grpc, protocol: GRPC}, {number: 82, name: tcp, protocol: TCP}]
  endpoints:
  - {address: 10.0.0.1, serviceAccount: one}
  - {address: 10.0.0.2, labels: {security.istio.io/tlsMode: istio}}
  - {address: 10.0.0.3, serviceAccount: three, labels: {security.istio.io/tlsMode: disabled}}
  - {address: 10.0.0.4}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: selecting, namespace: shop}
spec:
  hosts: [selecting.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  subjectAltNames: [spiffe://example.org/ns/shop/sa/extra, selecting.example]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: other, protocol: HTTP}]
  workloadSelector: {labels: {app: selecting}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: plain, namespace: shop}
spec: {address: 10.0.1.1, serviceAccount: plain, labels: {app: selecting, mode: plain, version: v1}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: port, namespace: shop}
spec: {address: 10.0.1.2, serviceAccount: port, labels: {app: selecting, mode: port, version: v1}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: usual, namespace: shop}
spec: {address: 10.0.1.3, serviceAccount: usual, labels: {app: selecting, version: v2}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: shop}
spec:
  hosts: [outside.example]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.2.1, serviceAccount: outside}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: named, namespace: shop}
spec:
  hosts: [named.internal]
  location: MESH_INTERNAL
  resolution: DNS
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: a.example, serviceAccount: named}, {address: b.example}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: plain, namespace: plain}
spec:
  hosts: [plain.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.0.3.1, serviceAccount: plain}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ruled, namespace: shop}
spec:
  hosts: [ruled.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: h2, protocol: HTTP2}, {number: 82, name: off, protocol: HTTP}]
  endpoints: [{address: 10.0.4.1, serviceAccount: ruled, labels: {version: v1}}, {address: 10.0.4.2, labels: {version: v2}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: ruled, namespace: shop}
spec:
  host: ruled.internal
  trafficPolicy:
    tls: {mode: ISTIO_MUTUAL}
    portLevelSettings: [{port: {number: 82}, tls: {mode: DISABLE}}]
  subsets:
  - name: v1
    labels: {version: v1}
    trafficPolicy: {tls: {mode: ISTIO_MUTUAL, sni: other.example, subjectAltNames: [spiffe://example.org/me]}}
  - {name: v2, labels: {version: v2}, trafficPolicy: {tls: {mode: DISABLE}}}
  - {name: v3, labels: {version: v2}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: simple, namespace: shop}
spec:
  hosts: [simple.example]
  location: MESH_EXTERNAL
  resolution: STATIC
  subjectAltNames: [other.example]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: other, protocol: HTTP}]
  endpoints: [{address: 10.0.5.1}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: simple, namespace: shop}
spec:
  host: simple.example
  trafficPolicy:
    tls: {mode: SIMPLE, sni: simple.example}
    portLevelSettings: [{port: {number: 81}, tls: {mode: SIMPLE, subjectAltNames: [third.example]}}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: verified, namespace: shop}
spec:
  hosts: [verified.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  subjectAltNames: [spiffe://example.org/ns/shop/sa/extra]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 82, name: tcp, protocol: TCP}]
  endpoints: [{address: 10.0.6.1, serviceAccount: verified}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: verified, namespace: shop}
spec: {host: verified.internal, trafficPolicy: {tls: {mode: SIMPLE, sni: verified.example}}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: plain, namespace: plain}
spec: {mtls: {mode: DISABLE}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: workload, namespace: shop}
spec: {selector: {matchLabels: {mode: plain}}, mtls: {mode: DISABLE}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: port, namespace: shop}
spec: {selector: {matchLabels: {mode: port}}, portLevelMtls: {81: {mode: DISABLE}}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec:
  selector: {app: vm1}
  servers:
  - port: {number: 443, name: mutual, protocol: HTTPS}
    hosts: [listed.internal]
    tls: {mode: ISTIO_MUTUAL, subjectAltNames: [spiffe://example.org/me]}
  - {port: {number: 444, name: raw, protocol: TLS}, hosts: [listed.internal], tls: {mode: ISTIO_MUTUAL}}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: front, namespace: shop}
spec:
  hosts: [listed.internal]
  gateways: [front]
  http: [{route: [{destination: {host: listed.internal, port: {number: 80}}}]}]
  tcp: [{route: [{destination: {host: listed.internal, port: {number: 82}}}]}]
`

// Mutual TLS of Envoys with an identity equals istiod's, except for the origin of certificates: SPIRE's agent has
// another name for the roots of several trust domains. The accepted names of a certificate are in a newer field. TCP
// within TLS has no istio-peer-exchange, which stock Envoys do not speak, and no ALPN protocol.
func TestIdentitiesBesideIstiod(t *testing.T) {
	t.Parallel()
	for name, mesh := range map[string]string{
		"one domain":      `{"enableAutoMtls": true, "trustDomain": "example.org"}`,
		"several domains": `{"enableAutoMtls": true, "trustDomain": "example.org", "trustDomainAliases": ["old.example", "older.example"]}`,
		"no auto":         `{"enableAutoMtls": false, "trustDomain": "example.org"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "mesh.yaml", besideIdentities+"---\napiVersion: core/v1alpha1\nkind: MeshConfig\n"+
				"metadata: {name: mesh, namespace: istio-system}\nspec: "+mesh+"\n")
			tr := fixture.StartTributary(t, fixture.Files("files", dir))
			tr.AwaitReady(t)
			istiod := istiodBeside(t, tr, mesh)
			istiod.AwaitSynced(t)
			for sort, node := range besideNodes(t) {
				node.Metadata.Fields["IDENTITY"] = structpb.NewStringValue("spire")
				theirs, ours := fixture.TakeInventory(t, istiod.GRPC, node), fixture.TakeInventory(t, tr.XDS, node)
				authenticated := 0
				for c, m := range theirs.Clusters {
					if !strings.HasPrefix(c, "outbound|") {
						continue
					}
					if len(m.GetTransportSocketMatches()) == 0 {
						m.LoadAssignment = nil // the label that endpoints match
					}
					require.Equal(t, sockets(m, false), sockets(ours.Clusters[c], admitsAny(m)), "%s: cluster %s", sort, c)
					if len(m.GetTransportSocketMatches()) > 0 {
						authenticated++
						require.Equal(t, sockets(theirs.Endpoints[c], false), sockets(ours.Endpoints[c], false), "%s: endpoints %s", sort, c)
					}
				}
				require.Equal(t, name != "no auto", authenticated > 4, "%s: %d clusters", sort, authenticated)
				if sort != "gateway" {
					continue
				}
				require.Len(t, ours.Listeners, 2)
				for l, m := range ours.Listeners {
					require.Equal(t, sockets(theirs.Listeners[l], false), sockets(m, admitsAny(theirs.Listeners[l])), "listener %s", l)
				}
			}
		})
	}
}

var subjectName = regexp.MustCompile(`match_(typed_)?subject_alt_names\{[0-9]+\}\..*(exact|prefix)$`)

// admitsAny says whether certificates may have any name.
func admitsAny(m proto.Message) bool {
	for path := range fixture.Flatten(m) {
		if subjectName.MatchString(path) {
			return false
		}
	}
	return true
}

// sockets returns the transport sockets of a message, by the paths of their fields. If any name would do, trust domains
// are left out.
func sockets(m proto.Message, anyName bool) map[string]string {
	fields := make(map[string]string)
	for path, v := range fixture.Flatten(m) {
		switch {
		case !strings.Contains(path, "transport_socket"), strings.Contains(path, ".sds_config"),
			strings.HasSuffix(path, "connect_timeout.seconds"):
		case strings.HasSuffix(path, "validation_context_sds_secret_config.name"):
			fields[path] = "roots"
		case subjectName.MatchString(path) && anyName && strings.HasSuffix(path, "prefix"):
		case subjectName.MatchString(path):
			fields[subjectName.ReplaceAllString(path, "name ")+v] = ""
		case strings.Contains(path, "subject_alt_names"), strings.Contains(path, "DownstreamTlsContext") && strings.Contains(v, "peer-exchange"):
		default:
			fields[path] = v
		}
	}
	return fields
}
