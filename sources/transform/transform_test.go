package transform

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/resource"
)

// object decodes one document.
func object(t testing.TB, text string) *resource.Resource {
	docs := resource.Decode("a.yaml", []byte(text), resource.Options{})
	require.Len(t, docs, 1)
	require.Empty(t, docs[0].Errors)
	return docs[0].Resource
}

// apply returns the transformed document, and the rules that changed it.
func apply(t testing.TB, s Settings, text string) (after, rules string) {
	r, err := New(s)
	require.NoError(t, err)
	before := object(t, text)
	res := r.Apply(before)
	require.Equal(t, object(t, text), before, "the resource itself is not touched")
	if res == nil {
		return "", ""
	}
	require.Equal(t, before.Origin().Place, res.Origin().Place)
	if res.Origin().Rules == "" {
		require.Same(t, before, res)
		require.Nil(t, res.Original())
	} else {
		require.Same(t, before, res.Original())
	}
	data, err := resource.MarshalYAML(res)
	require.NoError(t, err)
	return string(data), res.Origin().Rules
}

const entry = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop, labels: {app: reviews, consul-a: "1", consul-b: "2"}, annotations: {note: x}}
spec: {hosts: [reviews.consul, static.example], exportTo: [".", shop], ports: [{number: 80, name: http}], resolution: DNS, endpoints: ` +
	`[{address: a.consul}]}
`

func TestReferencesFollow(t *testing.T) {
	settings := Settings{
		Namespaces: map[string]string{"shop": "mesh"},
		Hosts:      []Host{{Match: "*.consul", To: "{1}.mesh.internal"}},
	}
	const rules = "namespaces: shop → mesh; hosts: *.consul → {1}.mesh.internal"
	for name, c := range map[string]struct{ before, after string }{
		"service entry": {entry, `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: reviews
  namespace: mesh
  labels:
    app: reviews
    consul-a: "1"
    consul-b: "2"
  annotations:
    note: x
spec:
  hosts:
    - reviews.mesh.internal
    - static.example
  ports:
    - number: 80
      name: http
  resolution: DNS
  endpoints:
    - address: a.consul
  exportTo:
    - .
    - mesh
`},
		"virtual service": {`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: shop}
spec:
  hosts: [reviews.consul, "*"]
  gateways: [shop/ingress, mesh]
  http:
  - match:
    - {sourceNamespace: shop, gateways: [shop/ingress]}
    - {authority: {exact: "reviews.consul:80"}}
    - {authority: {prefix: reviews.consul}}
    route: [{destination: {host: reviews.consul}}]
    mirror: {host: mirror.consul}
    mirrors: [{destination: {host: mirror2.consul}}]
    rewrite: {authority: reviews.consul}
  - delegate: {name: other, namespace: shop}
  tls:
  - match: [{sniHosts: [reviews.consul], port: 443}]
    route: [{destination: {host: reviews.consul}}]
  tcp:
  - match: [{sourceNamespace: other}]
    route: [{destination: {host: tcp.consul}}]
`, `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: v
  namespace: mesh
spec:
  hosts:
    - reviews.mesh.internal
    - '*'
  gateways:
    - mesh/ingress
    - mesh
  http:
    - match:
        - gateways:
            - mesh/ingress
          sourceNamespace: mesh
        - authority:
            exact: reviews.mesh.internal:80
        - authority:
            prefix: reviews.consul
      route:
        - destination:
            host: reviews.mesh.internal
      rewrite:
        authority: reviews.consul
      mirror:
        host: mirror.mesh.internal
      mirrors:
        - destination:
            host: mirror2.mesh.internal
    - delegate:
        name: other
        namespace: mesh
  tls:
    - match:
        - sniHosts:
            - reviews.mesh.internal
          port: 443
      route:
        - destination:
            host: reviews.mesh.internal
  tcp:
    - match:
        - sourceNamespace: other
      route:
        - destination:
            host: tcp.mesh.internal
`},
		"destination rule": {`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: d, namespace: shop}
spec: {host: Reviews.consul}
`, `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata:
  name: d
  namespace: mesh
spec:
  host: reviews.mesh.internal
`},
		"gateway": {`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: g, namespace: shop}
spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [shop/reviews.consul, "./*", a.consul]}]}
`, `apiVersion: networking.istio.io/v1
kind: Gateway
metadata:
  name: g
  namespace: mesh
spec:
  servers:
    - port:
        number: 80
        protocol: HTTP
        name: http
      hosts:
        - mesh/reviews.mesh.internal
        - ./*
        - a.mesh.internal
`},
		"sidecar": {`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: s, namespace: shop}
spec: {egress: [{hosts: [shop/*.consul, "~/*", "*/*"]}]}
`, `apiVersion: networking.istio.io/v1
kind: Sidecar
metadata:
  name: s
  namespace: mesh
spec:
  egress:
    - hosts:
        - mesh/*.mesh.internal
        - ~/*
        - '*/*'
`},
	} {
		t.Run(name, func(t *testing.T) {
			after, applied := apply(t, settings, c.before)
			require.Equal(t, c.after, after)
			require.Equal(t, rules, applied)
		})
	}
}

func TestSelectors(t *testing.T) {
	for name, c := range map[string]struct {
		settings Settings
		taken    bool
	}{
		"no settings":          {Settings{}, true},
		"by kind":              {Settings{Include: []Selector{{Kinds: []string{"se"}}}}, true},
		"by another kind":      {Settings{Include: []Selector{{Kinds: []string{"Gateway"}}}}, false},
		"by namespace":         {Settings{Include: []Selector{{Namespaces: []string{"sh*"}}}}, true},
		"by another namespace": {Settings{Include: []Selector{{Namespaces: []string{"mesh"}}}}, false},
		"by name":              {Settings{Include: []Selector{{Names: []string{"x", "rev*s"}}}}, true},
		"by label":             {Settings{Include: []Selector{{Labels: map[string]string{"app": "reviews"}}}}, true},
		"by any label":         {Settings{Include: []Selector{{Labels: map[string]string{"consul-a": "*"}}}}, true},
		"by another label":     {Settings{Include: []Selector{{Labels: map[string]string{"app": "ratings"}}}}, false},
		"by a missing label":   {Settings{Include: []Selector{{Labels: map[string]string{"tier": "*"}}}}, false},
		"by host":              {Settings{Include: []Selector{{Hosts: []string{"*.Consul"}}}}, true},
		"by another host":      {Settings{Include: []Selector{{Hosts: []string{"*.com"}}}}, false},
		"all must meet":        {Settings{Include: []Selector{{Hosts: []string{"*.consul"}, Names: []string{"x"}}}}, false},
		"one is enough":        {Settings{Include: []Selector{{Names: []string{"x"}}, {Names: []string{"reviews"}}}}, true},
		"left out":             {Settings{Exclude: []Selector{{Names: []string{"reviews"}}}}, false},
		"left out of the taken": {
			Settings{Include: []Selector{{Names: []string{"*"}}}, Exclude: []Selector{{Hosts: []string{"static.*"}}}},
			false,
		},
		"by its earlier namespace": {
			Settings{Include: []Selector{{Namespaces: []string{"shop"}}}, Namespaces: map[string]string{"shop": "mesh"}},
			true,
		},
	} {
		after, _ := apply(t, c.settings, entry)
		require.Equal(t, c.taken, after != "", name)
	}
}

func TestLabelsAndAnnotations(t *testing.T) {
	after, rules := apply(t, Settings{
		Labels:      Change{Drop: []string{"consul-*"}, Add: map[string]string{"env": "prod", "app": "reviews"}},
		Annotations: Change{Drop: []string{"*"}},
	}, entry)
	require.Contains(t, after, "  labels:\n    app: reviews\n    env: prod\nspec:")
	require.Equal(t, "labels: drop consul-*; labels: add env; annotations: drop *", rules)

	_, rules = apply(t, Settings{Labels: Change{Drop: []string{"none"}, Add: map[string]string{"app": "reviews"}}}, entry)
	require.Empty(t, rules, "rules without an effect are not named")
}

func TestNamespaces(t *testing.T) {
	for _, c := range []struct {
		mapping map[string]string
		want    string
	}{
		{map[string]string{"shop": "mesh"}, "mesh"},
		{map[string]string{"other": "mesh"}, "shop"},
		{map[string]string{"*": "all"}, "all"},
		{map[string]string{"*": "all", "shop": "shop"}, "shop"},
	} {
		r, err := New(Settings{Namespaces: c.mapping})
		require.NoError(t, err)
		require.Equal(t, c.want, r.Apply(object(t, entry)).Key().Namespace)
		key, taken := r.Key(object(t, entry).Key())
		require.True(t, taken)
		require.Equal(t, c.want, key.Namespace)
	}
	r, err := New(Settings{Namespaces: map[string]string{"*": "all"}})
	require.NoError(t, err)
	mesh := resource.FromBody(resource.Meta{Key: resource.Key{Kind: resource.MeshConfig, Name: "mesh"}}, nil)
	require.Same(t, mesh, r.Apply(mesh), "an object without a namespace keeps it so")
}

func TestKey_OfUndecodableObject(t *testing.T) {
	rules, err := New(Settings{
		Include: []Selector{{Namespaces: []string{"shop"}, Hosts: []string{"*.consul"}}},
		Exclude: []Selector{{Names: []string{"x"}}, {Labels: map[string]string{"a": "b"}}},
	})
	require.NoError(t, err)
	for key, want := range map[resource.Key]bool{
		{Kind: resource.ServiceEntry, Namespace: "shop", Name: "reviews"}:  true,
		{Kind: resource.ServiceEntry, Namespace: "other", Name: "reviews"}: false,
		{Kind: resource.ServiceEntry, Namespace: "shop", Name: "x"}:        false,
	} {
		_, taken := rules.Key(key)
		require.Equal(t, want, taken, key)
	}
}

func TestWildcardHost_Kept(t *testing.T) {
	r, err := New(Settings{Hosts: []Host{{Match: "*", To: "{1}.mesh"}}})
	require.NoError(t, err)
	after, err := r.Apply(object(t,
		`{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: a}, spec: {hosts: ["*", a]}}`)).Spec()
	require.NoError(t, err)
	require.Equal(t, []string{"*", "a.mesh"}, after.(*networking.VirtualService).GetHosts())
}

func TestNil(t *testing.T) {
	var r *Rules
	res := object(t, entry)
	require.Same(t, res, r.Apply(res))
	_, taken := r.Key(res.Key())
	require.True(t, taken)
}

func TestUndecodableBody_Kept(t *testing.T) {
	r, err := New(Settings{Hosts: []Host{{Match: "*", To: "{1}.x"}}, Labels: Change{Add: map[string]string{"a": "b"}}})
	require.NoError(t, err)
	bad := resource.FromBody(resource.Meta{Key: resource.Key{Kind: resource.ServiceEntry, Namespace: "a", Name: "b"}}, []byte("\xff"))
	after := r.Apply(bad)
	require.Equal(t, bad.Body(), after.Body())
	require.Equal(t, "b", after.Labels()["a"])
}

func TestCreationTime_Kept(t *testing.T) {
	r, err := New(Settings{Hosts: []Host{{Match: "*.consul", To: "{1}"}}})
	require.NoError(t, err)
	created := time.Unix(5, 0).UTC()
	require.Equal(t, created, r.Apply(object(t, entry).WithCreated(created)).Created())
}

func TestInvalidSettings_NameTheirKey(t *testing.T) {
	for want, settings := range map[string]Settings{
		`include[0]: selects everything; name kinds, namespaces, names, labels or ` +
			`hosts`: {Include: []Selector{{}}},
		`exclude[0].kinds: unknown kind "Service"`: {Exclude: []Selector{{Kinds: []string{"Service"}}}},
		`namespaces.a: "" is not the name of a namespace: only a-z, 0-9 and '-', with a letter or digit at either ` +
			`end`: {Namespaces: map[string]string{"a": ""}},
		`namespaces.a: "b/*" is not the name of a namespace: only a-z, 0-9 and '-', with a letter or digit at either ` +
			`end`: {Namespaces: map[string]string{"a": "b/*"}},
		`namespaces.a*: want the name of a namespace, or *`: {Namespaces: map[string]string{"a*": "b"}},
		`hosts[0].match: missing`:                           {Hosts: []Host{{To: "a"}}},
		`hosts[0].to: missing`:                              {Hosts: []Host{{Match: "a"}}},
		`hosts[0].to: want only {1}, for the * of a*, got "{2}"`: {Hosts: []Host{{
			Match: "a*",
			To:    "{2}",
		}}},
		`hosts[0].to: want only {1}, for the * of a*, got "{1"`: {Hosts: []Host{{
			Match: "a*",
			To:    "{1",
		}}},
		`hosts[0].to: want only {1} to {2}, for the * of *.*, got "{3}"`: {Hosts: []Host{{Match: "*.*", To: "{3}"}}},
		`hosts[0].to: want no {}, since a.b has no *, got "{1}"`:         {Hosts: []Host{{Match: "a.b", To: "{1}"}}},
		`labels.add.: "" is not a key: only letters, digits, '-', '_' and '.', with a letter or digit at either ` +
			`end`: {Labels: Change{Add: map[string]string{"": "a"}}},
		`annotations.drop: a pattern is empty`: {Annotations: Change{Drop: []string{""}}},
	} {
		_, err := New(settings)
		require.EqualError(t, err, want)
	}
}

func TestPattern(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		captured      []string
		matches       bool
	}{
		{"a", "a", nil, true},
		{"a", "ab", nil, false},
		{"*", "", []string{""}, true},
		{"*.b", "a.b", []string{"a"}, true},
		{"a*a", "a", nil, false},
		{"*.*.c", "a.b.c", []string{"a", "b"}, true},
		{"*-*", "a-b-c", []string{"a", "b-c"}, true},
		{"x*", "ab", nil, false},
	} {
		got, ok := patternOf(c.pattern).match(c.text)
		require.Equal(t, c.matches, ok, c.pattern)
		require.Equal(t, c.captured, got, c.pattern)
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := patternOf(rapid.StringMatching(`[ab*]{0,6}`).Draw(t, "pattern"))
		s := rapid.StringMatching(`[ab]{0,8}`).Draw(t, "text")
		captured, ok := pattern.match(s)
		require.Equal(t, slow(pattern.text, s), ok)
		if ok {
			var builder strings.Builder
			for i, part := range pattern.parts {
				builder.WriteString(part)
				if i < len(captured) {
					builder.WriteString(captured[i])
				}
			}
			require.Equal(t, s, builder.String(), "the captured parts make up the text")
		}
	})
}

// slow is the reference matcher of a pattern.
func slow(pattern, s string) bool {
	if pattern == "" {
		return s == ""
	}
	if pattern[0] == '*' {
		for i := range len(s) + 1 {
			if slow(pattern[1:], s[i:]) {
				return true
			}
		}
		return false
	}
	return s != "" && s[0] == pattern[0] && slow(pattern[1:], s[1:])
}
