package resource

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	kube "k8s.io/apimachinery/pkg/util/validation"
)

// TestQuickstart shows that the mesh that `make run` serves is valid, without a warning, and has objects of every kind.
func TestQuickstart(t *testing.T) {
	files, err := filepath.Glob("../testdata/quickstart/*")
	require.NoError(t, err)
	kinds, keys := map[Kind]bool{}, map[Key]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, document := range Decode(file, data, Options{}) {
			require.NoError(t, document.Errors.Err())
			require.NoError(t, document.Warnings.Err())
			warnings, err := Validate(document.Resource)
			require.NoError(t, err)
			require.NoError(t, warnings.Err())
			assert.Empty(t, keys[document.Key], "%s is there twice", document.Key)
			kinds[document.Key.Kind], keys[document.Key] = true, file
		}
	}
	assert.Len(t, kinds, len(schemas))
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		kind            Kind
		name, spec      string // of a document
		want, wantWarns string // parts of the error and of the warnings; empty for none
	}{
		{AuthorizationPolicy, "good", `{rules: [{from: [{source: {namespaces: [a]}}]}]}`, "", ""},
		{AuthorizationPolicy, "bad", `{rules: [{from: [{}]}]}`, "must not be nil", ""},
		{DestinationRule, "good", `{host: a.example.com}`, "", ""},
		{DestinationRule, "bad", `{}`, "empty domain name", ""},
		{EnvoyFilter, "good", `{workloadSelector: {labels: {a: b}}, configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: ` +
			`{name: a}}}]}`, "", ""},
		{EnvoyFilter, "bad", `{configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE}}]}`, "missing patch value", ""},
		{EnvoyFilter, "type", `{configPatches: [{applyTo: HTTP_FILTER, patch: {operation: ADD, value: {name: a, typed_config: {"@type": ` +
			`x/y.z}}}}]}`, "referenced type unknown", ""},
		{EnvoyFilter, "warned", `{workloadSelector: {labels: {a: b}}, configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: ` +
			`{nam: a}}}]}`, "", `unknown field "nam"`},
		{Gateway, "good", `{selector: {a: b}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}`, "", ""},
		{Gateway, "bad", `{servers: [{port: {number: 80, name: http, protocol: GIBBERISH}, hosts: ["*"]}]}`, "invalid protocol", ""},
		{MeshConfig, "good", `{accessLogFile: /dev/stdout, trustDomain: example.com, trustDomainAliases: [a.com]}`, "", ""},
		{MeshConfig, "bad", `{connectTimeout: 1us, defaultConfig: {discoveryAddress: "x y"}}`, "connect timeout", ""},
		{PeerAuthentication, "good", `{mtls: {mode: STRICT}}`, "", ""},
		{PeerAuthentication, "bad", `{portLevelMtls: {80: {mode: STRICT}}}`, "port level", ""},
		{ProxyConfig, "good", `{concurrency: 2}`, "", ""},
		{ProxyConfig, "bad", `{concurrency: -2}`, "concurrency must be", ""},
		{RequestAuthentication, "good", `{jwtRules: [{issuer: a}]}`, "", ""},
		{RequestAuthentication, "bad", `{jwtRules: [{issuer: a, jwksUri: "::"}]}`, "missing protocol scheme", ""},
		{ServiceEntry, "good", `{hosts: [a.example.com], ports: [{number: 80, name: http}], resolution: DNS}`, "", ""},
		{ServiceEntry, "bad", `{hosts: ["*"], ports: [{number: 0, name: http}, {number: 1, name: http}], resolution: DNS}`, "invalid host", ""},
		{Sidecar, "good", `{egress: [{hosts: ["./*"]}]}`, "", ""},
		{Sidecar, "bad", `{egress: [{hosts: [short]}]}`, "namespace/dnsName", ""},
		{Telemetry, "good", `{tracing: [{randomSamplingPercentage: 1}]}`, "", ""},
		{Telemetry, "bad", `{accessLogging: [{filter: {expression: "(("}}]}`, "CEL", ""},
		{TrafficExtension, "good", `{lua: {inlineCode: "x = 1"}, match: [{ports: [{number: 80}]}]}`, "", ""},
		{TrafficExtension, "good-wasm", `{wasm: {url: "oci://example.com/a"}}`, "", ""},
		{TrafficExtension, "neither", `{phase: AUTHN}`, "exactly one of wasm or lua", ""},
		{TrafficExtension, "empty", `{lua: {}}`, "lua.inlineCode cannot be empty", ""},
		{TrafficExtension, "long", `{lua: {inlineCode: "` + strings.Repeat("x", 70_000) + `"}}`, "lua.inlineCode exceeds", ""},
		{TrafficExtension, "bad-wasm", `{wasm: {url: "ftp://a", sha256: x}}`, "unsupported scheme", ""},
		{TrafficExtension, "port", `{lua: {inlineCode: x}, match: [{ports: [{number: 99999}]}]}`, "out of range", ""},
		{VirtualService, "good", `{hosts: [a.example], http: [{route: [{destination: {host: a.example}}]}]}`, "", ""},
		{VirtualService, "bad", `{hosts: [a.example], http: [{}]}`, "HTTP route", ""},
		{VirtualService, "warned", `{hosts: [a.example], http: [{route: [{destination: {host: a.example}}]}, {route: [{destination: {host: ` +
			`b.example}}]}]}`, "", "not used"},
		{WasmPlugin, "good", `{url: "file:///a"}`, "", ""},
		{WasmPlugin, "bad", `{}`, "url field needs to be set", ""},
		{WorkloadEntry, "good", `{address: 10.0.0.1}`, "", ""},
		{WorkloadEntry, "bad", `{}`, "address is required", ""},
		{WorkloadGroup, "good", `{template: {}}`, "", ""},
		{WorkloadGroup, "bad", `{probe: {httpGet: {port: 80}}}`, "template is required", ""},
	} {
		t.Run(string(test.kind)+"/"+test.name, func(t *testing.T) {
			schema, _ := SchemaOf(test.kind)
			text := "apiVersion: " + schema.APIVersion() + "\nkind: " + string(test.kind) + "\nmetadata: {name: a}\nspec: " + test.spec + "\n"
			docs := Decode("x.yaml", []byte(text), Options{})
			require.Len(t, docs, 1)
			require.NoError(t, docs[0].Errors.Err())
			warnings, err := Validate(docs[0].Resource)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
				for _, e := range ErrorsIn(err) {
					assert.Equal(t, docs[0].Key, e.Key)
					assert.NotContains(t, e.Error(), "\n")
					assert.True(t, strings.HasPrefix(e.Error(), "x.yaml:1: "+docs[0].Key.String()+": "), e.Error())
				}
			}
			sameVerdict(t, text, docs[0].Resource)
			if test.wantWarns == "" {
				assert.Empty(t, warnings)
			} else {
				assert.Contains(t, warnings.Error(), test.wantWarns)
			}
		})
	}
}

// sameVerdict expects that text, validated while it is decoded, is judged as r is, which was decoded from it without.
func sameVerdict(t *testing.T, text string, resource *Resource) {
	t.Helper()
	lines := func(errs Errors) (out []string) {
		for _, e := range errs {
			out = append(out, fmt.Sprint(e.Key, e.Rule, e.Err))
		}
		return out
	}
	warnings, err := Validate(resource)
	validated := Decode("x.yaml", []byte(text), Options{Validate: true})[0].Resource
	require.NotNil(t, validated.verdict)
	atOnce, atOnceErr := Validate(validated)
	require.Equal(t, lines(warnings), lines(atOnce))
	require.Equal(t, lines(ErrorsIn(err)), lines(ErrorsIn(atOnceErr)))
	require.True(t, Equal(resource, validated))
}

// TestDetectedProtocol accepts the text that istiod writes for a port without protocol, and no other unknown one.
func TestDetectedProtocol(t *testing.T) {
	const entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a, namespace: b}\n" +
		"spec: {hosts: [a.example], ports: [{number: 80, name: p, protocol: %s}], resolution: DNS}\n"
	for protocol, valid := range map[string]bool{"UnsupportedProtocol": true, "''": true, "Unsupported": false} {
		decoded := Decode("a.yaml", fmt.Appendf(nil, entry, protocol), Options{})
		_, err := Validate(decoded[0].Resource)
		require.Equal(t, valid, err == nil, "%s: %v", protocol, err)
	}
}

func TestValidate_ReportsLines(t *testing.T) {
	for _, test := range []struct{ kind, spec, want string }{
		{
			"ServiceEntry", "\n  hosts: [a.example]\n  ports:\n  - number: 80000\n    name: http\n  resolution: DNS\n",
			"x.yaml:7:13: port number 80000",
		},
		{
			"ServiceEntry", "\n  hosts:\n  - a.example\n  - b_.example.\n  ports: [{number: 80, name: http}]\n  resolution: DNS\n",
			"x.yaml:7:5: domain name",
		},
		{"VirtualService", "\n  hosts: [a.example]\n  http:\n  - route: [{destination: {host: a.example}}]\n  - route: [{destination: {host: " +
			"shadow}}]\n", "x.yaml:8:34: http[1].route[0].destination.host:"},
		{"ServiceEntry", "\n  hosts: [a.example]\n  ports: [{number: 80, name: http}]\n  resolution: STATIC\n  endpoints:\n  - address: no " +
			"address\n", "x.yaml:9:14: endpoint address"},
		{"ServiceEntry", "\n  hosts: [a.example]\n  ports: [{number: 80, name: http}]\n  resolution: STATIC\n  endpoints:\n  - address: " +
			"'fe80::1%eth0'\n", "x.yaml:9:14: spec.endpoints[0].address: \"fe80::1%eth0\" has a zone"},
		{"WorkloadEntry", "\n  address: fe80::1%eth0\n", "x.yaml:5:12: spec.address:"},
		{"WasmPlugin", "\n  url: ftp://a\n  sha256: x\n", "x.yaml:5:3: url"},
		{"ProxyConfig", "\n  concurrency: -2\n", "x.yaml:5:3: concurrency"},
		{"RequestAuthentication", "\n  jwtRules:\n  - issuer: a\n    jwksUri: '::'\n", "x.yaml:7:"},
		{"DestinationRule", " {}\n", "x.yaml:1: empty domain name"},
	} {
		schema, _ := SchemaOf(Kind(test.kind))
		text := "apiVersion: " + schema.APIVersion() + "\nkind: " + test.kind + "\nmetadata: {name: a}\nspec:" + test.spec
		docs := Decode("x.yaml", []byte(text), Options{Validate: true})
		require.Len(t, docs, 1)
		require.NoError(t, docs[0].Errors.Err())
		warnings, err := Validate(docs[0].Resource)
		var messages []string
		for _, e := range append(ErrorsIn(err), warnings...) {
			messages = append(messages, e.Origin.Place+": "+e.Err.Error())
		}
		assert.True(t, slices.ContainsFunc(messages, func(s string) bool { return strings.HasPrefix(s, test.want) }), "%s: %q in %q", test.kind,
			test.want, messages)
	}
}

// TestValidate_ReportsOnce has an object with the same fault in each of its ports, according to Istio's validation.
func TestValidate_ReportsOnce(t *testing.T) {
	text := "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a}\nspec: {hosts: [a.example], resolution: DNS, " +
		"ports: [" +
		strings.TrimSuffix(strings.Repeat("{number: 80000, name: x}, ", 5), ", ") + "]}\n"
	_, err := Validate(Decode("x.yaml", []byte(text), Options{})[0].Resource)
	reported := map[string]bool{}
	for _, e := range ErrorsIn(err) {
		require.False(t, reported[e.Error()], e.Error())
		reported[e.Error()] = true
	}
	require.NotEmpty(t, reported)
}

func TestLenient(t *testing.T) {
	decode := func(name, spec string) *Resource {
		r := Decode("x.yaml", fmt.Appendf(nil, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a}\nspec: %s\n", spec),
			Options{})[0].Resource
		return FromBody(Meta{Key: Key{ServiceEntry, "shop", name}}, r.Body())
	}
	warnings, err := Lenient(Validate(decode("a", `{hosts: [a.example], ports: [{number: 80000, name: x}], resolution: DNS}`)))
	require.NoError(t, err)
	require.Contains(t, warnings.Error(), "80000")
	warnings, err = Lenient(Validate(decode("A/b", `{hosts: [a.example], ports: [{number: 80000, name: x}], resolution: DNS}`)))
	require.ErrorContains(t, err, "metadata.name", "no rule of Istio's: it cannot be sent")
	require.Len(t, ErrorsIn(err), 1)
	require.Contains(t, warnings.Error(), "80000")
}

// TestValidationVersion reminds whoever takes another version of Istio to say so.
func TestValidationVersion(t *testing.T) {
	text, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(text), "istio.io/istio v0.0.0-20260827124520-eed52ebb66ad", "which Istio is this? see ValidationVersion")
}

// TestValidateReportsAll shows that Istio's lists of errors become one Error each.
func TestValidateReportsAll(t *testing.T) {
	docs := Decode("x.yaml", []byte(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a}
spec: {hosts: [a.example.com], ports: [{number: 0, name: x}, {number: 70000, name: x}], resolution: DNS}
`), Options{})
	_, err := Validate(docs[0].Resource)
	assert.GreaterOrEqual(t, len(ErrorsIn(err)), 3, "%v", err)
}

// TestValidateMeta has the mistakes that sources other than files can make.
func TestValidateMeta(t *testing.T) {
	spec := typicalResource(t).Body()
	for _, test := range []struct {
		name string
		meta Meta
		want []string // parts of errors
	}{
		{"good", Meta{
			Key: Key{ServiceEntry, "ns", "a.b"}, Labels: map[string]string{"a.b/c": "D_e", "x": ""},
			Annotations: map[string]string{"A/b": "any\ntext"},
		}, nil},
		{"slash", Meta{Key: Key{ServiceEntry, "ns", "a/b"}}, []string{"metadata.name"}},
		{"empty", Meta{Key: Key{ServiceEntry, "", ""}}, []string{"metadata.name", "metadata.namespace"}},
		{"long", Meta{Key: Key{ServiceEntry, strings.Repeat("n", 64), strings.Repeat("n", 254)}}, []string{"longer than 253", "longer than 63"}},
		{"cluster-scoped", Meta{Key: Key{MeshConfig, "ns", "istio"}}, []string{"cluster-scoped"}},
		{
			"labels",
			Meta{Key: Key{ServiceEntry, "ns", "a"}, Labels: map[string]string{"": "x", "a": "b c", "b": strings.Repeat("v", 64), "A_/c": ""}},
			[]string{`labels["a"]`, `labels["b"]`, `"" is not a key`, `key "A_/c"`},
		},
		{
			"annotations",
			Meta{Key: Key{ServiceEntry, "ns", "a"}, Annotations: map[string]string{"a b": "", "c": "\xff", "d": strings.Repeat("x", 256<<10)}},
			[]string{`annotations["c"]`, `"a b" is not a key`, "larger than 256 KiB"},
		},
		{"Istio's own", Meta{Key: Key{ServiceEntry, "ns", "a"}, Annotations: map[string]string{"istio.io/dry-run": "true"}}, []string{"dry-run"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			body := spec
			if test.meta.Key.Kind == MeshConfig {
				body = nil
			}
			_, err := Validate(FromBody(test.meta, body))
			assert.Len(t, ErrorsIn(err), len(test.want), "%v", err)
			for _, want := range test.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
	_, err := Validate(FromBody(Meta{Key: Key{ServiceEntry, "ns", "a"}, Origin: Origin{Source: "dc1", Place: "service a"}}, []byte("\xff")))
	require.ErrorContains(t, err, "dc1: service a: ServiceEntry ns/a: ")
	_, err = Validate(FromBody(Meta{Key: Key{"Other", "ns", "a"}}, nil))
	require.ErrorContains(t, err, "unknown kind")
}

// TestNamesAsKubernetes compares our rules with the original.
func TestNamesAsKubernetes(t *testing.T) {
	for _, s := range []string{
		"", "a", "A", "-", "a-", "-a", "a-b", "a.b", "a..b", ".a", "a.", "a_b", "a b", "ä", "0", "a/b", "a/", "/a", "a/b/c", "A.b/C",
		"a.b/C_d.e-f",
		"a.b/-c", "a\n", "\xff", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 253), strings.Repeat("a", 254),
		strings.Repeat("a", 63) + "/" + strings.Repeat("b", 63), strings.Repeat("a", 254) + "/b", "a/" + strings.Repeat("b", 64),
		strings.Repeat("é", 40),
	} {
		assert.Equal(t, len(kube.IsDNS1123Subdomain(s)) == 0, checkName(s) == nil, "name %q", s)
		assert.Equal(t, len(kube.IsDNS1123Label(s)) == 0, CheckNamespace(s) == nil, "namespace %q", s)
		assert.Equal(t, len(kube.IsQualifiedName(s)) == 0, CheckLabelKey(s) == nil, "key %q", s)
		assert.Equal(t, len(kube.IsValidLabelValue(s)) == 0, s == "" || CheckLabelValue(s) == nil, "value %q", s)
	}
}
