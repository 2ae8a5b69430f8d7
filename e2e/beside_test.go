package e2e

import (
	"bytes"
	"cmp"
	"fmt"
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
	moved := routesElsewhere(lines)
	return slices.DeleteFunc(lines, func(line string) bool {
		if dead[line] || moved(line) || leadsNowhere(istiod, line, pair.split) {
			return true
		}
		return excused(line, pair)
	})
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
// Of servers that redirect, it takes hosts with their namespaces for domains.
func eachDomain(i *fixture.Inventory) {
	for name, r := range i.Routes {
		if !strings.HasPrefix(name, "http") {
			continue
		}
		var virtualHosts []*route.VirtualHost
		slices.SortStableFunc(r.VirtualHosts, func(a, b *route.VirtualHost) int {
			return strings.Count(a.GetName(), "/") - strings.Count(b.GetName(), "/")
		})
		for _, v := range r.GetVirtualHosts() {
			_, port, _ := strings.Cut(v.GetName(), ":")
			for _, d := range v.GetDomains() {
				domainHost := proto.CloneOf(v)
				if _, host, limited := strings.Cut(d, "/"); limited {
					d = host
				}
				domainHost.Name, domainHost.Domains = d+":"+port, []string{d}
				domainHost.Routes = once(domainHost.GetRoutes())
				if !slices.ContainsFunc(virtualHosts, func(v *route.VirtualHost) bool { return v.GetName() == domainHost.GetName() }) {
					virtualHosts = append(virtualHosts, domainHost)
				}
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
	clash, ranged, hashed := compared{gateway: true, clashes: true}, compared{ranged: true}, compared{hashes: true}
	for line, only := range map[string]*compared{
		"listener 0.0.0.0_443.filter_chains{1}: istiod has set":                                            &clash,
		"routes https.443.p0.g0.shop: tributary has it":                                                    &clash,
		"routes http.80.virtual_hosts{*.wild.internal:80}: tributary has set":                              &clash,
		"listener 0.0.0.0_8080.default_filter_chain: istiod has set":                                       &ranged,
		"listener 0.0.0.0_8080.filter_chains{1}: tributary has set":                                        &ranged,
		"routes 80.virtual_hosts{a:80}.routes{0}.route.hash_policy{0}: tributary has set":                  &hashed,
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
		for _, pair := range []compared{{}, {gateway: true}, clash, ranged, hashed} {
			want := only != nil && only.gateway == pair.gateway && only.clashes == pair.clashes &&
				only.ranged == pair.ranged && only.hashes == pair.hashes
			require.Equal(t, want, excused(line, pair), "%s of %+v", line, pair)
		}
	}
}
