package resource

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
)

// denying are texts of a policy that denies all, and of a MeshConfig, in several orders and forms.
var denying = []string{
	"apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata:\n  name: deny\n" +
		"  namespace: shop\nspec:\n  action: DENY\n  rules:\n  - {}\n",
	"kind: RequestAuthentication\napiVersion: security.istio.io/v1beta1\nmetadata: {namespace: shop, name: deny}\nspec: {}\n",
	"\"kind\": 'PeerAuthentication'\nmetadata: {name: deny}\nspec: {}\n\"apiVersion\": \"security.istio.io/v1\"\n",
	`{"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": {"name": "deny"}, "spec": {"action": "DENY"}}`,
	"apiVersion: core/v1alpha1\nkind: MeshConfig\nspec:\n  pathNormalization: {normalization: MERGE_SLASHES}\n",
}

// restricts reports whether a text is taken for an object that restricts, be it valid or not.
func restricts(path string, text []byte) bool {
	for _, doc := range Decode(path, text, Options{Validate: true}) {
		invalid := doc.Key.Name != "" && Restricts(doc.Key.Kind) && !doc.Foreign
		if invalid || doc.MayRestrict || doc.Resource != nil && Restricts(doc.Resource.Key().Kind) {
			return true
		}
	}
	return false
}

// A policy with a mistyped group or kind within Istio's own names is a policy, or may be one.
func TestMistypedPoliciesMayRestrict(t *testing.T) {
	const rest = "metadata: {name: deny, namespace: shop}\nspec: {action: DENY, rules: [{}]}\n"
	for _, apiVersion := range []string{
		"istio.io/v1", "security.istio/v1", "rbac.istio.io/v1alpha1", "authorization.istio.io/v1", "Security.Istio.IO/v1",
		"authentication.istio.io/v1alpha1", "security.istio.io.v1", "policy.istio.io/v1", "security.istio.io/v1/",
		"securityistio.io/v1", "sec.istio.io/v1", "security.istio.io /v1", "https://security.istio.io/v1", "v1",
		"security.istio.io\\v1", "extensions.istio.io/v1", "ISTIO.io/v1", "security.isto.io/v1", "security-istio-io/v1",
	} {
		require.True(t, restricts("a.yaml", []byte("apiVersion: "+apiVersion+"\nkind: AuthorizationPolicy\n"+rest)), apiVersion)
	}
	for _, kind := range []string{
		"AuthorizationPolicies", "AuthorisationPolicy", "AuthzPolicy", "authorization-policy", "Authorization Policy", "Policy",
	} {
		require.True(t, restricts("a.yaml", []byte("apiVersion: security.istio.io/v1\nkind: "+kind+"\n"+rest)), kind)
	}
	for _, apiVersion := range []string{"policy.linkerd.io/v1alpha1", "cilium.io/v2", "gateway.envoyproxy.io/v1alpha1"} {
		require.False(t, restricts("a.yaml", []byte("apiVersion: "+apiVersion+"\nkind: AuthorizationPolicy\n"+rest)), apiVersion)
	}
}

// A policy that is cut off at any byte is a policy, or may be one.
func TestTruncatedPoliciesMayRestrict(t *testing.T) {
	for _, policy := range denying {
		for _, form := range encodings {
			for _, path := range []string{"a.yaml", "a.json"} {
				text := form.encode(policy)
				for n := 1; n <= len(text); n++ {
					part := text[:n]
					if Blank(path, part) || len(bytes.Trim(part, "\x00\xff\xfe\xef\xbb\xbf")) == 0 {
						continue // the prefix is empty
					}
					require.True(t, restricts(path, part), "%s %s: %q", path, form.name, part)
				}
			}
		}
	}
}

// A broken text may name the group or the kind with escapes of JSON or YAML.
func TestEscapedPoliciesMayRestrict(t *testing.T) {
	for _, text := range []string{
		`{"apiVersion": "\u0073ecurity.istio.io/v1", "spec": {`,
		`{"kind": "\u0041uthorizationPolicy", "apiVersion": "x`,
		`{"\u006bind": "Authorization\u0050olicy",`,
		`{"kind": "\u0050\u0065\u0065\u0072Authentication" "spec"}`,
		`"kind": "\x41uthorizationPolicy"` + "\nspec: {",
		`{"kind": "Mesh\u0043onfig", "spec": [}`,
	} {
		for _, path := range []string{"a.yaml", "a.json"} {
			require.True(t, restricts(path, []byte(text)), "%s: %s", path, text)
		}
	}
	require.False(t, restricts("a.json", []byte(`{"kind": "\u0053ervice", "spec": {`)))
}

type encoding struct {
	name   string
	encode func(string) []byte
}

var encodings = []encoding{
	{"UTF-8", func(s string) []byte { return []byte(s) }},
	{"UTF-8 with BOM", func(s string) []byte { return []byte("\ufeff" + s) }},
	{"UTF-16LE", func(s string) []byte { return wide(binary.LittleEndian, s) }},
	{"UTF-16BE", func(s string) []byte { return wide(binary.BigEndian, s) }},
	{"UTF-16LE with BOM", func(s string) []byte { return wide(binary.LittleEndian, "\ufeff"+s) }},
	{"UTF-16BE with BOM", func(s string) []byte { return wide(binary.BigEndian, "\ufeff"+s) }},
	{"Latin-1", func(s string) []byte { return []byte("# caf\xe9\n" + s) }},
	{"NUL", func(s string) []byte { return []byte(s + "\x00") }},
}

func wide(order binary.AppendByteOrder, s string) (text []byte) {
	for _, unit := range utf16.Encode([]rune(s)) {
		text = order.AppendUint16(text, unit)
	}
	return text
}

// Other objects, and broken texts that mention no policy, restrict no requests.
func TestOtherDocuments_RestrictNoRequests(t *testing.T) {
	for name, text := range map[string]string{
		"comment":        "# an AuthorizationPolicy of security.istio.io stands elsewhere\napiVersion: v1\nkind: Service\nmetadata: {name: a}\n",
		"ConfigMap":      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: 'kind: AuthorizationPolicy'}\n",
		"broken route":   "apiVersion: networking.istio.io/v1\nkind: VirtualService\nspec: {hosts: [a}\n# no AuthorizationPolicy\n",
		"wrong field":    "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: a}\nspec: {security.istio.io: 1}\n",
		"nameless route": "apiVersion: networking.istio.io/v1\nkind: VirtualService\nspec: {}\n",
		"values":         "# for an AuthorizationPolicy\nreplicas: 3\nimage: {tag: v1}\n",
		"kustomization":  "resources: [a.yaml, b.yaml]\n",
		"other API":      "apiVersion: example.com/v1\nkind: AuthorizationPolicy\nmetadata: {name: a}\n",
		"list":           "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: a}}]\nother: PeerAuthentication\n",
	} {
		require.False(t, restricts("a.yaml", []byte(text)), name)
	}
}

// The namespace of an object without a usable name is known if the text goes on behind its metadata.
func TestNamespaceOfUnrecognisedPolicies(t *testing.T) {
	const head = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n"
	for text, want := range map[string]string{
		head + "metadata: {namespace: shop}\nspec: {}\n":                                         "shop",
		head + "metadata: {name: A_B, namespace: shop}\nspec: {}\n":                              "shop",
		head + "metadata: {name: " + strings.Repeat("a", 300) + ", namespace: shop}\nspec: {}\n": "shop",
		head + "metadata: {}\nspec: {}\n":                                                        "default",
		head + "spec: {}\n":                                                                      "",
		head + "metadata:\n  namespace: sho":                                                     "",
		head + "metadata: {namespace: A_B}\nspec: {}\n":                                          "",
	} {
		docs := Decode("a.yaml", []byte(text), Options{})
		require.Len(t, docs, 1)
		require.True(t, docs[0].MayRestrict, text)
		require.Equal(t, want, docs[0].Key.Namespace, text)
		require.Empty(t, docs[0].Key.Name, text)
		clients := "all Envoys refuse"
		if want != "" {
			clients = fmt.Sprintf("Envoys of namespace %s refuse", want)
		}
		require.ErrorContains(t, docs[0].Errors, clients)
	}
}
