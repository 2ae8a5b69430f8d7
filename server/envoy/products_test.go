package envoy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tributary/internal/testutil"
	"tributary/resource"
	"tributary/server/envoy/index"
)

// many returns a list in YAML with n elements; # in the element is its number.
func many(n int, element string) string {
	var elements []string
	for i := range n {
		elements = append(elements, strings.ReplaceAll(element, "#", fmt.Sprint(i)))
	}
	return "[" + strings.Join(elements, ", ") + "]"
}

const productBase = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: base, namespace: default}
spec:
  hosts: [base.example.com, a0.example.com, a1.example.com, a2.example.com, a3.example.com, a4.example.com]
  ports: [{number: 80, name: http, protocol: HTTP}, {number: 90, name: tcp, protocol: TCP}, {number: 443, name: tls, protocol: TLS}]
  resolution: STATIC
  endpoints: [{address: 10.0.0.1, labels: {app: one}}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: base, namespace: default}
spec: {selector: {app: one}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
`

// products has objects of each kind with n of all that may multiply.
var products = map[resource.Kind][]func(n int) string{
	resource.VirtualService: {
		func(n int) string {
			return fmt.Sprintf("{hosts: %s, gateways: [mesh, base], http: %s}", many(n, "a#.example.com"), many(n, "{match: "+
				many(n, "{uri: {prefix: /p#}, headers: {x: {exact: z}}}")+", headers: {request: {set: {a: b, c: d}}}, route: "+
				"[{destination: {host: base.example.com}, weight: 1}, {destination: {host: base.example.com, subset: v}, weight: 1}]}"))
		},
		func(n int) string {
			return fmt.Sprintf("{hosts: %s, tls: %s}", many(n, "a#.example.com"), many(n, "{match: "+
				many(n, "{port: 443, sniHosts: [a#.example.com]}")+", route: [{destination: {host: base.example.com}}]}"))
		},
		func(n int) string {
			return fmt.Sprintf("{hosts: %s, tcp: %s}", many(n, "a#.example.com"), many(n, "{match: "+
				many(n, "{port: 90, destinationSubnets: [10.0.#.0/24]}")+", route: [{destination: {host: base.example.com}}]}"))
		},
		func(n int) string { // one long route
			return fmt.Sprintf("{hosts: %s, http: [{headers: {request: {remove: %s}}, route: [{destination: {host: base.example.com}}]}]}",
				many(n, "a#.example.com"), many(n*n, "x-h#"))
		},
	},
	resource.ServiceEntry: {
		func(n int) string { return serviceProduct(n, "HTTP") },
		func(n int) string { return serviceProduct(n, "TCP") },
		func(n int) string { return serviceProduct(n, "TLS") },
	},
	resource.DestinationRule: {func(n int) string {
		return fmt.Sprintf("{host: base.example.com, trafficPolicy: {portLevelSettings: %s, tls: {mode: SIMPLE, subjectAltNames: %s}}, "+
			"subsets: %s}", many(n, "{port: {number: #0}}"), many(n, "name#.example.com"), many(n*n, "{name: v#, labels: {version: v#}}"))
	}},
	resource.Gateway: {func(n int) string {
		return fmt.Sprintf("{selector: {app: one}, servers: %s}", many(n, "{port: {number: 80#, name: h#, protocol: HTTP}, hosts: "+
			strings.ReplaceAll(many(n, "h@.example.com"), "@", "#")+"}"))
	}},
	resource.Sidecar: {func(n int) string {
		return fmt.Sprintf("{egress: %s, ingress: %s}", many(n, "{port: {number: 70#, name: h#, protocol: HTTP}, hosts: ['*/*']}"),
			many(n, "{port: {number: 60#, name: h#, protocol: HTTP}, defaultEndpoint: '127.0.0.1:80#'}"))
	}},
	resource.EnvoyFilter: {func(n int) string {
		return fmt.Sprintf("{configPatches: %s}", many(n*n, "{applyTo: HTTP_FILTER, match: {context: ANY}, patch: {operation: INSERT_FIRST, "+
			"value: {name: l#, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, "+
			"default_source_code: {inline_string: ''}}}}}"))
	}},
	resource.WasmPlugin: {func(n int) string {
		return fmt.Sprintf("{url: 'file:///a.wasm', vmConfig: {env: %s}, match: %s}", many(n*n, "{name: e#, value: v}"),
			many(n, "{ports: [{number: 8#}]}"))
	}},
	resource.AuthorizationPolicy: {func(n int) string {
		return fmt.Sprintf("{selector: {matchLabels: {app: one}}, rules: %s}", many(n,
			"{from: "+many(n, "{source: {principals: [cluster.local/ns/b/sa/#]}}")+", to: "+
				many(n, "{operation: {paths: [/p#], hosts: [h#]}}")+", when: "+many(n, "{key: 'request.headers[h#]', values: [a, b]}")+"}"))
	}},
	resource.RequestAuthentication: {func(n int) string {
		return fmt.Sprintf("{selector: {matchLabels: {app: one}}, jwtRules: %s}", many(n, "{issuer: i#, jwks: '{\"keys\": []}', fromHeaders: "+
			strings.ReplaceAll(many(n, "{name: h@}"), "@", "#")+"}"))
	}},
	resource.PeerAuthentication: {func(n int) string {
		var ports []string
		for i := range n {
			ports = append(ports, fmt.Sprintf("%d: {mode: STRICT}", 80+i))
		}
		return "{selector: {matchLabels: {app: one}}, portLevelMtls: {" + strings.Join(ports, ", ") + "}}"
	}},
	resource.Telemetry: {func(n int) string {
		return fmt.Sprintf("{accessLogging: %s}", many(n, "{providers: [{name: envoy}], filter: {expression: 'response.code >= 40#'}}"))
	}},
	resource.WorkloadEntry: {func(n int) string { return fmt.Sprintf("{address: 10.0.0.%d, labels: {app: one}}", n) }},
	resource.WorkloadGroup: {func(n int) string { return fmt.Sprintf("{template: {serviceAccount: a%d}}", n) }},
	resource.MeshConfig: {func(n int) string {
		return fmt.Sprintf("{extensionProviders: %s}", many(n, "{name: p#, envoyFileAccessLog: {path: /dev/stdout}}"))
	}},
}

func serviceProduct(n int, protocol string) string {
	return fmt.Sprintf("{hosts: %s, addresses: %s, resolution: STATIC, subjectAltNames: %s, ports: %s, endpoints: %s}",
		many(n, "a#.example.com"), many(n, "240.0.0.#"), many(n, "n#"), many(n, "{number: 8#, name: p#, protocol: "+protocol+"}"),
		many(n, "{address: 10.0.0.#, labels: {app: one, version: v#}}"))
}

// An object adds fewer bytes to a client's resources than estimated, however large the factors are.
func TestProducts_NoMoreThanEstimated(t *testing.T) {
	testutil.OneGoroutine(t)
	for _, kind := range index.Kinds {
		require.NotEmpty(t, products[kind], "no object of kind %s with products", kind)
		for number, spec := range products[kind] {
			t.Run(fmt.Sprintf("%s/%d", kind, number), func(t *testing.T) {
				for _, n := range []int{1, 3, 9} {
					schema, _ := resource.SchemaOf(kind)
					namespace := ", namespace: default"
					if kind == resource.MeshConfig {
						namespace = ""
					}
					text := fmt.Sprintf("apiVersion: %s/%s\nkind: %s\nmetadata: {name: product%s}\nspec: %s\n", schema.Group, schema.Versions[0], kind,
						namespace, spec(n))
					r := decoded(t, text)[0]
					decodedSpec, err := r.Spec()
					require.NoError(t, err)
					estimate, factors := resource.Products(decodedSpec)
					for _, client := range nodesWithProducts {
						before, after := bytesOf(t, productBase, client), bytesOf(t, productBase+text, client)
						t.Logf("%s: %d bytes of at most %d for %s", client, after-before, estimate, factors)
						require.LessOrEqual(t, after-before, int(estimate), "%s for %s: %s", client, factors, text[:min(len(text), 2000)])
					}
				}
			})
		}
	}
}

var nodesWithProducts = []string{"NONE", "REDIRECT", "gateway"}

// bytesOf is the size of a client's resources.
func bytesOf(t *testing.T, text, client string) (size int) {
	n := node("default", client, "")
	if client == "gateway" {
		n = gatewayNode("default")
	}
	for _, m := range dumpText(t, text, n) {
		size += proto.Size(m)
	}
	return size
}
