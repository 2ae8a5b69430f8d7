package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	security "istio.io/api/security/v1beta1"
	jsonyaml "sigs.k8s.io/yaml"

	"tributary/e2e/fixture"
)

// The number of workloads with random policies each, and of requests to each.
const (
	randomWorkloads = 220
	randomRequests  = 25
)

// randomRequest is a request, as the model and Envoy get it.
type randomRequest struct {
	Method, Path, Host string
	Headers            map[string]string
	Source             netip.Addr
	Token              string // of tokensOf; empty for none
}

// randomToken has the claims of a token, and whether it is valid.
type randomToken struct {
	claims map[string]any
	valid  bool
	text   string
}

func tokensOf(t *testing.T, s, foreign signer) map[string]randomToken {
	t.Helper()
	tokens := map[string]randomToken{
		"red": {valid: true, claims: map[string]any{
			"iss": "i1", "sub": "red", "aud": "a1", "azp": "p1", "team": "x", "deep": map[string]any{"er": "yes"},
		}},
		"blue":    {claims: map[string]any{"iss": "i1", "sub": "blue", "aud": []string{"a1", "a2"}, "team": []string{"x", "y"}}, valid: true},
		"green":   {claims: map[string]any{"iss": "i2", "sub": "green", "scope": "read write"}, valid: true},
		"expired": {claims: map[string]any{"iss": "i1", "sub": "red", "exp": 1000}},
		"unknown": {claims: map[string]any{"iss": "i3", "sub": "red"}},
	}
	for name, token := range tokens {
		token.text = s.token(t, token.claims)
		tokens[name] = token
	}
	tokens["forged"] = randomToken{claims: tokens["red"].claims, text: foreign.token(t, tokens["red"].claims)}
	return tokens
}

// randomPolicies makes policies of a namespace.
type randomPolicies struct {
	*testing.T
	grammar
}

// draw decodes a text of the grammar.
func (r randomPolicies) draw(rule string) []byte {
	body, err := jsonyaml.YAMLToJSON([]byte(r.text("<@" + rule + ">")))
	require.NoError(r, err)
	return body
}

func (r randomPolicies) policy() *security.AuthorizationPolicy {
	action := []security.AuthorizationPolicy_Action{
		security.AuthorizationPolicy_ALLOW, security.AuthorizationPolicy_DENY, security.AuthorizationPolicy_ALLOW,
		security.AuthorizationPolicy_DENY, security.AuthorizationPolicy_AUDIT,
	}[r.IntN(5)]
	rule, p := "policy", &security.AuthorizationPolicy{}
	if action == security.AuthorizationPolicy_ALLOW {
		rule = "allow"
	}
	require.NoError(r, protojson.Unmarshal(r.draw(rule), p))
	p.Action = action
	for _, rule := range p.GetRules() {
		for _, f := range rule.GetFrom() {
			if proto.Size(f.GetSource()) == 0 {
				f.Source = &security.Source{NotIpBlocks: []string{"10.0.0.0/8"}}
			}
		}
		for _, o := range rule.GetTo() {
			if proto.Size(o.GetOperation()) == 0 {
				o.Operation = &security.Operation{Paths: []string{"*"}}
			}
		}
	}
	return p
}

func (r randomPolicies) request() (req randomRequest) {
	require.NoError(r, json.Unmarshal(r.draw("request"), &req))
	return req
}

// authorization is Istio's documentation of its policies, evaluated: policies of one workload, and whether it verifies
// tokens.
type authorization struct {
	policies []*security.AuthorizationPolicy
	verifies bool
	tokens   map[string]randomToken
	port     int
	address  netip.Addr
}

// status is the expected status of a response. A matching DENY comes first. Without any ALLOW all other requests pass,
// else those that match one.
func (a authorization) status(r randomRequest) int {
	if a.verifies && r.Token != "" && !a.tokens[r.Token].valid {
		return http.StatusUnauthorized
	}
	allows, allowed := false, false
	for _, p := range a.policies {
		matches := slices.ContainsFunc(p.GetRules(), func(rule *security.Rule) bool { return a.rule(rule, r) })
		switch p.GetAction() {
		case security.AuthorizationPolicy_DENY:
			if matches {
				return http.StatusForbidden
			}
		case security.AuthorizationPolicy_ALLOW:
			allows, allowed = true, allowed || matches
		}
	}
	if allows && !allowed {
		return http.StatusForbidden
	}
	return http.StatusOK
}

// A rule matches if one of from, one of to, and all of when do. A list that is empty matches.
func (a authorization) rule(rule *security.Rule, r randomRequest) bool {
	from := func(f *security.Rule_From) bool {
		s := f.GetSource()
		return matchesValues(s.GetIpBlocks(), s.GetNotIpBlocks(), inRange(r.Source)) &&
			matchesValues(s.GetRemoteIpBlocks(), s.GetNotRemoteIpBlocks(), inRange(r.Source)) &&
			matchesValues(s.GetRequestPrincipals(), s.GetNotRequestPrincipals(), like(a.principal(r)...)) &&
			matchesValues(s.GetPrincipals(), s.GetNotPrincipals(), like()) && matchesValues(s.GetNamespaces(), s.GetNotNamespaces(), like())
	}
	to := func(t *security.Rule_To) bool {
		o := t.GetOperation()
		path, _, _ := strings.Cut(r.Path, "?")
		host := func(pattern string) bool { return like(strings.ToLower(r.Host))(strings.ToLower(pattern)) }
		return matchesValues(o.GetPaths(), o.GetNotPaths(), pathLike(path)) && matchesValues(o.GetMethods(), o.GetNotMethods(), like(r.Method)) &&
			matchesValues(o.GetHosts(), o.GetNotHosts(), host) && matchesValues(o.GetPorts(), o.GetNotPorts(), like(fmt.Sprint(a.port)))
	}
	for _, c := range rule.GetWhen() {
		if !matchesValues(c.GetValues(), c.GetNotValues(), a.attribute(c.GetKey(), r)) {
			return false
		}
	}
	return (len(rule.GetFrom()) == 0 || slices.ContainsFunc(rule.GetFrom(), from)) &&
		(len(rule.GetTo()) == 0 || slices.ContainsFunc(rule.GetTo(), to))
}

// attribute returns the match of patterns with the values of a request's attribute.
func (a authorization) attribute(key string, r randomRequest) func(pattern string) bool {
	name := ""
	if i := strings.IndexByte(key, '['); i > 0 {
		key, name = key[:i], key[i+1:len(key)-1]
	}
	switch key {
	case "request.headers":
		if v, ok := r.Headers[name]; ok {
			return like(v)
		}
	case "source.ip", "remote.ip":
		return inRange(r.Source)
	case "destination.ip":
		return inRange(a.address)
	case "destination.port":
		return like(fmt.Sprint(a.port))
	case "request.auth.principal":
		return like(a.principal(r)...)
	case "request.auth.audiences":
		return like(a.claim(r, "aud")...)
	case "request.auth.presenter":
		return like(a.claim(r, "azp")...)
	case "request.auth.claims":
		return like(a.claim(r, strings.Split(name, "][")...)...)
	}
	return like()
}

// claim returns the values of a claim of a token that was verified. A scope is one of several words.
func (a authorization) claim(r randomRequest, path ...string) []string {
	if !a.verifies || r.Token == "" {
		return nil
	}
	var value any = a.tokens[r.Token].claims
	for _, name := range path {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	switch value := value.(type) {
	case string:
		if path[0] == "scope" {
			return strings.Fields(value)
		}
		return []string{value}
	case []string:
		return value
	}
	return nil
}

func (a authorization) principal(r randomRequest) []string {
	issuer, subject := a.claim(r, "iss"), a.claim(r, "sub")
	if issuer == nil {
		return nil
	}
	return []string{issuer[0] + "/" + subject[0]}
}

// matchesValues says whether one of the values matches, if there are any, and none of notValues.
func matchesValues(values, notValues []string, matches func(string) bool) bool {
	return (len(values) == 0 || slices.ContainsFunc(values, matches)) && !slices.ContainsFunc(notValues, matches)
}

// like matches patterns that are exact, a prefix, a suffix, or * for anything, with one of several texts.
func like(texts ...string) func(pattern string) bool {
	return func(pattern string) bool {
		return slices.ContainsFunc(texts, func(text string) bool {
			switch {
			case pattern == "*":
				return text != ""
			case strings.HasPrefix(pattern, "*"):
				return strings.HasSuffix(text, pattern[1:])
			case strings.HasSuffix(pattern, "*"):
				return strings.HasPrefix(text, pattern[:len(pattern)-1])
			}
			return text == pattern
		})
	}
}

// pathLike is like for paths, which may have {*} for a part and {**} for any number of them.
func pathLike(path string) func(pattern string) bool {
	return func(pattern string) bool {
		if !strings.Contains(pattern, "{") {
			return like(path)(pattern)
		}
		re := strings.NewReplacer(`\{\*\*\}`, ".*", `\{\*\}`, "[^/]+").Replace(regexp.QuoteMeta(pattern))
		return regexp.MustCompile("^" + re + "$").MatchString(path)
	}
}

func inRange(address netip.Addr) func(pattern string) bool {
	return func(pattern string) bool {
		if prefix, err := netip.ParsePrefix(pattern); err == nil {
			return prefix.Contains(address)
		}
		return netip.MustParseAddr(pattern) == address
	}
}

// A real Envoy answers random requests as a direct evaluation of random policies does.
func TestRandomPolicies(t *testing.T) {
	t.Parallel()
	const seed = 1
	r := randomPolicies{t, readGrammar(t, "testdata/authorization.txt", seed)}
	s := newSigner(t)
	tokens := tokensOf(t, s, newSigner(t))
	port, dir := fixture.FreePort(t), t.TempDir()
	r.rules["port"] = fmt.Sprint(port)
	models := make([]authorization, randomWorkloads)
	var text strings.Builder
	object := func(kind, namespace, name string, spec proto.Message) {
		body, err := protojson.Marshal(spec)
		require.NoError(t, err)
		fmt.Fprintf(&text, "---\napiVersion: security.istio.io/v1\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", kind, name,
			namespace, body)
	}
	for i := range models {
		namespace := fmt.Sprintf("n%d", i)
		m := authorization{
			verifies: r.IntN(4) > 0, tokens: tokens, port: port,
			address: netip.AddrFrom4([4]byte{127, 1, byte(i / 256), byte(i % 256)}),
		}
		for j := range 1 + r.IntN(3) {
			p := r.policy()
			m.policies = append(m.policies, p)
			object("AuthorizationPolicy", namespace, fmt.Sprintf("p%d", j), p)
		}
		if m.verifies {
			object("RequestAuthentication", namespace, "tokens", &security.RequestAuthentication{JwtRules: []*security.JWTRule{
				{Issuer: "i1", Jwks: s.jwks}, {Issuer: "i2", Jwks: s.jwks},
			}})
		}
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: front, namespace: %s}\nspec: {selector: "+
			"{of: %[1]s}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ['*']}]}\n", namespace, port)
		models[i] = m
	}
	write(t, dir, "objects.yaml", text.String())
	tributary := fixture.StartTributary(t, fixture.Files("mesh", dir))
	tributary.AwaitReady(t)
	startStatic(t, tributary.XDS, models)
	answers := make(map[int]int)
	for i, m := range models {
		for range randomRequests {
			req := r.request()
			want := m.status(req)
			got := askStatic(t, m, req)
			if got != want {
				policies, err := json.Marshal(m.policies)
				require.NoError(t, err)
				require.Equal(t, want, got, "seed %d, workload %d: %+v of %s, tokens: %v", seed, i, req, policies, m.verifies)
			}
			answers[got]++
		}
	}
	t.Log(answers)
	for _, status := range []int{200, 401, 403} {
		require.Greater(t, answers[status], randomWorkloads*randomRequests/20, "%d is hardly tested", status)
	}
}

// startStatic runs an Envoy with the listeners that gateways of all namespaces are served. Each has an address of its
// own, and answers 200.
func startStatic(t *testing.T, ads string, models []authorization) {
	t.Helper()
	static := &bootstrapv3.Bootstrap_StaticResources{}
	for i, m := range models {
		metadata, err := structpb.NewStruct(map[string]any{
			"NAMESPACE": fmt.Sprintf("n%d", i), "LABELS": map[string]any{"of": fmt.Sprintf("n%d", i)}, "ISTIO_VERSION": "1.27.9",
		})
		require.NoError(t, err)
		served := fixture.TakeInventory(t, ads, &core.Node{
			Id: fmt.Sprintf("router~127.0.0.1~a.n%d~n%[1]d.svc.cluster.local", i), Metadata: metadata,
		})
		require.Len(t, served.Listeners, 1)
		for _, l := range served.Listeners {
			l.Name = fmt.Sprintf("%s_%d", l.GetName(), i)
			l.GetAddress().GetSocketAddress().Address = m.address.String()
			manager := new(hcm.HttpConnectionManager)
			config := l.GetFilterChains()[0].GetFilters()[0].GetTypedConfig()
			require.NoError(t, config.UnmarshalTo(manager))
			manager.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: &route.RouteConfiguration{
				VirtualHosts: []*route.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*route.Route{{
					Match:  &route.RouteMatch{PathSpecifier: &route.RouteMatch_Prefix{Prefix: "/"}},
					Action: &route.Route_DirectResponse{DirectResponse: &route.DirectResponseAction{Status: 200}},
				}}}},
			}}
			packed, err := anypb.New(manager)
			require.NoError(t, err)
			config.Value = packed.GetValue()
			static.Listeners = append(static.Listeners, l)
		}
	}
	body, err := protojson.Marshal(static)
	require.NoError(t, err)
	fixture.StartEnvoyWith(t, "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}\nstatic_resources: "+
		string(body)+"\n")
}

func askStatic(t *testing.T, m authorization, r randomRequest) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.Method, "http://"+netip.AddrPortFrom(m.address, uint16(m.port)).String()+r.Path, nil)
	require.NoError(t, err)
	req.Host = r.Host
	for name, value := range r.Headers {
		req.Header.Set(name, value)
	}
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+m.tokens[r.Token].text)
	}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: r.Source.AsSlice()}}).DialContext,
	}}
	res, err := client.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}
