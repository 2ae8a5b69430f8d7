package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/e2e/fixture"
)

func besideNode(t *testing.T, interception string) *core.Node {
	t.Helper()
	metadata, err := structpb.NewStruct(map[string]any{
		"NAMESPACE": "shop", "LABELS": map[string]any{"app": "vm1"}, "INTERCEPTION_MODE": interception, "ISTIO_VERSION": "1.27.9",
		"CLUSTER_ID": "Kubernetes",
	})
	require.NoError(t, err)
	// No service has the address: of several that have one, istiod forgets all but one.
	return &core.Node{Id: "sidecar~192.0.2.77~vm1.shop~shop.svc.cluster.local", Metadata: metadata}
}

// besideNodes are the compared clients: sidecars with redirection of both kinds and without, and a gateway.
func besideNodes(t *testing.T) map[string]*core.Node {
	t.Helper()
	gateway := besideNode(t, "REDIRECT")
	gateway.Id = "router~192.0.2.77~vm1.shop~shop.svc.cluster.local"
	return map[string]*core.Node{
		"NONE": besideNode(t, "NONE"), "REDIRECT": besideNode(t, "REDIRECT"), "TPROXY": besideNode(t, "TPROXY"),
		"gateway": gateway,
	}
}

// compare returns the differences of two inventories that have no explanation. They may differ in hosts that several
// namespaces share, for clients with a Sidecar.
func compare(t *testing.T, istiod, ours *fixture.Inventory, pair compared) (lines []string) {
	t.Helper()
	for _, i := range []*fixture.Inventory{istiod, ours} {
		eachDomain(i)
		sortChains(i)
	}
	withoutMutual(istiod)
	withoutChecks(ours)
	lines = append(lines, differences("cluster", istiod.Clusters, ours.Clusters)...)
	lines = append(lines, differences("endpoints", istiod.Endpoints, ours.Endpoints)...)
	lines = append(lines, differences("listener", istiod.Listeners, ours.Listeners)...)
	lines = append(lines, differences("routes", istiod.Routes, ours.Routes)...)
	dead := deadEnds(istiod, pair.split)
	moved, unrouted, missing := routesElsewhere(lines), unroutedHosts(lines, pair), missingHosts(istiod, pair.split)
	return slices.DeleteFunc(lines, func(line string) bool {
		if dead[line] || moved(line) || unrouted(line) || missing(line) || leadsNowhere(istiod, line, pair.split) {
			return true
		}
		return excused(line, pair)
	})
}

// unroutedHosts matches the lines about virtual hosts that have only the default route in istiod: a VirtualService of
// Gateway API that does not apply to a service hides those of wildcards there.
func unroutedHosts(lines []string, pair compared) func(line string) bool {
	unrouted := make(map[string]bool)
	for _, line := range lines {
		routes := routesOfHost.FindStringSubmatch(line)
		if routes == nil || pair.gateway {
			continue
		}
		rest := line[len(routes[0]):]
		unrouted[routes[0]] = unrouted[routes[0]] || (rest == defaultName || strings.HasPrefix(rest, defaultName+", ")) &&
			slices.ContainsFunc(pair.derived, func(host string) bool {
				return host == routes[1] || host[0] == '*' && strings.HasSuffix(routes[1], host[1:])
			})
	}
	return func(line string) bool { return unrouted[routesOfHost.FindString(line)] }
}

const defaultName = "0}.name: istiod has default"

var routesOfHost = regexp.MustCompile(`^routes [^ ]*\.virtual_hosts\{([^ }]*):[0-9]+\}\.routes\{`)

// missingHosts matches the lines about shared hosts without a cluster in istiod. A Sidecar imports each for one port
// from one namespace, and istiod has the service from there for the other ports, too. If that is one of names and has no
// endpoint, it has no cluster.
func missingHosts(istiod *fixture.Inventory, shared []string) func(line string) bool {
	isOf := func(host string) func(string, *cluster.Cluster) bool {
		return func(name string, _ *cluster.Cluster) bool { return strings.HasSuffix(name, "|"+host) }
	}
	var hosts []string
	for _, host := range shared {
		clusters := maps.Clone(istiod.Clusters)
		if maps.DeleteFunc(clusters, isOf(host)); len(clusters) == len(istiod.Clusters) {
			hosts = append(hosts, regexp.QuoteMeta(host))
		}
	}
	if len(hosts) == 0 {
		return func(string) bool { return false }
	}
	host := "(" + strings.Join(hosts, "|") + ")"
	return regexp.MustCompile(`^((cluster|endpoints) outbound\|[0-9]+\|[^|]*\|` + host + `: tributary has it|` +
		`routes [0-9]+\.virtual_hosts\{` + host + `:[0-9]+\}: istiod has set)$`).MatchString
}

// routesElsewhere matches the lines that follow from a route to another port: the hashes and retries in the policy of a
// port go with it.
func routesElsewhere(lines []string) func(line string) bool {
	routes := make(map[string]bool)
	for _, line := range lines {
		if i := strings.Index(line, ".route.cluster: "); i > 0 && (otherPort{}).MatchString(line) {
			routes[line[:i]] = true
		}
	}
	return func(line string) bool {
		i := strings.Index(line, ".route.")
		return i > 0 && routes[line[:i]] && (strings.HasPrefix(line[i:], ".route.hash_policy") ||
			strings.HasPrefix(line[i:], ".route.retry_policy.retry_host_predicate"))
	}
}

// withoutChecks removes the health checks of clusters, which istiod leaves to its agents: a cluster that has one has
// endpoints of another name, which must be there.
func withoutChecks(i *fixture.Inventory) {
	for name, c := range i.Clusters {
		if len(c.GetHealthChecks()) == 0 {
			continue
		}
		c.HealthChecks, c.IgnoreHealthOnHostRemoval, c.CommonLbConfig.HealthyPanicThreshold = nil, false, nil
		if a := i.Endpoints[c.GetEdsClusterConfig().GetServiceName()]; a != nil {
			delete(i.Endpoints, a.GetClusterName())
			a.ClusterName, c.EdsClusterConfig.ServiceName = name, name
			for _, group := range a.GetEndpoints() {
				for _, e := range group.GetLbEndpoints() {
					e.GetEndpoint().HealthCheckConfig = nil
				}
			}
			i.Endpoints[name] = a
		}
	}
}

// withoutMutual removes the TLS parts of inbound listeners with optional mutual TLS: a sidecar without an identity has
// plaintext only.
func withoutMutual(i *fixture.Inventory) {
	for _, l := range i.Listeners {
		mutual := slices.ContainsFunc(l.GetFilterChains(), func(c *listener.FilterChain) bool {
			return bytes.Contains(c.GetTransportSocket().GetTypedConfig().GetValue(), []byte("ROOTCA"))
		})
		if l.GetTrafficDirection() != core.TrafficDirection_INBOUND || !mutual {
			continue
		}
		l.FilterChains = slices.DeleteFunc(l.GetFilterChains(), func(c *listener.FilterChain) bool {
			return c.GetFilterChainMatch().GetTransportProtocol() == "tls"
		})
		l.ListenerFilters = slices.DeleteFunc(l.GetListenerFilters(), func(f *listener.ListenerFilter) bool {
			return f.GetName() == "envoy.filters.listener.tls_inspector"
		})
	}
}

// leadsNowhere says whether a line is about a filter chain that leads, in istiod, to a cluster of a shared host that
// istiod does not have.
func leadsNowhere(istiod *fixture.Inventory, line string, shared []string) bool {
	m := chainTo.FindStringSubmatch(line)
	return m != nil && istiod.Clusters[m[1]] == nil && slices.ContainsFunc(shared,
		func(host string) bool { return strings.HasSuffix(m[1], "|"+host) })
}

var chainTo = regexp.MustCompile(`^listener .*\[TcpProxy\]\.(?:cluster|stat_prefix): istiod has ([^ ]*), tributary `)

// sortChains puts filter chains in order of the ranges of addresses that they are for: there is no other one to Envoy.
func sortChains(i *fixture.Inventory) {
	key := func(c *listener.FilterChain) string {
		var b strings.Builder
		for _, r := range c.GetFilterChainMatch().GetPrefixRanges() {
			fmt.Fprintf(&b, "%s/%d ", r.GetAddressPrefix(), r.GetPrefixLen().GetValue())
		}
		return cmp.Or(b.String(), "~") // a chain for all addresses comes last
	}
	for name, l := range i.Listeners {
		if strings.HasPrefix(name, "127") {
			continue
		}
		slices.SortStableFunc(l.FilterChains, func(a, b *listener.FilterChain) int { return cmp.Compare(key(a), key(b)) })
	}
}

// eachDomain has virtual hosts of gateways be one for each domain: istiod makes one of those that have the same routes.
// Of servers that redirect, it takes hosts with their namespaces for domains. Those come last here, and have the virtual
// host of the domain itself redirect.
func eachDomain(i *fixture.Inventory) {
	for name, r := range i.Routes {
		if !strings.HasPrefix(name, "http") {
			continue
		}
		var virtualHosts, limited []*route.VirtualHost
		for _, v := range r.GetVirtualHosts() {
			_, port, _ := strings.Cut(v.GetName(), ":")
			for _, d := range v.GetDomains() {
				domainHost := proto.CloneOf(v)
				_, host, isLimited := strings.Cut(d, "/")
				if !isLimited {
					host = d
				}
				domainHost.Name, domainHost.Domains = host+":"+port, []string{host}
				domainHost.Routes = once(domainHost.GetRoutes())
				if isLimited {
					limited = append(limited, domainHost)
				} else {
					virtualHosts = append(virtualHosts, domainHost)
				}
			}
		}
		for _, v := range limited {
			i := slices.IndexFunc(virtualHosts, func(o *route.VirtualHost) bool { return o.GetName() == v.GetName() })
			if i < 0 {
				virtualHosts = append(virtualHosts, v)
			} else {
				virtualHosts[i].RequireTls = v.GetRequireTls()
			}
		}
		r.VirtualHosts = virtualHosts
	}
}

// once returns routes without later duplicates, which match no request: istiod repeats the routes of a VirtualService
// for each server of a port.
func once(routes []*route.Route) (distinct []*route.Route) {
	for _, r := range routes {
		if !slices.ContainsFunc(distinct, func(o *route.Route) bool { return proto.Equal(o, r) }) {
			distinct = append(distinct, r)
		}
	}
	return distinct
}

// replace makes content all that is in a folder, at once.
func replace(t *testing.T, dir, content string) {
	t.Helper()
	temp := t.TempDir()
	write(t, temp, "mesh.yaml", content)
	require.NoError(t, os.Rename(filepath.Join(temp, "mesh.yaml"), filepath.Join(dir, "mesh.yaml")))
}

// deadEnds returns the lines for istiod's listeners, or routes of a port, that lead only to clusters that istiod does
// not have; and for listeners at addresses of services that lead to clusters of hosts in several namespaces.
func deadEnds(istiod *fixture.Inventory, shared []string) map[string]bool {
	isShared := func(cluster string) bool {
		return slices.ContainsFunc(shared, func(host string) bool { return strings.HasSuffix(cluster, "|"+host) })
	}
	leadsSomewhere := func(m proto.Message, except func(string) bool) bool {
		for path, v := range fixture.Flatten(m) {
			if (strings.HasSuffix(path, ".cluster") || strings.HasSuffix(path, "}.name") && strings.Contains(path, "weighted_clusters")) &&
				istiod.Clusters[v] != nil &&
				v != "PassthroughCluster" && v != "BlackHoleCluster" && !except(v) {
				return true
			}
		}
		return false
	}
	noException := func(string) bool { return false }
	lines, dead := make(map[string]bool), make(map[string]bool)
	for name, r := range istiod.Routes {
		if !leadsSomewhere(r, noException) {
			dead[name], lines[fmt.Sprintf("routes %s: istiod has it", name)] = true, true
		}
	}
	for name, l := range istiod.Listeners {
		routesName := ""
		for path, v := range fixture.Flatten(l) {
			if strings.HasSuffix(path, ".route_config_name") {
				routesName = v
			}
		}
		except := noException
		if strings.HasPrefix(name, "240.") {
			except = isShared
		}
		if routesName != "" && dead[routesName] || routesName == "" && !leadsSomewhere(l, except) {
			lines[fmt.Sprintf("listener %s: istiod has it", name)] = true
		}
	}
	return lines
}

func differences[M proto.Message](kind string, istiod, ours map[string]M) (lines []string) {
	for name, m := range istiod {
		o, ok := ours[name]
		if !ok {
			lines = append(lines, fmt.Sprintf("%s %s: istiod has it", kind, name))
			continue
		}
		a, b := fixture.Flatten(m), fixture.Flatten(o)
		for path, v := range a {
			if w, ok := b[path]; !ok {
				lines = append(lines, fmt.Sprintf("%s %s%s: istiod has %s", kind, name, path, v))
			} else if v != w {
				lines = append(lines, fmt.Sprintf("%s %s%s: istiod has %s, tributary %s", kind, name, path, v, w))
			}
		}
		for path, v := range b {
			if _, ok := a[path]; !ok {
				lines = append(lines, fmt.Sprintf("%s %s%s: tributary has %s", kind, name, path, v))
			}
		}
	}
	for name, o := range ours {
		if _, ok := istiod[name]; ok {
			continue
		}
		line := fmt.Sprintf("%s %s: tributary has it", kind, name)
		if c, ok := any(o).(*cluster.Cluster); ok && c.GetType() != cluster.Cluster_EDS && len(c.GetLoadAssignment().GetEndpoints()) == 0 {
			line += " without endpoints"
		}
		lines = append(lines, line)
	}
	path := func(line string) string { path, _, _ := strings.Cut(line, ": "); return path }
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(path(a), path(b)) })
	// A resource that is missing as a whole is reported once.
	missingPath := ""
	return slices.DeleteFunc(lines, func(line string) bool {
		if missingPath != "" && strings.HasPrefix(path(line), missingPath) {
			return true
		}
		if missingPath = ""; strings.HasSuffix(line, " has set") || strings.HasSuffix(line, " has it") {
			missingPath = path(line)
		}
		return false
	})
}

func TestDifferencesFromIstiod_AreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "fields.md"))
	require.NoError(t, err)
	for _, d := range different {
		require.Contains(t, string(text), "- "+strings.ToUpper(d.why[:1])+d.why[1:]+".\n")
	}
}

// A reason covers its own lines, and no others.
func TestReasons_CoverOnlyTheirLines(t *testing.T) {
	clash, ranged := compared{gateway: true, clashes: true}, compared{ranged: true}
	balanced, derived := compared{balanced: true}, compared{derived: []string{"a"}}
	for line, only := range map[string]*compared{
		"listener 0.0.0.0_443.filter_chains{1}: istiod has set":                                            &clash,
		"routes https.443.p0.g0.shop: tributary has it":                                                    &clash,
		"routes http.80.virtual_hosts{*.wild.internal:80}: tributary has set":                              &clash,
		"listener 0.0.0.0_8080.default_filter_chain: istiod has set":                                       &ranged,
		"listener 0.0.0.0_8080.filter_chains{1}: tributary has set":                                        &ranged,
		"routes 80.virtual_hosts{a:80}.routes{0}.route.hash_policy{0}: tributary has set":                  &balanced,
		"routes http.80.virtual_hosts{a:80}.routes{0}.route.hash_policy{0}.header: tributary has set":      &balanced,
		"routes http.80.virtual_hosts{a:80}.routes{0}.redirect.prefix_rewrite: istiod has /":               &derived,
		"routes http.80.virtual_hosts{a:80}.routes{0}.redirect.regex_rewrite: tributary has set":           &derived,
		"routes http.80.virtual_hosts{a:80}.routes{0}.redirect.prefix_rewrite: istiod has /new":            nil,
		"routes 80.virtual_hosts{a:80}.routes{0}.route.max_stream_duration.x: istiod has 5":                nil,
		"routes 80.virtual_hosts{a:80}.routes{0}.route.timeout.seconds: istiod has 5, tributary 6":         nil,
		"routes 80.virtual_hosts{a:80}.domains: istiod has a 10.0.0.1, tributary b 10.0.0.1":               nil,
		"routes 80.virtual_hosts{a:80}.routes{0}.route.cluster: istiod has x|1||a, tributary x|1||b":       nil,
		"routes 80.virtual_hosts{a:80}.routes{0}.route.retry_policy.num_retries.value: istiod has 2":       nil,
		"listener 127.0.0.1_80.filter_chains{0}.filters{0}.name: istiod has a, tributary b":                nil,
		"listener 240.0.0.1_80: istiod has it":                                                             nil,
		"cluster outbound|80||a: istiod has it":                                                            nil,
		"cluster outbound|80||a: tributary has it":                                                         nil,
		"cluster outbound|80||a.circuit_breakers: tributary has set":                                       nil,
		"endpoints outbound|80||a.endpoints{/}: istiod has set":                                            nil,
		"listener 0.0.0.0_443.filter_chains{0}.filter_chain_match.server_names: istiod has a, tributary b": &clash,
	} {
		for _, pair := range []compared{{}, {gateway: true}, clash, ranged, balanced, derived} {
			want := only != nil && only.gateway == pair.gateway && only.clashes == pair.clashes &&
				only.ranged == pair.ranged && only.balanced == pair.balanced && len(only.derived) == len(pair.derived)
			require.Equal(t, want, excused(line, pair), "%s of %+v", line, pair)
		}
	}
}

// A virtual host without routes in istiod covers its own lines, for sidecars and if Gateway API has a route of its host.
func TestUnroutedHosts_CoverOnlyTheirLines(t *testing.T) {
	const unrouted = "routes 80.virtual_hosts{a.b:80}.routes{0}.name: istiod has default, tributary x"
	for line, covered := range map[string]bool{
		unrouted: true,
		"routes 80.virtual_hosts{a.b:80}.routes{1}: tributary has set":                           true,
		"routes 80.virtual_hosts{a.b:80}.domains: istiod has a":                                  false,
		"routes 80.virtual_hosts{c.b:80}.routes{0}.name: istiod has defaults, tributary x":       false,
		"routes 81.virtual_hosts{a.b:80}.routes{0}.route.cluster: istiod has x, tributary y":     false,
		"routes 80.virtual_hosts{d.b:80}.routes{0}.name: istiod has x, tributary default":        false,
		"cluster outbound|80||a.b.metadata.x: istiod has y":                                      false,
		"listener a.virtual_hosts{a.b:80}.routes{0}.name: istiod has default, tributary default": false,
	} {
		lines := []string{unrouted, line}
		require.Equal(t, covered, unroutedHosts(lines, compared{derived: []string{"*.b"}})(line), line)
		require.Equal(t, covered, unroutedHosts(lines, compared{derived: []string{"c", "a.b"}})(line), line)
		require.False(t, unroutedHosts(lines, compared{derived: []string{"b", "*.a"}})(line), line)
		require.False(t, unroutedHosts(lines, compared{derived: []string{"*.b"}, gateway: true})(line), line)
	}
}

// A host without clusters in istiod covers the lines about its clusters, endpoints and virtual hosts.
func TestMissingHosts_CoverOnlyTheirLines(t *testing.T) {
	istiod := &fixture.Inventory{Clusters: map[string]*cluster.Cluster{"outbound|80||there": {}}}
	missing := missingHosts(istiod, []string{"a.b", "there"})
	for line, covered := range map[string]bool{
		"cluster outbound|80||a.b: tributary has it":           true,
		"endpoints outbound|80|v1|a.b: tributary has it":       true,
		"routes 80.virtual_hosts{a.b:80}: istiod has set":      true,
		"routes 80.virtual_hosts{a.b:80}: tributary has set":   false,
		"routes 80.virtual_hosts{axb:80}: istiod has set":      false,
		"cluster outbound|80||c.a.b: tributary has it":         false,
		"cluster outbound|80||there: tributary has it":         false,
		"cluster outbound|80||a.b.type: istiod has EDS":        false,
		"routes 80.virtual_hosts{there:80}: istiod has set":    false,
		"routes http.80.virtual_hosts{a.b:80}: istiod has set": false,
	} {
		require.Equal(t, covered, missing(line), line)
		require.False(t, missingHosts(istiod, nil)(line), line)
	}
}
