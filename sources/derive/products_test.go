package derive_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/internal/testutil"
	"tributary/sources/derive"
)

// TestBackendTLSPolicy_WithoutChecksRefused: a validation that lacks the hostname or the authorities, or has a field
// that is not read, accepts no certificate.
func TestBackendTLSPolicy_WithoutChecksRefused(t *testing.T) {
	const ca = "caCertificateRefs: [{group: '', kind: ConfigMap, name: ca}]"
	const system = "wellKnownCACertificates: System"
	for validation, accepts := range map[string]bool{
		"hostname: a.example.com, " + ca:                      true,
		"hostname: a.example.com, subjectAltNames: [], " + ca: true,
		"hostname: a.example.com, " + system:                  true,
		ca:                                                    false,
		system:                                                false,
		"hostname: '', " + ca:                                 false,
		"hostName: a.example.com, " + ca:                      false,
		"subjectAltNames: [{hostname: b.example.com}], " + ca:                        false,
		"hostname: a.example.com":                                                    false,
		"hostname: a.example.com, caCertificateRefs: []":                             false,
		"hostname: a.example.com, caCertificatesRefs: [{kind: ConfigMap, name: ca}]": false,
		"hostname: a.example.com, crl: {name: x}, " + ca:                             false,
	} {
		t.Run(validation, func(t *testing.T) {
			s := derive.NewSet(derive.Options{})
			put(t, s, v1, "BackendTLSPolicy", "shop/p", "{targetRefs: [{group: '', kind: Service, name: a}], validation: {"+validation+"}}")
			derived, problems := specs(t, s)
			require.Len(t, derived, 1)
			for _, spec := range derived {
				tls := spec.(*networking.DestinationRule).GetTrafficPolicy().GetTls()
				require.Equal(t, networking.ClientTLSSettings_SIMPLE, tls.GetMode())
				require.Equal(t, accepts, tls.GetCredentialName() != "invalid://", "%v\n%v", tls, problems)
			}
			require.Equal(t, accepts, len(problems) == 0, problems)
		})
	}
}

// series is a YAML list of n elements, with the index in the place of each #.
func series(n int, element string) string {
	var list []string
	for i := range n {
		list = append(list, strings.ReplaceAll(element, "#", fmt.Sprint(i)))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// TestProductsOfRoutes: hostnames, listeners and rules multiply. The routes of a namespace that are too many answer
// 500, and those of others stay.
func TestProductsOfRoutes(t *testing.T) {
	testutil.OneGoroutine(t)
	for name, tt := range map[string]struct{ hostnames, rules, listeners, routes int }{
		"hostnames × rules":             {1000, 200, 1, 1},
		"hostnames × rules × listeners": {60, 60, 40, 1},
		"many routes":                   {60, 60, 2, 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := derive.NewSet(derive.Options{})
			put(t, s, v1, "Gateway", "edge/public", "{gatewayClassName: istio, listeners: "+
				series(tt.listeners, "{name: l#, port: 1#, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}")+"}")
			for i := range tt.routes {
				put(t, s, v1, "HTTPRoute", fmt.Sprintf("evil/r%d", i), "{parentRefs: [{name: public, namespace: edge}], hostnames: "+
					series(tt.hostnames, fmt.Sprintf("h#.r%d.example.com", i))+", rules: "+
					series(tt.rules, "{matches: [{path: {value: /p#}}], backendRefs: [{name: a, port: 80}]}")+"}")
			}
			put(t, s, v1, "HTTPRoute", "shop/r", "{parentRefs: [{name: public, namespace: edge}], hostnames: [shop.example.com], "+
				"rules: [{backendRefs: [{name: a, port: 80}]}]}")
			derived, problems := specs(t, s)
			require.Contains(t, strings.Join(problems, ""), "the routes of namespace evil, by host and listener, are estimated at")
			routes, ours := 0, 0
			for key, spec := range derived {
				rule, isRule := spec.(*networking.VirtualService)
				if routes += len(rule.GetHttp()); isRule && strings.HasPrefix(key, "VirtualService shop/") {
					ours++
					require.NotEmpty(t, rule.GetHttp()[0].GetRoute())
				}
			}
			require.LessOrEqual(t, routes, 66_000)
			require.Equal(t, tt.listeners, ours)
		})
	}
}
