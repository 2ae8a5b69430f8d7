package extend

import (
	"fmt"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	sigsyaml "sigs.k8s.io/yaml"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// read decodes a message that is written as YAML.
func read[M proto.Message](t *testing.T, m M, text string) M {
	t.Helper()
	b, err := sigsyaml.YAMLToJSON([]byte(text))
	require.NoError(t, err, text)
	require.NoError(t, protojson.Unmarshal(b, m), text)
	return m
}

func decoded(o model.Object[*networking.EnvoyFilter]) *Filter {
	return &Filter{Key: o.Key, Created: o.Created, Spec: Decode(o.Key, o.Spec)}
}

// extension is one of an EnvoyFilter with these patches.
func extension(t *testing.T, patches string) *model.Extension {
	t.Helper()
	object := decoded(model.Object[*networking.EnvoyFilter]{
		Key:  resource.Key{Kind: resource.EnvoyFilter, Namespace: "default", Name: "a"},
		Spec: read(t, &networking.EnvoyFilter{}, "configPatches:\n"+patches),
	})
	return ForProfile([]*Filter{object}, nil, model.Profile{}, nil)
}

func texts(findings model.Findings) (lines []string) {
	for _, f := range findings {
		if f.Why != "" {
			lines = append(lines, strings.TrimPrefix(f.Field, "spec.configPatches")+" "+f.Why)
		}
	}
	return lines
}

// applied has the patches that changed something.
func applied(findings model.Findings) (lines []string) {
	for _, f := range findings {
		if f.Why == "" {
			lines = append(lines, strings.TrimPrefix(f.Field, "spec.configPatches")+" ")
		}
	}
	return lines
}

const (
	types  = "type.googleapis.com/envoy.extensions.filters."
	router = `{name: envoy.filters.http.router, typed_config: {"@type": ` + types + `http.router.v3.Router}}`
	lua    = `{name: lua, typed_config: {"@type": ` + types + `http.lua.v3.Lua, default_source_code: {inline_string: ""}}}`
	tcp    = `{name: envoy.filters.network.tcp_proxy, typed_config: {"@type": ` + types + `network.tcp_proxy.v3.TcpProxy, ` +
		`stat_prefix: a, cluster: a}}`
	echo    = `{name: echo, typed_config: {"@type": ` + types + `network.echo.v3.Echo}}`
	mongo   = `{name: mongo, typed_config: {"@type": ` + types + `network.mongo_proxy.v3.MongoProxy, stat_prefix: m}}`
	rbac    = `{name: envoy.filters.http.rbac, typed_config: {"@type": ` + types + `http.rbac.v3.RBAC, rules: {}}}`
	buffer  = `{name: envoy.filters.http.buffer, typed_config: {"@type": ` + types + `http.buffer.v3.Buffer, max_request_bytes: 5}}`
	inspect = `{name: tls, typed_config: {"@type": ` + types + `listener.tls_inspector.v3.TlsInspector}}`
	proxy   = `{name: proxy, typed_config: {"@type": ` + types + `listener.proxy_protocol.v3.ProxyProtocol}}`
)

// aListener has a chain for requests, one for connections to a server name, and one for all others.
var aListener = fmt.Sprintf(`
name: 0.0.0.0_80
address: {socket_address: {address: 0.0.0.0, port_value: 80}}
listener_filters: [%s]
filter_chains:
- name: web
  filter_chain_match: {server_names: [a.example.com], transport_protocol: tls, application_protocols: [h2, http/1.1], destination_port: 443}
  filters:
  - name: envoy.filters.network.http_connection_manager
    typed_config: {"@type": %snetwork.http_connection_manager.v3.HttpConnectionManager, stat_prefix: web, rds: {route_config_name: "80", `+
	`config_source: {ads: {}}}, http_filters: [%s, %s, %s]}
- {name: mail, filter_chain_match: {server_names: [b.example.com]}, filters: [%s, %s]}
default_filter_chain: {name: rest, filters: [%[7]s]}
`, inspect, types, rbac, buffer, router, mongo, tcp)

// summary is a listener in a line: its filters, its chains, theirs, and theirs of HTTP.
func summary(t *testing.T, listener *listenerv3.Listener) string {
	t.Helper()
	var b strings.Builder
	for _, f := range listener.GetListenerFilters() {
		b.WriteString(f.GetName() + " ")
	}
	for _, filterChain := range append(listener.GetFilterChains(), listener.GetDefaultFilterChain()) {
		if filterChain == nil {
			continue
		}
		b.WriteString("| " + filterChain.GetName() + ":")
		for _, f := range filterChain.GetFilters() {
			m := &hcmv3.HttpConnectionManager{}
			if f.GetTypedConfig().UnmarshalTo(m) != nil {
				b.WriteString(" " + f.GetName())
				continue
			}
			b.WriteString(" " + m.GetStatPrefix() + "(")
			for i, h := range m.GetHttpFilters() {
				b.WriteString(strings.Repeat(" ", min(i, 1)) + h.GetName())
			}
			b.WriteString(")")
		}
		b.WriteString(" ")
	}
	return strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(b.String()), "envoy.filters.http.", ""), "envoy.filters.network.", "")
}

const (
	unpatched = "tls | web: web(rbac buffer router) | mail: mongo tcp_proxy | rest: tcp_proxy"
	weakened  = "it changes the enforcement of security, as with istiod: requests or connections that were refused may pass"
)

// Each operation on a listener's contents does the same as in istiod, where the patch matches.
func TestListener(t *testing.T) {
	patch := func(to, match, op, value string) string {
		if value != "" {
			value = ", value: " + value
		}
		return fmt.Sprintf("- {applyTo: %s, match: {%s}, patch: {operation: %s%s}}\n", to, match, op, value)
	}
	chain := func(inner string) string { return "listener: {filterChain: {" + inner + "}}" }
	filter := func(name string) string { return chain("filter: {name: " + name + "}") }
	sub := func(name string) string {
		return chain("filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: " + name + "}}")
	}
	for name, tt := range map[string]struct {
		patches  string
		want     string
		findings []string
	}{
		// HTTP filters
		"first": {
			patch("HTTP_FILTER", "", "INSERT_FIRST", lua),
			"tls | web: web(lua rbac buffer router) | mail: mongo tcp_proxy | rest: tcp_proxy",
			nil,
		},
		"before": {
			patch("HTTP_FILTER", sub("envoy.filters.http.router"), "INSERT_BEFORE", lua),
			strings.Replace(unpatched, "router", "lua router", 1),
			nil,
		},
		"after": {
			patch("HTTP_FILTER", sub("envoy.filters.http.rbac"), "INSERT_AFTER", lua),
			strings.Replace(unpatched, "rbac", "rbac lua", 1),
			nil,
		},
		"before an unnamed filter is first": {
			patch("HTTP_FILTER", "", "INSERT_BEFORE", lua), strings.Replace(unpatched, "rbac", "lua rbac", 1), nil,
		},
		"before a missing filter": {patch("HTTP_FILTER", sub("none"), "INSERT_BEFORE", lua), unpatched, nil},
		"the last has to be the router": {
			patch("HTTP_FILTER", "", "ADD", lua), unpatched,
			[]string{"[0] Envoy would refuse it: envoy.filters.http.router has to be the last HTTP filter"},
		},
		"replaced": {
			patch("HTTP_FILTER", sub("envoy.filters.http.buffer"), "REPLACE", lua),
			strings.Replace(unpatched, "buffer", "lua", 1),
			nil,
		},
		"removed": {
			patch("HTTP_FILTER", sub("envoy.filters.http.buffer"), "REMOVE", ""),
			strings.Replace(unpatched, " buffer", "", 1),
			nil,
		},
		"removing needs a name": {patch("HTTP_FILTER", "", "REMOVE", ""), unpatched, nil},
		"renamed by merging": {
			patch("HTTP_FILTER", sub("envoy.filters.http.buffer"), "MERGE", "{name: other}"), strings.Replace(unpatched, "buffer", "other", 1), nil,
		},
		"merged with another type": {
			patch("HTTP_FILTER", sub("envoy.filters.http.buffer"), "MERGE", lua), unpatched,
			[]string{"[0] a typed_config of type " + types + "http.lua.v3.Lua cannot be merged into one of type " + types + "http.buffer.v3.Buffer"},
		},
		"patches in order": {
			patch("HTTP_FILTER", "", "INSERT_FIRST", lua) + patch("HTTP_FILTER", sub("lua"), "INSERT_AFTER",
				strings.Replace(lua, "lua", "second", 1)),
			strings.Replace(unpatched, "rbac", "lua second rbac", 1), nil,
		},
		"one is broken, the others are applied": {
			patch("HTTP_FILTER", "", "INSERT_FIRST", lua) + patch("HTTP_FILTER", sub("envoy.filters.http.router"), "REMOVE", "") +
				patch("HTTP_FILTER", sub("lua"), "INSERT_AFTER", strings.Replace(lua, "lua", "second", 1)),
			strings.Replace(unpatched, "rbac", "lua second rbac", 1),
			[]string{"[1] Envoy would refuse it: envoy.filters.http.buffer cannot be the last HTTP filter"},
		},
		"only together are two valid": {
			patch("HTTP_FILTER", sub("envoy.filters.http.router"), "REMOVE", "") + patch("HTTP_FILTER", "", "ADD",
				strings.Replace(router, "envoy.filters.http.router", "own", 1)),
			strings.Replace(unpatched, "router", "own", 1), nil,
		},
		"security is removed": {
			patch("HTTP_FILTER", sub("envoy.filters.http.rbac"), "REMOVE", ""), strings.Replace(unpatched, "rbac ", "", 1), []string{"[0] " +
				"" + weakened},
		},
		"security is merged into": {
			patch("HTTP_FILTER", "", "INSERT_FIRST", lua) + patch("HTTP_FILTER", sub("envoy.filters.http.rbac"), "MERGE",
				`{name: envoy.filters.http.rbac, typed_config: {"@type": `+types+`http.rbac.v3.RBAC, rules: {action: LOG}}}`),
			strings.Replace(unpatched, "rbac", "lua rbac", 1),
			[]string{"[1] " + weakened},
		},
		"a chain without security": {
			patch("FILTER_CHAIN", "", "ADD", "{name: own, filter_chain_match: {server_names: [c.example.com]}, filters: ["+tcp+"]}"),
			strings.Replace(unpatched, " | rest", " | own: tcp_proxy | rest", 1),
			[]string{"[0] " + weakened},
		},

		// network filters
		"network first": {
			patch("NETWORK_FILTER", chain("name: mail"), "INSERT_FIRST", mongo),
			strings.Replace(unpatched, "mongo", "mongo mongo", 1),
			nil,
		},
		"network before": {
			patch("NETWORK_FILTER", filter("envoy.filters.network.tcp_proxy"), "INSERT_BEFORE", mongo),
			"tls | web: web(rbac buffer router) | mail: mongo mongo tcp_proxy | rest: mongo tcp_proxy",
			nil,
		},
		"network after": {
			patch("NETWORK_FILTER", filter("mongo"), "INSERT_AFTER", strings.Replace(mongo, "mongo", "b", 1)),
			strings.Replace(unpatched, "mongo", "mongo b", 1),
			nil,
		},
		"network replaced": {
			patch("NETWORK_FILTER", chain("name: mail, filter: {name: envoy.filters.network.tcp_proxy}"), "REPLACE", echo),
			strings.Replace(unpatched, "mongo tcp_proxy", "mongo echo", 1), nil,
		},
		"network removed": {patch("NETWORK_FILTER", filter("mongo"), "REMOVE", ""), strings.Replace(unpatched, "mongo ", "", 1), nil},
		"no filter after a terminal one": {
			patch("NETWORK_FILTER", chain("name: mail"), "ADD", mongo), unpatched,
			[]string{"[0] Envoy would refuse it: envoy.filters.network.tcp_proxy has to be the last network filter"},
		},
		"HTTP manager merged": {
			patch("NETWORK_FILTER", filter("envoy.filters.network.http_connection_manager"), "MERGE",
				`{typed_config: {"@type": `+types+`network.http_connection_manager.v3.HttpConnectionManager, stat_prefix: own}}`),
			strings.Replace(unpatched, "web(", "own(", 1), nil,
		},

		// chains
		"sni": {
			patch("FILTER_CHAIN", chain("sni: b.example.com"), "REMOVE", ""),
			strings.Replace(unpatched, "| mail: mongo tcp_proxy ", "", 1),
			nil,
		},
		"transport protocol": {
			patch("FILTER_CHAIN", chain("transportProtocol: tls"), "REMOVE", ""),
			strings.Replace(unpatched, "| web: web(rbac buffer router) ", "", 1),
			[]string{"[0] " + weakened}, // another chain takes the connections
		},
		"protocols": {
			patch("FILTER_CHAIN", chain("applicationProtocols: 'http/1.1,h2'"), "MERGE", "{name: new}"), strings.Replace(unpatched, "web:",
				"new:", 1), nil,
		},
		"one protocol too many": {patch("FILTER_CHAIN", chain("applicationProtocols: 'h2,h3'"), "REMOVE", ""), unpatched, nil},
		"destination port": {
			patch("FILTER_CHAIN", chain("destinationPort: 443"), "MERGE", "{name: new}"),
			strings.Replace(unpatched, "web:", "new:", 1),
			nil,
		},
		"default chain": {
			patch("FILTER_CHAIN", chain("name: rest"), "REMOVE", ""),
			strings.TrimSuffix(unpatched, " | rest: tcp_proxy"),
			nil,
		},
		"chain of a match that there is": {
			patch("FILTER_CHAIN", "", "ADD", "{name: own, filter_chain_match: {server_names: [b.example.com]}, filters: ["+tcp+"]}"), unpatched,
			[]string{"[0] Envoy would refuse it: several filter chains of 0.0.0.0_80 have the same match"},
		},

		// listeners, and their filters
		"listener filter": {patch("LISTENER_FILTER", "", "INSERT_FIRST", proxy), "proxy " + unpatched, nil},
		"listener filter after": {
			patch("LISTENER_FILTER", "listener: {listenerFilter: tls}", "INSERT_AFTER", proxy),
			"tls proxy" + unpatched[3:],
			nil,
		},
		"listener filter removed":  {patch("LISTENER_FILTER", "listener: {listenerFilter: tls}", "REMOVE", ""), unpatched[4:], nil},
		"listener filter replaced": {patch("LISTENER_FILTER", "listener: {listenerFilter: tls}", "REPLACE", proxy), "proxy" + unpatched[3:], nil},
		"port": {
			patch("HTTP_FILTER", "listener: {portNumber: 80}", "INSERT_FIRST", lua),
			strings.Replace(unpatched, "rbac", "lua rbac", 1),
			nil,
		},
		"other port": {patch("HTTP_FILTER", "listener: {portNumber: 81}", "INSERT_FIRST", lua), unpatched, nil},
		"name": {
			patch("HTTP_FILTER", "listener: {name: 0.0.0.0_80}", "INSERT_FIRST", lua),
			strings.Replace(unpatched, "rbac", "lua rbac", 1),
			nil,
		},
		"other name": {patch("HTTP_FILTER", "listener: {name: virtualInbound}", "INSERT_FIRST", lua), unpatched, nil},
		"context": {
			patch("HTTP_FILTER", "context: GATEWAY", "INSERT_FIRST", lua),
			strings.Replace(unpatched, "rbac", "lua rbac", 1),
			nil,
		},
		"other context": {patch("HTTP_FILTER", "context: SIDECAR_INBOUND", "INSERT_FIRST", lua), unpatched, nil},
		"renamed": {
			patch("LISTENER", "", "MERGE", "{name: other}"), unpatched, []string{"[0] 0.0.0.0_80 cannot be renamed"},
		},
		"all chains removed": {
			patch("FILTER_CHAIN", "", "REMOVE", ""), unpatched, []string{"[0] Envoy would refuse it: 0.0.0.0_80 has no filter chain left"},
		},
		"invalid by the rules of the API": {
			patch("NETWORK_FILTER", filter("mongo"), "MERGE",
				`{typed_config: {"@type": `+types+`network.mongo_proxy.v3.MongoProxy, delay: {percentage: {numerator: 1}}}}`),
			unpatched,
			[]string{"[0] Envoy would refuse it: invalid"},
		},
		"a regular expression": {
			patch("HTTP_FILTER", "", "INSERT_FIRST", `{name: m, typed_config: {"@type": `+types+`http.rbac.v3.RBAC, rules: {policies: {a: `+
				`{permissions: `+
				`[{url_path: {path: {safe_regex: {regex: "(("}}}}], principals: [{any: true}]}}}}}`), unpatched,
			[]string{"[0] not a regular expression"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := extension(t, tt.patches)
			require.Empty(t, texts(e.Findings))
			listener := read(t, &listenerv3.Listener{}, aListener)
			var findings model.Findings
			l, served := New(e, networking.EnvoyFilter_GATEWAY, &findings).Listener(listener)
			require.True(t, served)
			require.Equal(t, tt.want, summary(t, l))
			lines := texts(findings)
			require.Len(t, lines, len(tt.findings), lines)
			for i, f := range tt.findings {
				require.Contains(t, lines[i], f)
			}
			require.True(t, proto.Equal(read(t, &listenerv3.Listener{}, aListener), listener), "the listener is shared")
		})
	}
	var removalFindings model.Findings
	p := New(extension(t, patch("LISTENER", "listener: {portNumber: 80}", "REMOVE", "")), networking.EnvoyFilter_GATEWAY, &removalFindings)
	_, remains := p.Listener(read(t, &listenerv3.Listener{}, aListener))
	require.False(t, remains)
	require.Equal(t, []string{"[0] "}, applied(removalFindings))
	require.Empty(t, texts(removalFindings))
}

// At the listeners through which connections come that are for others, the port of a patch is that of filter chains.
func TestVirtualListener(t *testing.T) {
	l := read(t, &listenerv3.Listener{}, fmt.Sprintf(`{name: virtualInbound, address: {socket_address: {address: 0.0.0.0, port_value: `+
		`15006}}, filter_chains: [
  {name: one, filter_chain_match: {destination_port: 1}, filters: [%[1]s]}, {name: two, filter_chain_match: {destination_port: 2},
    filters: [%[1]s]}]}`, tcp))
	e := extension(t, "- {applyTo: NETWORK_FILTER, match: {context: SIDECAR_INBOUND, listener: {portNumber: 2}}, patch: {operation: "+
		"INSERT_FIRST, value: "+mongo+"}}\n")
	l, _ = New(e, networking.EnvoyFilter_SIDECAR_INBOUND, new(model.Findings)).Listener(l)
	require.Equal(t, "| one: tcp_proxy | two: mongo tcp_proxy", summary(t, l))
}

const someRoutes = `
name: https.443.web.front.shop
virtual_hosts:
- {name: "a:443", domains: [a.example.com], routes: [
  {name: first, match: {prefix: /a}, redirect: {host_redirect: b}}, {name: second, match: {prefix: /b}, route: {cluster: b, timeout: 3s}},
  {match: {prefix: /}, direct_response: {status: 404}}]}
- {name: "b:443", domains: [b.example.com], routes: [{name: second, match: {prefix: /}, route: {cluster: c}}]}
`

func TestRoutes(t *testing.T) {
	const ownRoute = `{name: own, match: {prefix: /own}, direct_response: {status: 200}}`
	patch := func(to, match, op, value string) string {
		return fmt.Sprintf("- {applyTo: %s, match: {routeConfiguration: {%s}}, patch: {operation: %s, value: %s}}\n", to, match, op, value)
	}
	summaryOf := func(r *routev3.RouteConfiguration) string {
		var builder strings.Builder
		for _, v := range r.GetVirtualHosts() {
			builder.WriteString("| " + v.GetName() + ":")
			for _, r := range v.GetRoutes() {
				builder.WriteString(" " + r.GetMatch().GetPrefix())
				if d := r.GetRoute().GetTimeout(); d != nil {
					builder.WriteString(d.AsDuration().String())
				}
			}
			builder.WriteString(" ")
		}
		return strings.TrimSpace(builder.String())
	}
	const unpatched = "| a:443: /a /b3s / | b:443: /"
	for name, tt := range map[string]struct {
		patches, want string
		findings      []string
	}{
		"added": {patch("HTTP_ROUTE", "vhost: {name: 'a:443'}", "ADD", ownRoute), "| a:443: /a /b3s / /own | b:443: /", nil},
		"first": {patch("HTTP_ROUTE", "", "INSERT_FIRST", ownRoute), "| a:443: /own /a /b3s / | b:443: /own /", nil},
		"first where there is one": {
			patch("HTTP_ROUTE", "vhost: {route: {name: first}}", "INSERT_FIRST", ownRoute),
			"| a:443: /own /a /b3s / | b:443: /",
			nil,
		},
		"before": {
			patch("HTTP_ROUTE", "vhost: {route: {name: second}}", "INSERT_BEFORE", ownRoute),
			"| a:443: /a /own /b3s / | b:443: /own /",
			nil,
		},
		"after an action": {
			patch("HTTP_ROUTE", "vhost: {route: {action: REDIRECT}}", "INSERT_AFTER", ownRoute),
			"| a:443: /a /own /b3s / | b:443: /",
			nil,
		},
		"removed": {
			patch("HTTP_ROUTE", "vhost: {route: {action: ROUTE}}", "REMOVE", "{}"),
			"| a:443: /a / | b:443:",
			nil,
		},
		"a duration is merged as a whole": {
			patch("HTTP_ROUTE", "vhost: {route: {name: second}}", "MERGE", "{route: {timeout: 0.5s}}"),
			"| a:443: /a /b500ms / | b:443: /500ms",
			nil,
		},
		"replacing a route has no effect": {
			patch("HTTP_ROUTE", "", "REPLACE", ownRoute),
			unpatched,
			[]string{"[0] REPLACE has no effect on HTTP_ROUTE, as with istiod"},
		},
		"host added": {
			patch("VIRTUAL_HOST", "", "ADD", "{name: c, domains: [c.example.com], routes: ["+ownRoute+"]}"), unpatched + " | c: /own", nil,
		},
		"host of a domain that there is": {
			patch("VIRTUAL_HOST", "", "ADD", "{name: c, domains: [A.example.com]}"), unpatched,
			[]string{"[0] Envoy would refuse it: several virtual hosts of https.443.web.front.shop have the domain a.example.com"},
		},
		"host merged": {
			patch("VIRTUAL_HOST", "vhost: {domainName: b.example.com}", "MERGE", "{routes: ["+ownRoute+"]}"),
			"| a:443: /a /b3s / | b:443: / /own",
			nil,
		},
		"host replaced": {
			patch("VIRTUAL_HOST", "vhost: {name: 'b:443'}", "REPLACE", "{name: d, domains: [d]}"),
			"| a:443: /a /b3s / | d:",
			nil,
		},
		"host removed and added": {
			patch("VIRTUAL_HOST", "vhost: {name: 'b:443'}", "REMOVE", "{}") +
				patch("VIRTUAL_HOST", "", "ADD", "{name: 'b:443', domains: [b.example.com], routes: ["+ownRoute+"]}"),
			"| a:443: /a /b3s / | b:443: /own",
			nil,
		},
		"host removed":  {patch("VIRTUAL_HOST", "vhost: {name: 'b:443'}", "REMOVE", "{}"), "| a:443: /a /b3s /", nil},
		"gateway":       {patch("VIRTUAL_HOST", "gateway: shop/front, vhost: {name: 'b:443'}", "REMOVE", "{}"), "| a:443: /a /b3s /", nil},
		"other gateway": {patch("VIRTUAL_HOST", "gateway: front", "REMOVE", "{}"), unpatched, nil},
		"port and its name": {
			patch("VIRTUAL_HOST", "portNumber: 443, portName: web, vhost: {name: 'b:443'}", "REMOVE", "{}"),
			"| a:443: /a /b3s /",
			nil,
		},
		"name of other port": {patch("VIRTUAL_HOST", "portName: other", "REMOVE", "{}"), unpatched, nil},
		"other port":         {patch("VIRTUAL_HOST", "portNumber: 80", "REMOVE", "{}"), unpatched, nil},
		"all are merged":     {patch("ROUTE_CONFIGURATION", "", "MERGE", "{virtual_hosts: [{name: c, domains: [c]}]}"), unpatched + " | c:", nil},
		"renamed": {
			patch("ROUTE_CONFIGURATION", "", "MERGE", "{name: c}"), unpatched, []string{"[0] https.443.web.front.shop cannot be renamed"},
		},
		"invalid": {
			patch("HTTP_ROUTE", "", "MERGE", "{route: {retry_policy: {retry_back_off: {base_interval: 0s}}}}"),
			unpatched,
			[]string{"[0] Envoy would refuse it"},
		},
		"a command in a header": {
			patch("VIRTUAL_HOST", "", "MERGE", "{request_headers_to_add: [{header: {key: a, value: '%NONE%'}}]}"), unpatched,
			[]string{"[0] Envoy has no such command between the percent signs of %NONE%"},
		},
		"security is switched off": {
			patch("VIRTUAL_HOST", "", "MERGE",
				`{typed_per_filter_config: {envoy.filters.http.rbac: {"@type": `+types+`http.rbac.v3.RBACPerRoute}}}`),
			unpatched,
			[]string{"[0] " + weakened},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := extension(t, tt.patches)
			findings := e.Findings
			r := New(e, networking.EnvoyFilter_GATEWAY, &findings).Routes(read(t, &routev3.RouteConfiguration{}, someRoutes))
			require.Equal(t, tt.want, summaryOf(r))
			lines := texts(findings)
			require.Len(t, lines, len(tt.findings), lines)
			for i, f := range tt.findings {
				require.Contains(t, lines[i], f)
			}
		})
	}
	sidecar := read(t, &routev3.RouteConfiguration{}, "{name: '80', virtual_hosts: [{name: a, domains: [a]}]}")
	for _, tt := range []struct {
		match string
		hosts int
	}{{"portNumber: 80", 0}, {"portNumber: 81", 1}, {"gateway: other/gateway", 0}} {
		p := New(extension(t, patch("VIRTUAL_HOST", tt.match, "REMOVE", "{}")), networking.EnvoyFilter_SIDECAR_OUTBOUND, new(model.Findings))
		require.Len(t, p.Routes(sidecar).GetVirtualHosts(), tt.hosts, tt.match)
	}
}

func TestCluster(t *testing.T) {
	const tls = "{name: envoy.transport_sockets.tls, typed_config: {'@type': " +
		"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, sni: %s}}"
	cluster := func(rest string) *clusterv3.Cluster {
		return read(t, &clusterv3.Cluster{}, "{name: 'outbound|80|v1|a.example.com', type: EDS, connect_timeout: 10s, "+rest+"}")
	}
	for name, tt := range map[string]struct {
		match, op, value string
		before, want     string // empty if it is removed
		findings         []string
	}{
		"name":          {"name: 'outbound|80|v1|a.example.com'", "MERGE", "{connect_timeout: 0.5s}", "", "connect_timeout: 0.5s", nil},
		"other name":    {"name: 'outbound|80||a.example.com'", "MERGE", "{connect_timeout: 0.5s}", "", "connect_timeout: 10s", nil},
		"parts":         {"service: a.example.com, portNumber: 80, subset: v1", "MERGE", "{lb_policy: RANDOM}", "", "lb_policy: RANDOM", nil},
		"other service": {"service: b.example.com", "MERGE", "{lb_policy: RANDOM}", "", "lb_policy: ROUND_ROBIN", nil},
		"other port":    {"portNumber: 81", "MERGE", "{lb_policy: RANDOM}", "", "lb_policy: ROUND_ROBIN", nil},
		"other subset":  {"subset: v2", "MERGE", "{lb_policy: RANDOM}", "", "lb_policy: ROUND_ROBIN", nil},
		"removed":       {"", "REMOVE", "{}", "", "", nil},
		"lists grow": {
			"", "MERGE", "{circuit_breakers: {thresholds: [{max_requests: 2}]}}", "circuit_breakers: {thresholds: [{max_requests: 1}]}",
			"circuit_breakers: {thresholds: [{max_requests: 1}, {max_requests: 2}]}", nil,
		},
		"renamed": {
			"", "MERGE", "{name: b}", "", "lb_policy: ROUND_ROBIN", []string{"[0] outbound|80|v1|a.example.com cannot be renamed"},
		},
		"type": {
			"", "MERGE", "{type: ORIGINAL_DST}", "", "lb_policy: ROUND_ROBIN",
			[]string{"[0] Envoy would refuse it: the type of the cluster, ORIGINAL_DST, does not go with the policy ROUND_ROBIN"},
		},
		"invalid": {"", "MERGE", "{connect_timeout: -1s}", "", "lb_policy: ROUND_ROBIN", []string{"[0] Envoy would refuse it"}},
		"transport socket of its own": {
			"", "MERGE", "{transport_socket: " + fmt.Sprintf(tls, "b") + "}", "", "transport_socket: " + fmt.Sprintf(tls, "b"), nil,
		},
		"transport socket alone": {
			"", "MERGE", "{lb_policy: RANDOM, transport_socket: " + fmt.Sprintf(tls, "b, allow_renegotiation: true") + "}",
			"transport_socket: " + fmt.Sprintf(tls, "a, max_session_keys: 5"),
			"transport_socket: " + fmt.Sprintf(tls, "b, max_session_keys: 5, allow_renegotiation: true"),
			[]string{"[0] lb_policy is ignored beside transport_socket, as with istiod"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := extension(t, fmt.Sprintf("- {applyTo: CLUSTER, match: {cluster: {%s}}, patch: {operation: %s, value: %s}}\n", tt.match,
				tt.op, tt.value))
			findings := e.Findings
			c, served := New(e, networking.EnvoyFilter_GATEWAY, &findings).Cluster(cluster(tt.before))
			require.Equal(t, tt.want != "", served)
			if served {
				want := cluster(tt.before)
				proto.Merge(want, read(t, &clusterv3.Cluster{}, "{"+tt.want+"}"))
				if strings.HasPrefix(tt.want, "connect_timeout") {
					want.ConnectTimeout = c.GetConnectTimeout()
					require.Contains(t, tt.want, strings.TrimSuffix(c.GetConnectTimeout().AsDuration().String(), "00ms"))
				} else {
					want = read(t, &clusterv3.Cluster{}, "{name: 'outbound|80|v1|a.example.com', type: EDS, connect_timeout: 10s, "+tt.want+"}")
				}
				require.Equal(t, protojson.Format(want), protojson.Format(c))
			}
			lines := texts(findings)
			require.Len(t, lines, len(tt.findings), lines)
			for i, f := range tt.findings {
				require.Contains(t, lines[i], f)
			}
		})
	}
	inbound := read(t, &clusterv3.Cluster{}, "{name: 'inbound|80||'}")
	e := extension(t, "- {applyTo: CLUSTER, match: {context: SIDECAR_INBOUND, cluster: {service: a.example.com}}, patch: {operation: "+
		"REMOVE}}\n")
	_, remains := New(e, networking.EnvoyFilter_SIDECAR_INBOUND, new(model.Findings)).Cluster(inbound, "a.example.com")
	require.False(t, remains)
	_, remains = New(e, networking.EnvoyFilter_SIDECAR_INBOUND, new(model.Findings)).Cluster(inbound, "b.example.com")
	require.True(t, remains)
}

// Findings name a value that is no message of Envoy's, and the other patches apply.
func TestDecode(t *testing.T) {
	const struct1 = `{name: s, typed_config: {"@type": type.googleapis.com/udpa.type.v1.TypedStruct, type_url: ` + types + `%s, value: {%s}}}`
	for name, tt := range map[string]struct{ applyTo, op, value, finding string }{
		"unknown type": {
			"HTTP_FILTER",
			"ADD",
			`{name: a, typed_config: {"@type": type.googleapis.com/none.Such}}`,
			"the value is not read: unable to resolve",
		},
		"wrong value":      {"CLUSTER", "MERGE", "{lb_policy: NONE}", "a part of the value is ignored: invalid value for enum"},
		"wrong shape":      {"CLUSTER", "MERGE", "{lb_policy: []}", "the value is not read: "},
		"unknown field":    {"CLUSTER", "MERGE", "{lb_policy: RANDOM, none: 1}", `a part of the value is ignored: unknown field "none"`},
		"bootstrap":        {"BOOTSTRAP", "MERGE", "{}", "BOOTSTRAP belongs to the bootstrap of the Envoy, or to a resource that is not served"},
		"extension config": {"EXTENSION_CONFIG", "ADD", "{}", "EXTENSION_CONFIG belongs"},
		"discovery": {
			"HTTP_FILTER",
			"ADD",
			"{name: a, config_discovery: {config_source: {ads: {}}, type_urls: [a]}}",
			"extension configurations are not served",
		},
		"operation":          {"CLUSTER", "REPLACE", "{}", "REPLACE has no effect on CLUSTER, as with istiod"},
		"invalid when added": {"HTTP_ROUTE", "ADD", "{name: a}", "Envoy would refuse it: invalid Route.Match"},
		"invalid within": {
			"HTTP_FILTER",
			"ADD",
			`{name: a, typed_config: {"@type": ` + types + `http.buffer.v3.Buffer, max_request_bytes: 0}}`,
			"Envoy would refuse it: invalid Buffer",
		},
		"typed struct of an unknown type": {
			"HTTP_FILTER", "ADD", fmt.Sprintf(struct1, "none.Such", ""), `the value is not read: unable to resolve "` + types + `none.Such"`,
		},
		"typed struct with an unknown field": {
			"HTTP_FILTER", "ADD", fmt.Sprintf(struct1, "http.buffer.v3.Buffer", "max_request_bytes: 5, none: 1"),
			`a part of the value is ignored: unknown field "none"`,
		},
		"good":  {"HTTP_FILTER", "ADD", lua, ""},
		"typed": {"HTTP_FILTER", "ADD", fmt.Sprintf(struct1, "http.buffer.v3.Buffer", "max_request_bytes: 5"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := extension(t, fmt.Sprintf("- {applyTo: %s, patch: {operation: %s, value: %s}}\n- {applyTo: HTTP_FILTER, patch: {operation: "+
				"ADD, value: %s}}\n",
				tt.applyTo, tt.op, tt.value, lua))
			last := e.Patches[len(e.Patches)-1]
			require.Equal(t, "spec.configPatches[1]", last.Field)
			if tt.finding == "" {
				require.Empty(t, e.Findings)
				require.NotContains(t, string(model.MustMarshal(e.Patches[0].Value)), "TypedStruct")
				return
			}
			require.Len(t, e.Findings, 1)
			require.Contains(t, texts(e.Findings)[0], "[0] "+tt.finding)
		})
	}
}
