package envoy

import (
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"

	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// derived is a VirtualService that was made of an object of Kubernetes.
func derived(name, namespace, semantics, spec string) string {
	return fmt.Sprintf("---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: %s, namespace: %s, annotations: "+
		"{internal.istio.io/route-semantics: %s}}\nspec: %s\n", name, namespace, semantics, spec)
}

const derivedService = `---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: shop}
spec: {hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
`

// Routes of Gateway API match prefixes by segment, replace prefixes, and answer 500 for a backend that is not there.
func TestRoutesOfGatewayAPI(t *testing.T) {
	text := gatewayOf("front", "2020-01-01T00:00:00Z", `{port: {number: 8443, name: https, protocol: HTTPS}, hosts: ["*"], `+
		`tls: {mode: SIMPLE, credentialName: "kubernetes-gateway://shop/cert"}}`) + derivedService
	const spec = `{hosts: [a.example], gateways: [default/front], http: [
		{name: moved, match: [{uri: {prefix: /old/}}], redirect: {uri: "%PREFIX()%/new", derivePort: FROM_REQUEST_PORT}},
		{name: stays, match: [{uri: {prefix: /https}}], redirect: {port: 443}},
		{name: new, match: [{uri: {prefix: /former/}}], redirect: {prefixRewrite: /new}},
		{name: cut, match: [{uri: {prefix: /a.b}}], rewrite: {uri: /}, route: [{destination: {host: a.example}}]},
		{name: none, match: [{uri: {prefix: /}}], route: [{destination: {host: short}}]}, {name: last, route: [{destination: {host: x.y}}]}]}`
	routes := func(semantics string) map[string]*routev3.Route {
		t.Helper()
		routesByName := make(map[string]*routev3.Route)
		resources := dumpText(t, text+derived("a", "default", semantics, spec), gatewayNode("default"))
		for _, v := range resources[xds.RouteURL+"/https.8443.https.front.default"].(*routev3.RouteConfiguration).GetVirtualHosts() {
			for _, r := range v.GetRoutes() {
				routesByName[r.GetName()] = r
			}
		}
		require.Len(t, routesByName, 5, "routes after a route that matches all requests are left out")
		return routesByName
	}
	gatewayRoutes := routes("gateway")
	require.Equal(t, "/old", gatewayRoutes["moved"].GetMatch().GetPathSeparatedPrefix())
	require.Equal(t, "/new", gatewayRoutes["moved"].GetRedirect().GetPrefixRewrite())
	require.Equal(t, "/new", gatewayRoutes["new"].GetRedirect().GetPrefixRewrite())
	require.Equal(t, uint32(8443), gatewayRoutes["moved"].GetRedirect().GetPortRedirect())
	require.Zero(t, gatewayRoutes["stays"].GetRedirect().GetPortRedirect(), "it is the port of https")
	require.Equal(t, `^/a\.b(/?)(.*)`, gatewayRoutes["cut"].GetRoute().GetRegexRewrite().GetPattern().GetRegex())
	require.Equal(t, routev3.RouteAction_INTERNAL_SERVER_ERROR, gatewayRoutes["none"].GetRoute().GetClusterNotFoundResponseCode())
	require.Equal(t, "/", gatewayRoutes["none"].GetMatch().GetPrefix())
	require.Equal(t, "outbound|8443||short", gatewayRoutes["none"].GetRoute().GetCluster(), "Gateway API has no short names")

	gatewayRoutes = routes("ingress")
	require.Equal(t, "/old", gatewayRoutes["moved"].GetMatch().GetPathSeparatedPrefix())
	require.Equal(t, "%PREFIX()%/new", gatewayRoutes["moved"].GetRedirect().GetPathRedirect())
	require.Equal(t, "/", gatewayRoutes["cut"].GetRoute().GetPrefixRewrite())
	require.Equal(t, "outbound|8443||short.default", gatewayRoutes["none"].GetRoute().GetCluster())

	require.Equal(t, "/old/", routes("other")["moved"].GetMatch().GetPrefix())
}

// A backend without a name gets no cluster, and requests get 500.
func TestMissingBackend_AnswersError(t *testing.T) {
	text := gatewayOf("front", "2020-01-01T00:00:00Z", `{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}`) +
		derived("a", "default", "gateway", `{hosts: [a.example], gateways: [default/front], http: [{route: [{destination: {}}]}]}`)
	c := catalogOf(t, text)
	routes := dump(t, c, gatewayNode("default"))[xds.RouteURL+"/http.80"].(*routev3.RouteConfiguration)
	require.Equal(t, "UnknownService", routes.GetVirtualHosts()[0].GetRoutes()[0].GetRoute().GetCluster())
	require.Contains(t, strings.Join(c.WithoutEffect(decoded(t, text)[1]), "\n"), "there is no such backend")
	for semantics, code := range map[string]int{"gateway": 500, "ingress": 503} {
		text := strings.NewReplacer("route-semantics: gateway", "route-semantics: "+semantics, "destination: {}",
			"destination: {host: gone.example}").Replace(text)
		c := catalogOf(t, text)
		dump(t, c, gatewayNode("default"))
		require.Contains(t, c.WithoutEffect(decoded(t, text)[1])[0], fmt.Sprintf("no host gone.example here: requests get %d", code))
	}
}

// Sidecars have routes of Gateway API for a service that they name, if they are in the service's namespace or the
// client's, which come first: not those of wildcards, nor those of hosts that are no service.
func TestRoutesOfGatewayAPIOfServices(t *testing.T) {
	answer := func(name, namespace, host string) string {
		return derived(name, namespace, "gateway", fmt.Sprintf(`{hosts: [%q], http: [{name: %s, directResponse: {status: 204}}]}`, host, name))
	}
	created := func(year, object string) string {
		return strings.Replace(object, "annotations:", `creationTimestamp: "`+year+`-01-01T00:00:00Z", annotations:`, 1)
	}
	older, consumer := created("2020", answer("older", "shop", "a.example")), created("2021", answer("consumer", "default", "a.example"))
	got := func(n *corev3.Node, objects ...string) string {
		t.Helper()
		var names []string
		resources := dumpText(t, derivedService+strings.Join(objects, ""), n)
		for _, v := range resources[xds.RouteURL+"/80"].(*routev3.RouteConfiguration).GetVirtualHosts() {
			if v.GetDomains()[0] != "*" {
				names = append(names, v.GetRoutes()[0].GetName())
			}
		}
		return strings.Join(names, " ")
	}
	nodeIn := func(namespace string) *corev3.Node { return node(namespace, "NONE", "") }
	require.Equal(t, "producer", got(nodeIn("default"), answer("producer", "shop", "a.example")))
	require.Equal(t, "default", got(nodeIn("default"), answer("elsewhere", "other", "a.example")))
	require.Equal(t, "consumer", got(nodeIn("default"), older, consumer))
	require.Equal(t, "older", got(nodeIn("nobodys"), older, consumer))
	require.Equal(t, "default", got(nodeIn("default"), answer("wild", "shop", "*.example")))
	require.Equal(t, "default", got(nodeIn("default"), answer("unknown", "default", "b.example")))
}

// Credentials of Kubernetes are folders of their namespace and name.
func TestCredentialsOfKubernetes(t *testing.T) {
	secrets := func(credential string) (names []string) {
		text := gatewayOf("front", "2020-01-01T00:00:00Z", `{port: {number: 443, name: https, protocol: HTTPS}, hosts: ["*"], `+
			`tls: {mode: SIMPLE, credentialName: "`+credential+`"}}`)
		for name := range dumpText(t, text, gatewayNode("default")) {
			if name, ok := strings.CutPrefix(name, xds.SecretURL+"/"); ok {
				names = append(names, translate.SecretOf(name).GetTlsCertificate().GetPrivateKey().GetFilename())
			}
		}
		return names
	}
	require.Equal(t, []string{"/etc/envoy/credentials/shop/cert/tls.key"}, secrets("kubernetes-gateway://shop/cert"))
	require.Equal(t, []string{"/etc/envoy/credentials/cert/tls.key"}, secrets("kubernetes://cert"))
	for _, credential := range []string{
		"kubernetes-gateway://cert", "kubernetes://../cert", "kubernetes-gateway://shop/..", "kubernetes://a/b/c", "vault://cert", "shop/cert",
	} {
		require.Empty(t, secrets(credential), credential)
	}
}
