package derive_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/sources/derive"
)

// refusedRules are rules that cannot be served as they are, by kind of fault. The match of each, if it has one, is
// meant for requests to /admin.
var refusedRules = map[string]string{
	"filter of an extension":    "ADMIN, filters: [{type: ExtensionRef, extensionRef: {group: a, kind: B, name: c}}], BACKEND",
	"filter of a newer version": "ADMIN, filters: [{type: ExternalAuth, externalAuth: {}}], BACKEND",
	"filter without settings":   "ADMIN, filters: [{type: RequestMirror}], BACKEND",
	"filter without type":       "ADMIN, filters: [{}], BACKEND",
	"one of two filters": "ADMIN, HEADERS {remove: [a]}}, " +
		"{type: ExtensionRef}], BACKEND",
	"rewrite of a newer type":            "ADMIN, filters: [{type: URLRewrite, urlRewrite: {path: {type: Expression}}}], BACKEND",
	"rewrite without type":               "ADMIN, filters: [{type: URLRewrite, urlRewrite: {path: {replaceFullPath: /a}}}], BACKEND",
	"redirect of a newer type":           "ADMIN, filters: [{type: RequestRedirect, requestRedirect: {path: {type: Expression}}}]",
	"no backend":                         "ADMIN",
	"no backend with a weight":           "ADMIN, BACKEND_WITH weight: 0}]",
	"backend without port":               "ADMIN, backendRefs: [{name: a}]",
	"backend of another kind":            "ADMIN, backendRefs: [{group: a, kind: Bucket, name: a, port: 80}]",
	"backend without grant":              "ADMIN, backendRefs: [{name: a, namespace: bank, port: 80}]",
	"redirect at a backend":              "ADMIN, BACKEND_WITH filters: [{type: RequestRedirect, requestRedirect: {port: 1}}]}]",
	"rewrite at one of several backends": "ADMIN, BACKEND_WITH filters: [{type: URLRewrite, urlRewrite: {hostname: b}}]}, {name: a}]",
	"extension at a backend":             "ADMIN, BACKEND_WITH filters: [{type: ExtensionRef}]}]",
	"duration":                           "ADMIN, timeouts: {request: soon}, BACKEND",
	"negative duration":                  "ADMIN, timeouts: {request: -1s}, BACKEND",
	"retries":                            "ADMIN, retry: {codes: [7]}, BACKEND",
	"value of a header":                  "ADMIN, HEADERS {set: [{name: a, value: \"b\\nc\"}]}}], BACKEND",
	"type of a path":                     "matches: [{path: {type: Glob, value: /admin/*}}], BACKEND",
	"expression of a path":               "matches: [{path: {type: RegularExpression, value: '/admin/('}}], BACKEND",
	"expression of all paths":            "matches: [{path: {type: RegularExpression, value: '(/admin'}}], BACKEND",
	"type of a header":                   "matches: [{path: {value: /admin}, headers: [{type: Glob, name: a, value: b}]}], BACKEND",
	"expression of a header": "matches: [{path: {value: /admin}, headers: [{type: RegularExpression, " +
		"name: a, value: '('}]}], BACKEND",
	"header without a path": "matches: [{headers: [{type: RegularExpression, name: a, value: '('}]}], BACKEND",
	"name of a header":      "matches: [{path: {value: /admin}, headers: [{name: 'a b', value: c}]}], BACKEND",
	"expression of parameters": "matches: [{path: {value: /admin}, queryParams: [{type: RegularExpression, " +
		"name: a, value: '('}]}], BACKEND",
	"unknown condition":   "matches: [{path: {value: /admin}, cookies: [{name: a}]}], BACKEND",
	"only an unknown one": "matches: [{cookies: [{name: a}]}], BACKEND",
	"field of a path":     "matches: [{path: {value: /admin, caseSensitive: true}}], BACKEND",
	"field of a header":   "matches: [{path: {value: /admin}, headers: [{name: a, value: b, invert: true}]}], BACKEND",
	"second match":        "matches: [{path: {value: /other}}, {path: {value: /admin}, cookies: [{name: a}]}], BACKEND",
}

// TestRefusedRulesAnswer holds that requests of a rule that cannot be served go to no less exact rule, older or newer,
// in the same object or another one, whereas the rest of its object and of the hostname is served.
func TestRefusedRulesAnswer(t *testing.T) {
	const catchAll = "{backendRefs: [{name: site, port: 80}]}, {matches: [{path: {value: /}}], backendRefs: [{name: site, port: 80}]}"
	const exact = "{matches: [{path: {type: Exact, value: /health}}], backendRefs: [{name: health, port: 80}]}"
	const parent = "parentRefs: [{name: public, namespace: edge}], hostnames: [a.example], rules: ["
	for name, rule := range refusedRules {
		rule = "{" + strings.NewReplacer("ADMIN", "matches: [{path: {value: /admin}}]", "BACKEND_WITH", "backendRefs: [{name: a, port: 80,",
			"BACKEND", "backendRefs: [{name: a, port: 80}]", "HEADERS", "filters: [{type: RequestHeaderModifier, requestHeaderModifier:").
			Replace(rule) + "}"
		for order, objects := range map[string][]string{
			"older": {"{" + parent + rule + "]}", "{" + parent + catchAll + ", " + exact + "]}"},
			"newer": {"{" + parent + catchAll + ", " + exact + "]}", "{" + parent + rule + "]}"},
			"same":  {"{" + parent + catchAll + ", " + rule + ", " + exact + "]}"},
		} {
			t.Run(name+" "+order, func(t *testing.T) {
				set := derive.NewSet(derive.Options{})
				put(t, set, v1, "Gateway", "edge/public", simple)
				for i, text := range objects {
					put(t, set, v1, "HTTPRoute", "shop/"+string(rune('a'+i)), text)
				}
				derived, problems := set.Derive()
				for _, r := range derived {
					_, err := resource.Validate(r)
					require.NoError(t, err)
				}
				if !strings.HasPrefix(name, "no backend") {
					require.NotEmpty(t, problems)
				}
				routes := virtualService(t, set, "shop/").GetHttp()
				require.Equal(t, "500", servedBy(routes, "/admin/x"), "%v\n%v", routes, problems)
				require.Equal(t, "health.shop.svc.cluster.local", servedBy(routes, "/health"), "%v", routes)
				if !slices.Contains([]string{"expression of all paths", "header without a path", "only an unknown one"}, name) {
					require.Equal(t, "site.shop.svc.cluster.local", servedBy(routes, "/shop"), "%v", routes)
				}
			})
		}
	}
}

// servedBy returns the server of a path: a host, or a status. The request meets every other condition of a route.
func servedBy(routes []*networking.HTTPRoute, path string) string {
	for _, r := range routes {
		matches := len(r.GetMatch()) == 0
		for _, m := range r.GetMatch() {
			prefix := strings.TrimSuffix(m.GetUri().GetPrefix(), "/")
			matches = matches || m.GetUri() == nil || m.GetUri().GetExact() == path ||
				m.GetUri().GetPrefix() != "" && (path == prefix || strings.HasPrefix(path, prefix+"/"))
		}
		switch {
		case !matches:
		case r.GetDirectResponse() != nil || r.GetRoute()[0].GetDestination().GetHost() == "internal.cluster.local":
			return "500"
		default:
			return r.GetRoute()[0].GetDestination().GetHost()
		}
	}
	return "404"
}
