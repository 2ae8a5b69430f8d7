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
