package e2e

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	types "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"tributary/e2e/fixture"
)

// signer issues tokens.
type signer struct {
	key  *rsa.PrivateKey
	jwks string
}

func newSigner(t *testing.T) signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	jwks := fmt.Sprintf(`{"keys":[{"kty":"RSA","kid":"k","e":"AQAB","n":"%s"}]}`, base64.RawURLEncoding.EncodeToString(key.N.Bytes()))
	return signer{key, jwks}
}

// token returns a signed token with claims.
func (s signer) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	require.NoError(t, err)
	signed := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"k","typ":"JWT"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(payload)
	digest := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, s.key, crypto.SHA256, digest[:])
	require.NoError(t, err)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// guarded is a gateway in namespace default with an HTTP port and a TCP port, which lead to a backend that answers "one".
type guarded struct {
	dir       string
	http, tcp int
	tributary *fixture.Tributary
	envoy     *fixture.Envoy
	backend   int
}

func startGuarded(t *testing.T, services, policies string, flags ...string) *guarded {
	t.Helper()
	g := &guarded{dir: t.TempDir(), http: fixture.FreePort(t), tcp: fixture.FreePort(t), backend: backend(t, "one")}
	write(t, g.dir, "services.yaml", service("one", fmt.Sprintf("  ports: [{number: 80, name: main, protocol: HTTP}]\n  endpoints: "+
		"[{address: 127.0.0.1, ports: {main: %d}}]\n", g.backend))+services)
	write(t, g.dir, "gateway.yaml", fmt.Sprintf(guardedGateway, g.http, g.tcp))
	write(t, g.dir, "policies.yaml", policies)
	g.tributary = fixture.StartTributary(t, fixture.Files("mesh", g.dir).With("guard", "off"))
	g.envoy = fixture.StartGateway(t, g.tributary.XDS, "/nonexistent", flags...)
	return g
}

const guardedGateway = `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: default}
spec:
  selector: {istio: ingressgateway}
  servers:
  - {port: {number: %d, name: http, protocol: HTTP}, hosts: ["*"]}
  - {port: {number: %d, name: tcp, protocol: TCP}, hosts: ["*"]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: one, namespace: default}
spec:
  hosts: ["*"]
  gateways: [front]
  http:
  - match: [{headers: {"@request.auth.claims[team]": {exact: red}}}]
    directResponse: {status: 299}
  - route: [{destination: {host: one.mesh.internal}}]
  tcp:
  - route: [{destination: {host: one.mesh.internal, port: {number: 80}}}]
`

// probe is a request to a gateway.
type probe struct {
	method, path, host string
	headers            map[string]string
	tcp                bool // to the TCP port
}

// status returns the status of the gateway's response on a new connection, or 0 if it closes the connection.
func (g *guarded) status(ctx context.Context, a probe) int {
	port := g.http
	if a.tcp {
		port = g.tcp
	}
	req, err := http.NewRequestWithContext(ctx, a.method, "http://"+fixture.Loopback(port)+"/"+strings.TrimPrefix(a.path, "/"), nil)
	if err != nil {
		return -1
	}
	req.Host = a.host
	for name, value := range a.headers {
		req.Header.Set(name, value)
	}
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext},
		Timeout:   5 * time.Second,
	}
	res, err := client.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// expect waits until the gateway answers each request as wanted.
func (g *guarded) expect(t *testing.T, name string, wanted []wantedStatus) {
	t.Helper()
	g.envoy.Await(t, func() error {
		for _, w := range wanted {
			if got := g.status(t.Context(), w.probe); got != w.status {
				return fmt.Errorf("%s: %+v: %d, want %d", name, w.probe, got, w.status)
			}
		}
		return nil
	})
}

type wantedStatus struct {
	probe
	status int
}

func policy(name, spec string) string {
	return "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: " + name + ", namespace: default}\nspec: " + spec +
		"\n---\n"
}

func tokens(spec string) string {
	return "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {name: tokens, namespace: default}\nspec: " + spec +
		"\n---\n"
}

// A real Envoy as a gateway denies and allows requests by the paths, methods, headers, addresses, ports and tokens of
// policies.
func TestAuthorizationAtAGateway(t *testing.T) {
	t.Parallel()
	s, foreign := newSigner(t), newSigner(t)
	bearer := func(s signer, claims map[string]any) map[string]string {
		return map[string]string{"Authorization": "Bearer " + s.token(t, claims)}
	}
	inline := tokens(fmt.Sprintf("{jwtRules: [{issuer: i, jwks: '%s', forwardOriginalToken: true}]}", s.jwks))
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s.jwks) }))
	t.Cleanup(keys.Close)
	var keysPort int
	_, err := fmt.Sscanf(keys.URL, "http://127.0.0.1:%d", &keysPort)
	require.NoError(t, err)
	g := startGuarded(t, "---\n"+service("keys", fmt.Sprintf("  ports: [{number: 8000, name: main, protocol: HTTP}]\n  endpoints: "+
		"[{address: 127.0.0.1, ports: {main: %d}}]\n", keysPort)), "")
	plain := probe{path: "/"}
	for _, tt := range []struct {
		name, policies string
		wanted         []wantedStatus
	}{
		{"no policy", "", []wantedStatus{{plain, 200}, {probe{tcp: true}, 200}}},
		{
			"DENY by path, method, header and host", policy("deny", `{action: DENY, rules: [{to: [{operation: {paths: ["/admin/*", "/t/{*}/x"]}}]},
  {to: [{operation: {methods: [DELETE]}}]}, {when: [{key: "request.headers[x-bad]", values: ["*"]}]},
  {to: [{operation: {hosts: [BAD.example]}}]}]}`),
			[]wantedStatus{
				{plain, 200},
				{probe{path: "/admin/x"}, 403},
				{probe{path: "/t/1/x"}, 403},
				{probe{path: "/t/1/2/x"}, 200},
				{probe{path: "/t/../admin/x"}, 403},
				{probe{path: "/", method: "DELETE"}, 403},
				{probe{path: "/", headers: map[string]string{"x-bad": "1"}}, 403},
				{probe{path: "/", host: "bad.EXAMPLE"}, 403},
				{probe{tcp: true}, 0},
			},
		},
		{
			"ALLOW", policy("allow", `{rules: [{to: [{operation: {paths: [/open], methods: [GET]}}]}]}`),
			[]wantedStatus{{plain, 403}, {probe{path: "/open"}, 200}, {probe{path: "/open", method: "POST"}, 403}, {probe{tcp: true}, 0}},
		},
		{
			"ALLOW nothing", policy("allow", `{}`), []wantedStatus{{plain, 403}, {probe{tcp: true}, 0}},
		},
		{
			"dry run and AUDIT", strings.Replace(policy("deny", `{action: DENY, rules: [{}]}`), "namespace: default",
				"namespace: default, annotations: {istio.io/dry-run: 'true'}", 1) + policy("audit", "{action: AUDIT, rules: [{}]}"),
			[]wantedStatus{{plain, 200}, {probe{tcp: true}, 200}},
		},
		{
			"addresses", policy("deny", `{action: DENY, rules: [{from: [{source: {ipBlocks: [127.0.0.0/8], notRemoteIpBlocks: [127.0.0.1]}}]}]}`) +
				policy("allow", "{rules: [{from: [{source: {remoteIpBlocks: [127.0.0.1]}}]}]}"),
			[]wantedStatus{{plain, 200}, {probe{tcp: true}, 200}},
		},
		{
			"other addresses", policy("deny", `{action: DENY, rules: [{from: [{source: {ipBlocks: [127.0.0.0/8]}}]}]}`),
			[]wantedStatus{{plain, 403}, {probe{tcp: true}, 0}},
		},
		{
			"TCP by port", policy("deny", fmt.Sprintf(`{action: DENY, rules: [{to: [{operation: {ports: ["%d"]}}]}]}`, g.tcp)),
			[]wantedStatus{{plain, 200}, {probe{tcp: true}, 0}},
		},
		{
			"another gateway", policy("deny", `{selector: {matchLabels: {istio: another}}, action: DENY, rules: [{}]}`),
			[]wantedStatus{{plain, 200}, {probe{tcp: true}, 200}},
		},
		{
			"tokens with inline keys", inline, []wantedStatus{
				{plain, 200},
				{probe{path: "/", headers: bearer(s, map[string]any{"iss": "i", "sub": "a"})}, 200},
				{probe{path: "/", headers: bearer(s, map[string]any{"iss": "i", "sub": "a", "team": "red"})}, 299},
				{probe{path: "/", headers: bearer(s, map[string]any{"iss": "i", "sub": "a", "team": []string{"blue", "red"}})}, 299},
				{probe{path: "/", headers: bearer(s, map[string]any{"iss": "i", "exp": 1})}, 401},
				{probe{path: "/", headers: bearer(foreign, map[string]any{"iss": "i"})}, 401},
				{probe{path: "/", headers: bearer(s, map[string]any{"iss": "another"})}, 401},
			},
		},
		{
			"claims", inline + policy("allow", `{rules: [{from: [{source: {requestPrincipals: ["i/*"]}}], when: [{key: `+
				`"request.auth.claims[a][b]", values: ["c*"]}]}]}`), []wantedStatus{
				{plain, 403},
				{probe{path: "/", headers: bearer(s, map[string]any{"iss": "i", "sub": "s"})}, 403},
				{probe{path: "/", headers: bearer(s, map[string]any{"iss": "i", "sub": "s", "a": map[string]any{"b": "cd"}})}, 200},
				{probe{path: "/", headers: bearer(s, map[string]any{"iss": "i", "sub": "s", "a": map[string]any{"b": []string{"x", "cd"}}})}, 200},
				{probe{path: "/", headers: bearer(foreign, map[string]any{"iss": "i", "sub": "s", "a": map[string]any{"b": "cd"}})}, 401},
				{probe{tcp: true}, 0},
			},
		},
		{
			"keys that Envoy fetches", tokens("{jwtRules: [{issuer: i, jwksUri: 'http://keys.mesh.internal:8000/keys'}]}"), []wantedStatus{
				{probe{path: "/", headers: bearer(s, map[string]any{"iss": "i", "sub": "a"})}, 200},
				{probe{path: "/", headers: bearer(foreign, map[string]any{"iss": "i"})}, 401},
			},
		},
		{
			"keys of an unknown host", tokens("{jwtRules: [{issuer: i, jwksUri: 'http://nobody.mesh.internal:8000/keys'}]}"), []wantedStatus{
				{plain, 200}, {probe{path: "/", headers: bearer(s, map[string]any{"iss": "i", "sub": "a"})}, 401},
			},
		},
		{
			"no keys", tokens("{jwtRules: [{issuer: i}]}"), []wantedStatus{
				{plain, 200}, {probe{path: "/", headers: bearer(s, map[string]any{"iss": "i", "sub": "a"})}, 401},
			},
		},
		{
			"an unknown provider", policy("custom", "{action: CUSTOM, provider: {name: nobody}, rules: [{to: [{operation: {paths: [/a]}}]}]}"),
			[]wantedStatus{{plain, 200}, {probe{path: "/a"}, 403}},
		},
	} {
		write(t, g.dir, "policies.yaml", tt.policies)
		g.expect(t, tt.name, tt.wanted)
		g.expect(t, tt.name, tt.wanted)
	}
	_, body, err := fixture.Get(t.Context(), g.envoy.URL("/stats?filter=rejected"))
	require.NoError(t, err)
	require.Contains(t, body, "lds.update_rejected: 0")
}

// authorizer is a provider that allows requests with the header x-let-me-in.
type authorizer struct {
	auth.UnimplementedAuthorizationServer
	checks atomic.Int64
}

func (a *authorizer) Check(_ context.Context, req *auth.CheckRequest) (*auth.CheckResponse, error) {
	a.checks.Add(1)
	if h := req.GetAttributes().GetRequest().GetHttp(); h != nil && h.GetHeaders()["x-let-me-in"] == "" {
		return &auth.CheckResponse{
			Status:       &status.Status{Code: int32(codes.PermissionDenied)},
			HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: &auth.DeniedHttpResponse{Status: &types.HttpStatus{Code: 418}}},
		}, nil
	}
	return &auth.CheckResponse{HttpResponse: &auth.CheckResponse_OkResponse{OkResponse: &auth.OkHttpResponse{
		Headers: []*core.HeaderValueOption{{Header: &core.HeaderValue{Key: "x-checked", Value: "yes"}}},
	}}}, nil
}

// Real providers, by gRPC and by HTTP, decide on requests that match a CUSTOM policy. After their death such requests
// are denied, and others pass.
func TestProvidersAuthorizeAtAGateway(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's
	require.NoError(t, err)
	byGRPC, server := &authorizer{}, grpc.NewServer()
	auth.RegisterAuthorizationServer(server, byGRPC)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	byHTTP := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("x-let-me-in") == "" || !strings.HasPrefix(r.URL.Path, "/check/") {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(byHTTP.Close)
	port := func(address string) (n int) {
		_, err := fmt.Sscanf(address, "127.0.0.1:%d", &n)
		require.NoError(t, err)
		return n
	}
	services := ""
	for name, n := range map[string]int{"grpc": port(listener.Addr().String()), "http": port(byHTTP.Listener.Addr().String())} {
		services += "---\n" + service(name, fmt.Sprintf("  ports: [{number: 9000, name: main, protocol: %s}]\n  endpoints: "+
			"[{address: 127.0.0.1, ports: {main: %d}}]\n", strings.ToUpper(name), n))
	}
	g := startGuarded(t, services+providers, "")
	let := map[string]string{"x-let-me-in": "1"}
	for _, provider := range []string{"grpc", "http"} {
		write(t, g.dir, "policies.yaml", policy("custom", "{action: CUSTOM, provider: {name: "+provider+"}, rules: [{to: [{operation: {paths: "+
			"[/asked]}}]}]}"))
		g.expect(t, provider, []wantedStatus{
			{probe{path: "/"}, 200},
			{probe{path: "/asked"}, 418},
			{probe{path: "/asked", headers: let}, 200},
			{probe{tcp: true}, 200},
		})
		if provider == "grpc" {
			require.Positive(t, byGRPC.checks.Load())
			server.Stop()
		} else {
			byHTTP.Close()
		}
		g.expect(t, provider+" is dead", []wantedStatus{{probe{path: "/"}, 200}, {probe{path: "/asked", headers: let}, 403}})
	}
}

const providers = `---
apiVersion: core/v1alpha1
kind: MeshConfig
metadata: {name: istio}
spec:
  extensionProviders:
  - {name: grpc, envoyExtAuthzGrpc: {service: grpc.mesh.internal, port: 9000, timeout: 1s}}
  - {name: http, envoyExtAuthzHttp: {service: default/http.mesh.internal, port: 9000, timeout: 1s, pathPrefix: /check,
      includeRequestHeadersInCheck: [x-let-me-in]}}
`
