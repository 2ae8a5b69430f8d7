package derive_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"tributary/sources/derive"
)

// TestServiceImport_RequiresGrant: a ServiceImport of another namespace is refused like a Service.
func TestServiceImport_RequiresGrant(t *testing.T) {
	const refs = "{group: multicluster.x-k8s.io, kind: ServiceImport, name: ledger, namespace: bank, port: 80}"
	for _, tt := range []struct {
		name, to, host string
		wrong          int
	}{
		{"no grant", "", "internal.cluster.local", 1},
		{"a grant of Services", "{group: '', kind: Service}", "internal.cluster.local", 1},
		{"a grant", "{group: multicluster.x-k8s.io, kind: ServiceImport, name: ledger}", "ledger.bank.svc.cluster.local", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := derive.NewSet(derive.Options{})
			put(t, s, v1, "Gateway", "edge/public", simple)
			put(t, s, v1, "HTTPRoute", "shop/r", "{parentRefs: [{name: public, namespace: edge}], rules: [{backendRefs: ["+refs+"]}]}")
			put(t, s, v1, "ReferenceGrant", "bank/g",
				"{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}], to: ["+tt.to+"]}")
			_, problems := specs(t, s)
			require.Len(t, problems, tt.wrong)
			require.Equal(t, tt.host, virtualService(t, s, "shop/").GetHttp()[0].GetRoute()[0].GetDestination().GetHost())
		})
	}
}

// TestSelector_UnknownLabelsDoNotMatch: without its Namespace object, only the name of a namespace is known. Other
// conditions of a selector do not hold, since the namespace may have those labels.
func TestSelector_UnknownLabelsDoNotMatch(t *testing.T) {
	for selector, selected := range map[string]bool{
		"{matchExpressions: [{key: trust, operator: NotIn, values: [none]}]}":                         false,
		"{matchExpressions: [{key: trust, operator: DoesNotExist}]}":                                  false,
		"{matchLabels: {trust: full}}":                                                                false,
		"{matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [others]}]}": true,
		"{matchLabels: {kubernetes.io/metadata.name: shop}}":                                          true,
		"{}": true,
	} {
		t.Run(selector, func(t *testing.T) {
			s := derive.NewSet(derive.Options{})
			put(t, s, v1, "Gateway", "edge/public", "{gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP, "+
				"allowedRoutes: {namespaces: {from: Selector, selector: "+selector+"}}}]}")
			put(t, s, v1, "HTTPRoute", "shop/r", "{parentRefs: [{name: public, namespace: edge}], rules: [{backendRefs: [{name: a, port: 80}]}]}")
			derived, problems := specs(t, s)
			require.Equal(t, selected, len(derived) == 2, "%v\n%v", derived, problems)
		})
	}
}

// TestOmittedListener_ServesNoRoutes: if its name is that of another listener, its routes must not get to that.
func TestOmittedListener_ServesNoRoutes(t *testing.T) {
	listeners := func(from string) string {
		return "listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: " + from + "}}}]}"
	}
	gateway := "{gatewayClassName: istio, " + listeners("Same")
	for name, variant := range map[string][3]string{
		"in one Gateway":              {"", "", "Gateway"},
		"a ListenerSet of one name":   {"edge/public", "edge/public", "ListenerSet"},
		"a ListenerSet of other name": {"shop/a", "edge/shop.a", "ListenerSet"},
	} {
		t.Run(name, func(t *testing.T) {
			s := derive.NewSet(derive.Options{})
			parent := "edge/public"
			if variant[2] == "ListenerSet" {
				put(t, s, v1, "Gateway", variant[1], gateway)
				if variant[1] != "edge/public" {
					put(t, s, v1, "Gateway", "edge/public", strings.Replace(gateway, "listeners: [",
						"allowedListeners: {namespaces: {from: All}}, x: [", 1))
				} else {
					put(t, s, v1, "Gateway", "edge/public", strings.Replace(gateway, "{", "{allowedListeners: {namespaces: {from: All}}, ", 1))
				}
				put(t, s, v1, "ListenerSet", variant[0], "{parentRef: {name: public, namespace: edge}, "+listeners("All"))
				parent = variant[0]
			} else {
				twoListeners := strings.TrimSuffix(gateway, "]}") + ", " + strings.TrimPrefix(listeners("All"), "listeners: [")
				put(t, s, v1, "Gateway", parent, twoListeners)
			}
			namespace, object, _ := strings.Cut(parent, "/")
			spec := fmt.Sprintf("{parentRefs: [{kind: %s, name: %s, namespace: %s}], rules: [{backendRefs: [{name: a, port: 80}]}]}",
				variant[2], object, namespace)
			_, err := yaml.YAMLToJSON([]byte(spec))
			require.NoError(t, err)
			put(t, s, v1, "HTTPRoute", "shop/r", spec)
			derived, problems := specs(t, s)
			require.NotEmpty(t, derived, "the Gateway")
			for key := range derived {
				require.NotContains(t, key, "VirtualService", "%v\n%v", derived, problems)
			}
		})
	}
}

// TestListenerSetWithoutFrom_Refused: as in the API, no namespace is allowed unless from says which.
func TestListenerSetWithoutFrom_Refused(t *testing.T) {
	s := derive.NewSet(derive.Options{})
	put(t, s, v1, "Gateway", "edge/public", "{gatewayClassName: istio, allowedListeners: {namespaces: {selector: {}}}, listeners: []}")
	put(t, s, v1, "ListenerSet", "shop/a", "{parentRef: {name: public, namespace: edge}, listeners: [{name: x, port: 80, protocol: HTTP}]}")
	derived, problems := specs(t, s)
	require.Empty(t, derived, "%v", problems)
}

// TestUnreadField_WidensNoRule: a condition or a check that is not understood is not taken for one that is not there.
func TestUnreadField_WidensNoRule(t *testing.T) {
	for name, tt := range map[string][3]string{
		"certificates of clients": {
			"tls: {certificateRefs: [{name: c}], frontendValidation: {caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]}}", "", "Gateway",
		},
		"certificates of clients of all listeners": {
			"tls: {certificateRefs: [{name: c}]}}], tls: {frontend: {default: {validation: {caCertificateRefs: []}}}}, x: [{", "", "Gateway",
		},
		"clients of other ports": {
			"tls: {certificateRefs: [{name: c}]}}], " +
				"tls: {frontend: {perPort: [{port: 443, tls: {validation: {crl: a, caCertificateRefs: [{group: '', " +
				"kind: ConfigMap, name: a}]}}}]}}, x: [{", "", "Gateway",
		},
		"clients with any certificate": {
			"tls: {certificateRefs: [{name: c}]}}], tls: {frontend: {default: {validation: {mode: AllowInsecureFallback, caCertificateRefs: " +
				"[{group: '', kind: ConfigMap, name: a}]}}}}, x: [{", "", "Gateway",
		},
		"authorities of another namespace": {
			"tls: {certificateRefs: [{name: c}]}}], tls: {frontend: {default: {validation: {caCertificateRefs: [{group: '', kind: ConfigMap, " +
				"name: a, namespace: other}]}}}}, x: [{", "", "Gateway",
		},
		"filters of a listener": {"tls: {certificateRefs: [{name: c}]}, filters: {requests: [{type: ExternalAuth}]}", "", "Gateway"},
		"a match":               {"tls: {certificateRefs: [{name: c}]}", "matches: [{cookies: [{name: a, value: b}]}], ", "VirtualService"},
	} {
		t.Run(name, func(t *testing.T) {
			s := derive.NewSet(derive.Options{})
			put(t, s, v1, "Gateway", "shop/public", "{gatewayClassName: istio, listeners: [{name: x, port: 443, protocol: HTTPS, "+tt[0]+"}]}")
			put(t, s, v1, "HTTPRoute", "shop/r", "{parentRefs: [{name: public}], rules: [{"+tt[1]+"backendRefs: [{name: a, port: 80}]}]}")
			derived, problems := specs(t, s)
			require.NotEmpty(t, problems)
			for key, spec := range derived {
				rule, _ := spec.(*networking.VirtualService)
				refuses := len(rule.GetHttp()) == 1 && rule.GetHttp()[0].GetDirectResponse().GetStatus() == 500
				require.False(t, strings.HasPrefix(key, tt[2]+" ") && !refuses, "%v\n%v", derived, problems)
			}
		})
	}
}

// TestReferenceGrant_UnreadFieldGrantsNothing: a limit that is misspelled or missing is no grant of everything.
func TestReferenceGrant_UnreadFieldGrantsNothing(t *testing.T) {
	for _, to := range []string{"{group: '', kind: Service, called: web}", "{group: ''}"} {
		s := derive.NewSet(derive.Options{})
		put(t, s, v1, "Gateway", "edge/public", simple)
		put(t, s, v1, "HTTPRoute", "shop/r", "{parentRefs: [{name: public, namespace: edge}], "+
			"rules: [{backendRefs: [{name: ledger, namespace: bank, port: 80}]}]}")
		put(t, s, v1, "ReferenceGrant", "bank/g",
			"{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}], to: ["+to+"]}")
		require.Equal(t, "internal.cluster.local", virtualService(t, s, "shop/").GetHttp()[0].GetRoute()[0].GetDestination().GetHost())
	}
}

// TestTLSRoute_IsolatedByServerName: a server name that another listener of the port is for is not taken by a route of
// the wider listener.
func TestTLSRoute_IsolatedByServerName(t *testing.T) {
	set := derive.NewSet(derive.Options{})
	const listener = "port: 443, protocol: TLS, tls: {mode: Passthrough}, "
	put(t, set, v1, "Gateway", "edge/public", "{gatewayClassName: istio, listeners: ["+
		"{name: wide, hostname: '*.example.com', "+listener+"allowedRoutes: {namespaces: {from: All}}}, "+
		"{name: narrow, hostname: pay.example.com, "+listener+"allowedRoutes: {namespaces: {from: Same}}}]}")
	put(t, set, v1, "TLSRoute", "shop/r", "{parentRefs: [{name: public, namespace: edge}], hostnames: [pay.example.com], "+
		"rules: [{backendRefs: [{name: a, port: 443}]}]}")
	derived, problems := specs(t, set)
	require.NotEmpty(t, derived, "the Gateway")
	for key := range derived {
		require.NotContains(t, key, "VirtualService", "%v\n%v", derived, problems)
	}
}

// TestMisspelledMethod_WidensNoRule: a gRPC method that is not understood is not taken for all methods of the service.
func TestMisspelledMethod_WidensNoRule(t *testing.T) {
	set := derive.NewSet(derive.Options{})
	put(t, set, v1, "Gateway", "edge/public", simple)
	put(t, set, v1, "GRPCRoute", "shop/r", "{parentRefs: [{name: public, namespace: edge}], "+
		"rules: [{matches: [{method: {service: bank, metod: balance}}], backendRefs: [{name: a, port: 80}]}]}")
	_, problems := specs(t, set)
	rule := virtualService(t, set, "shop/").GetHttp()[0]
	require.Equal(t, "/bank/", rule.GetMatch()[0].GetUri().GetPrefix())
	require.Equal(t, uint32(500), rule.GetDirectResponse().GetStatus())
	require.Contains(t, problems[0]+problems[1], "spec.rules[0].matches[0].method.metod: unknown field")
	require.Contains(t, problems[0]+problems[1], "it has a condition that is not read: its requests get 500")
}

// TestUnknownMethodType_Refused: a gRPC match of an unknown type answers 500, whatever it names.
func TestUnknownMethodType_Refused(t *testing.T) {
	for _, method := range []string{"service: bank", "method: get", "service: bank, method: get", "service: ba*"} {
		for _, kind := range []string{"Glob", "PathPrefix"} {
			set := derive.NewSet(derive.Options{})
			put(t, set, v1, "Gateway", "edge/public", simple)
			put(t, set, v1, "GRPCRoute", "shop/r", "{parentRefs: [{name: public, namespace: edge}], "+
				"rules: [{matches: [{method: {type: "+kind+", "+method+"}}], backendRefs: [{name: a, port: 80}]}]}")
			rule := virtualService(t, set, "shop/").GetHttp()[0]
			require.Equal(t, uint32(500), rule.GetDirectResponse().GetStatus(), "%s %s: %v", kind, method, rule)
		}
	}
}

// TestUnreadParentField_ServesNoRequest: a parentRef that may be for one listener only sends no request of others to
// the backends.
func TestUnreadParentField_ServesNoRequest(t *testing.T) {
	const gateway = "{gatewayClassName: istio, listeners: [{name: inside, port: 80, protocol: HTTP}, " +
		"{name: outside, port: 81, protocol: HTTP}, " +
		"{name: tcp, port: 82, protocol: TCP}]}"
	for field, served := range map[string]bool{
		"sectionName: inside": true, "sectionNam: inside": false, "SectionName: inside": false, "section: {name: inside}": false,
		"prt: 80": false, "selector: {}": false,
	} {
		for _, kind := range []string{"HTTPRoute", "GRPCRoute", "TCPRoute"} {
			s := derive.NewSet(derive.Options{})
			put(t, s, v1, "Gateway", "shop/public", gateway)
			if kind == "TCPRoute" {
				field = strings.NewReplacer("inside", "tcp").Replace(field)
			}
			put(t, s, v1, kind, "shop/r", "{parentRefs: [{name: public, "+field+"}], rules: [{backendRefs: [{name: a, port: 80}]}]}")
			derived, problems := specs(t, s)
			require.Equal(t, served, strings.Contains(fmt.Sprint(derived), "a.shop.svc"), "%s: %v\n%v", field, derived, problems)
			require.Equal(t, served, len(problems) == 0, "%v", problems)
		}
	}
}

// TestBackendTLS_VerifiesHostname holds that a BackendTLSPolicy accepts no certificate of another name, and none of
// roots that it does not have.
func TestBackendTLS_VerifiesHostname(t *testing.T) {
	const refs = "caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]"
	for validation, want := range map[string]string{
		"hostname: a.example, wellKnownCACertificates: System":              "system, a.example of [a.example]",
		"hostname: a.example, " + refs:                                      "configmap://shop/ca, a.example of [a.example]",
		"hostname: a.example, caCertificateRefs: [], " + system:             "system, a.example of [a.example]",
		"hostname: a.example, subjectAltNames: [], " + refs:                 "configmap://shop/ca, a.example of [a.example]",
		"hostname: a.example, " + refs + ", " + altNames:                    "configmap://shop/ca, a.example of [b.example spiffe://c]",
		"hostname: a.example, " + system + ", " + altNames:                  "system, a.example of [b.example spiffe://c]",
		"hostname: a.example, wellKnownCACertificates: Newer":               "invalid://, a.example of [a.example]",
		"hostname: a.example, wellKnownCACertificates: Newer, " + refs:      "invalid://, a.example of [a.example]",
		"hostname: a.example, caCertificateRefs: [{kind: Bundle, name: a}]": "invalid://, a.example of [a.example]",
		"hostname: '', " + refs:                                             "invalid://,  of []",
	} {
		s := derive.NewSet(derive.Options{})
		put(t, s, v1, "BackendTLSPolicy", "shop/p", "{targetRefs: [{group: '', kind: Service, name: web}], validation: {"+validation+"}}")
		derived, _ := specs(t, s)
		rule := derived["DestinationRule shop/web-istio-autogenerated-k8s-gateway"].(*networking.DestinationRule)
		tls := rule.GetTrafficPolicy().GetTls()
		got := fmt.Sprintf("%s, %s of %v", cmp.Or(tls.GetCredentialName(), "system"), tls.GetSni(), tls.GetSubjectAltNames())
		require.Equal(t, want, got, validation)
	}
}

const (
	system   = "wellKnownCACertificates: System"
	altNames = "subjectAltNames: [{type: Hostname, hostname: b.example}, {type: URI, uri: 'spiffe://c'}]"
)

// TestBackendTLSPolicy_OfPort holds that a BackendTLSPolicy with a sectionName is for the port of that name only, and
// that it comes before one of the whole Service there.
func TestBackendTLSPolicy_OfPort(t *testing.T) {
	const service = "{ports: [{name: web, port: 80, protocol: TCP}, {name: secure, port: 443}]}"
	const entry = "{hosts: [web.shop.svc.cluster.local], resolution: DNS, ports: [{name: web, number: 80}, {name: secure, number: 443}]}"
	policy := func(section, hostname string) string {
		return "{targetRefs: [{group: '', kind: Service, name: web" + section + "}], validation: {hostname: " + hostname + ", " + system + "}}"
	}
	for name, tt := range map[string]struct {
		kind, object string
		policies     []string
		want         string
		problem      string
	}{
		"a port":             {"Service", service, []string{policy(", sectionName: secure", "a")}, " 443:a", ""},
		"of a ServiceEntry":  {"ServiceEntry", entry, []string{policy(", sectionName: secure", "a")}, " 443:a", ""},
		"and the whole":      {"Service", service, []string{policy(", sectionName: secure", "a"), policy("", "b")}, "b 443:a", ""},
		"the whole is older": {"Service", service, []string{policy("", "b"), policy(", sectionName: secure", "a")}, "b 443:a", ""},
		"two ports": {
			"Service", service, []string{policy(", sectionName: secure", "a"), policy(", sectionName: web", "b")}, " 443:a 80:b", "",
		},
		"a port twice": {
			"Service", service,
			[]string{policy(", sectionName: secure", "a"), policy(", sectionName: secure", "b")},
			" 443:a", "Service shop/web secure has an older policy of this kind",
		},
		"no such port": {"Service", service, []string{policy(", sectionName: none", "a")}, "none", `Service shop/web has no port "none" here`},
		"no Service":   {"", "", []string{policy(", sectionName: secure", "a")}, "none", `Service shop/web has no port "secure" here`},
	} {
		t.Run(name, func(t *testing.T) {
			set := derive.NewSet(derive.Options{})
			switch tt.kind {
			case "Service":
				put(t, set, "v1", tt.kind, "shop/web", tt.object)
			case "ServiceEntry":
				put(t, set, "networking.istio.io/v1", tt.kind, "shop/e", tt.object)
			}
			for i, text := range tt.policies {
				put(t, set, v1, "BackendTLSPolicy", fmt.Sprintf("shop/p%d", i), text)
			}
			derived, problems := specs(t, set)
			got := "none"
			if rule, ok := derived["DestinationRule shop/web-istio-autogenerated-k8s-gateway"].(*networking.DestinationRule); ok {
				got = rule.GetTrafficPolicy().GetTls().GetSni()
				for _, p := range rule.GetTrafficPolicy().GetPortLevelSettings() {
					got += fmt.Sprintf(" %d:%s", p.GetPort().GetNumber(), p.GetTls().GetSni())
				}
			}
			require.Equal(t, tt.want, got)
			require.Contains(t, strings.Join(problems, "\n"), tt.problem)
			require.Equal(t, tt.problem == "", len(problems) == 0, "%v", problems)
		})
	}
}

// TestAuthoritiesOfClients holds which authority verifies the clients of an HTTPS listener: that of its port, or else
// that of all ports.
func TestAuthoritiesOfClients(t *testing.T) {
	set := derive.NewSet(derive.Options{})
	put(t, set, v1, "Gateway", "shop/public", `{gatewayClassName: istio, tls: {frontend: {
		default: {validation: {caCertificateRefs: [{group: "", kind: ConfigMap, name: all}]}},
		perPort: [{port: 8443, tls: {validation: {caCertificateRefs: [{group: "", kind: Secret, name: one}]}}}, {port: 9443, tls: {}}]}},
		listeners: [{name: a, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}},
		{name: b, port: 8443, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}},
		{name: c, port: 9443, protocol: HTTPS, tls: {certificateRefs: [{name: c}]}}, {name: d, port: 80, protocol: HTTP}]}`)
	derived, problems := specs(t, set)
	require.Empty(t, problems)
	for name, want := range map[string]string{
		"a": "MUTUAL configmap://shop/all", "b": "MUTUAL kubernetes-gateway://shop/one", "c": "SIMPLE ", "d": "PASSTHROUGH ",
	} {
		gateway, _ := derived["Gateway shop/public-istio-autogenerated-k8s-gateway-"+name].(*networking.Gateway)
		require.NotNil(t, gateway, "%s of %v", name, derived)
		tls := gateway.GetServers()[0].GetTls()
		require.Equal(t, want, tls.GetMode().String()+" "+tls.GetCaCertCredentialName(), name)
	}
}
