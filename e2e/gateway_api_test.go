package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// Files of Gateway API and Ingress become routes that an Envoy of tributary follows, and an Envoy behind an istiod with
// the derived objects. Both behave alike.
func TestGatewayAPI(t *testing.T) {
	t.Parallel()
	var mirrored atomic.Int64
	serve := func(name string) int {
		return handler(t, func(w http.ResponseWriter, r *http.Request) {
			if name == "mirror" {
				mirrored.Add(1)
			}
			if r.URL.Path == "/slow" {
				select {
				case <-r.Context().Done():
				case <-time.After(5 * time.Second):
				}
			}
			w.Header().Set("X-Gone", "yes")
			_, _ = io.WriteString(w, strings.TrimSpace(name+" "+r.URL.Path+" "+r.Host+" "+r.Header.Get("X-Set")+r.Header.Get("X-Removed")))
		})
	}
	port := fixture.FreePort(t)
	dir := t.TempDir()
	services := ""
	for _, name := range []string{"one", "two", "mirror"} {
		services += fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s, namespace: shop}\nspec: "+
			"{hosts: [%[1]s.shop.svc.cluster.local], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, "+
			"protocol: HTTP}], endpoints: [{address: 127.0.0.1, ports: {http: %d}}]}\n", name, serve(name))
	}
	write(t, dir, "services.yaml", services)
	write(t, dir, "gateway.yaml", fmt.Sprintf(edgeGateway, port))
	write(t, dir, "routes.yaml", edgeRoutes)
	write(t, dir, "ingress.yaml", edgeIngress)
	tributary := fixture.StartTributary(t, fixture.Files("cluster", dir).With("derive", map[string]any{}))
	tributary.AwaitReady(t)

	follow := func(envoy *fixture.Envoy) {
		t.Helper()
		ask := func(method, host, path string, headers ...string) answer {
			got, err := askEdge(t, port, method, host, path, headers...)
			require.NoError(t, err)
			return got
		}
		get := func(path string, headers ...string) string {
			return ask("GET", "shop.example.com", path, headers...).body
		}
		envoy.Await(t, func() error {
			got, err := askEdge(t, port, "GET", "shop.example.com", "/exact")
			if err == nil && got.body != "two /exact shop.example.com" {
				err = fmt.Errorf("%d %q", got.status, got.body)
			}
			return err
		})
		require.Equal(t, "one /exact/ shop.example.com", get("/exact/"))
		require.Equal(t, "two /segment shop.example.com", get("/segment"))
		require.Equal(t, "two /segment/a shop.example.com", get("/segment/a"))
		require.Equal(t, "one /segments shop.example.com", get("/segments"), "a prefix is one of whole segments")
		require.Equal(t, "two / shop.example.com", get("/", "x-version", "two"))
		require.Equal(t, "two / shop.example.com", ask("DELETE", "shop.example.com", "/").body)
		require.Equal(t, "two / shop.example.com", get("/?version=two"))
		require.Equal(t, "one / shop.example.com", get("/?version=three"))

		moved := ask("GET", "shop.example.com", "/old/a")
		require.Equal(t, http.StatusFound, moved.status)
		require.Equal(t, fmt.Sprintf("http://shop.example.com:%d/new/a", port), moved.header.Get("Location"), "the port stays")
		require.Equal(t, "https://shop.example.com/secure", ask("GET", "shop.example.com", "/secure").header.Get("Location"))
		require.Equal(t, "one /a shop.example.com", get("/strip/a"))
		require.Equal(t, "one / shop.example.com", get("/strip"))
		require.Equal(t, "one /whole inner.example", get("/whole/a"))
		require.Equal(t, http.StatusGatewayTimeout, ask("GET", "shop.example.com", "/slow").status)
		changed := ask("GET", "shop.example.com", "/headers", "x-removed", "no")
		require.Equal(t, "one /headers shop.example.com set", changed.body)
		require.Equal(t, "yes", changed.header.Get("X-Added"))
		require.Empty(t, changed.header.Get("X-Gone"))
		before := mirrored.Load()
		require.Equal(t, "one /mirrored shop.example.com", get("/mirrored"))
		require.Eventually(t, func() bool { return mirrored.Load() == before+1 }, 5*time.Second, 10*time.Millisecond)
		require.Equal(t, http.StatusInternalServerError, ask("GET", "shop.example.com", "/refused").status, "no ReferenceGrant")
		require.Equal(t, http.StatusNotFound, ask("GET", "nobody.example.com", "/").status)
		require.Equal(t, "two / exact.example.com", ask("GET", "exact.example.com", "/").body, "a whole name comes before a wildcard")
		counts := make(map[string]int)
		for range 400 {
			counts[get("/weighted")[:3]]++
		}
		require.InDelta(t, 300, counts["one"], 60)
		require.InDelta(t, 100, counts["two"], 60)
		_, dump, err := fixture.Get(t.Context(), envoy.URL("/config_dump?resource=dynamic_route_configs"))
		require.NoError(t, err)
		require.Contains(t, dump, "ingress.example.com")
		require.Contains(t, dump, `"path_separated_prefix": "/shop"`)
	}
	gateway := fixture.StartGateway(t, tributary.XDS, t.TempDir())
	follow(gateway)
	var istiod *fixture.Istiod
	for _, version := range fixture.IstiodVersions {
		gateway.Kill() // All gateways have the same port.
		if version != fixture.Istiod127 {
			// From 1.31 on istiod has a field for a redirect that replaces a prefix, and takes the uri literally.
			tributary = fixture.StartTributary(t, fixture.Files("cluster", dir).With("derive", map[string]any{"prefixRewrite": true}))
			tributary.AwaitReady(t)
			gateway = fixture.StartGateway(t, tributary.XDS, t.TempDir())
			follow(gateway)
			gateway.Kill()
		}
		served := ""
		for _, kind := range []string{"gateways", "virtualservices", "serviceentries"} {
			out, code := fixture.Run(t, fixture.TributaryBinary(t), "get", kind, "-A", "-o", "yaml", "--server", tributary.XDS)
			require.Zero(t, code)
			served += "---\n" + out
		}
		objects := fixture.ParseObjects(t, served)
		require.GreaterOrEqual(t, len(objects), 8)
		istiod = version.Start(t, "xds://"+tributary.XDS)
		istiod.AwaitConfigs(t, objects)
		gateway = fixture.StartGateway(t, istiod.GRPC, t.TempDir())
		follow(gateway)
	}

	write(t, dir, "routes.yaml", "{{{") // the derived objects stay
	write(t, dir, "mark.yaml", strings.ReplaceAll(services[:strings.LastIndex(services, "---")], "name: two", "name: mark"))
	istiod.Await(t, func() error {
		got, err := istiod.Configs(t.Context())
		if err == nil && got[fixture.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "mark"}] == nil {
			err = fmt.Errorf("the mark is not there: %d objects", len(got))
		}
		return err
	})
	got, err := askEdge(t, port, "GET", "shop.example.com", "/exact")
	require.NoError(t, err)
	require.Equal(t, "two /exact shop.example.com", got.body)
}

// askEdge asks the gateway of a host on a port.
func askEdge(t *testing.T, port int, method, host, path string, headers ...string) (answer, error) {
	t.Helper()
	return askBy(t, nil, method, "http://"+fixture.Loopback(port)+path, host, headers...)
}

// askBy asks a host, over a new connection, with TLS for https.
func askBy(t *testing.T, conf *tls.Config, method, url, host string, headers ...string) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	req.Host = host
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Transport{
		TLSClientConfig: conf, DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext, DisableKeepAlives: true,
	}
	res, err := client.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, string(b), res.Header}, err
}

const edgeGateway = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: istio
  listeners: [{name: http, port: %d, protocol: HTTP, hostname: "*.example.com"}]
`

const edgeRoutes = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: shop}
spec:
  parentRefs: [{name: edge}]
  hostnames: [shop.example.com]
  rules:
  - backendRefs: [{name: one, port: 80}]
  - matches:
    - {path: {type: Exact, value: /exact}}
    - {path: {type: PathPrefix, value: /segment}}
    - {headers: [{name: x-version, value: two}]}
    - {method: DELETE}
    - {queryParams: [{name: version, value: two}]}
    backendRefs: [{name: two, port: 80}]
  - matches: [{path: {type: PathPrefix, value: /old}}]
    filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}, statusCode: 302}}]
  - matches: [{path: {type: Exact, value: /secure}}]
    filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]
  - matches: [{path: {type: PathPrefix, value: /strip}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]
    backendRefs: [{name: one, port: 80}]
  - matches: [{path: {type: PathPrefix, value: /whole}}]
    filters: [{type: URLRewrite, urlRewrite: {hostname: inner.example, path: {type: ReplaceFullPath, replaceFullPath: /whole}}}]
    backendRefs: [{name: one, port: 80}]
  - matches: [{path: {type: Exact, value: /slow}}]
    timeouts: {request: 200ms}
    backendRefs: [{name: one, port: 80}]
  - matches: [{path: {type: Exact, value: /headers}}]
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-set, value: set}], remove: [x-removed]}}
    - {type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: x-added, value: "yes"}], remove: [x-gone]}}
    backendRefs: [{name: one, port: 80}]
  - matches: [{path: {type: Exact, value: /mirrored}}]
    filters: [{type: RequestMirror, requestMirror: {backendRef: {name: mirror, port: 80}}}]
    backendRefs: [{name: one, port: 80}]
  - matches: [{path: {type: Exact, value: /refused}}]
    backendRefs: [{name: one, namespace: other, port: 80}]
  - matches: [{path: {type: Exact, value: /weighted}}]
    backendRefs: [{name: one, port: 80, weight: 3}, {name: two, port: 80, weight: 1}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: wild, namespace: shop}
spec:
  parentRefs: [{name: edge}]
  hostnames: ["*.wild.example.com"]
  rules: [{backendRefs: [{name: one, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: exact, namespace: shop}
spec:
  parentRefs: [{name: edge}]
  hostnames: [exact.example.com]
  rules: [{backendRefs: [{name: two, port: 80}]}]
`

const edgeIngress = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: shop}
spec:
  ingressClassName: istio
  rules:
  - host: ingress.example.com
    http: {paths: [{path: /shop, pathType: Prefix, backend: {service: {name: one, port: {number: 80}}}}]}
`
