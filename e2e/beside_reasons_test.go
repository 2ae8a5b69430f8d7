package e2e

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// different is where tributary tells an Envoy something else than istiod does, and why. docs/fields.md has the same list.
var different = []struct {
	line    matcher
	why     string
	applies func(compared) bool // the comparisons with this difference; nil is each comparison
}{
	{
		regexp.MustCompile(`\.tracing\.custom_tags\{istio\.(authorization\.dry_run\.(allow|deny)_policy\.(name|result)|canonical_(revision|` +
			`service)|cluster_id|mesh_id|namespace)\}: istiod has set$`),
		"spans lack Istio's tags: their values would differ for each workload",
		nil,
	},
	{
		regexp.MustCompile(`^cluster InboundPassthroughCluster: istiod has it$`),
		"a sidecar without redirection has no cluster of redirected connections", compared.direct,
	},
	{regexp.MustCompile(`\{envoy.transport_socket_match\}`), "an Envoy without an identity speaks no mutual TLS; istiod takes it " +
		"that each has one", nil},
	{
		regexp.MustCompile(`^(listener|cluster) .*sds_secret_config.*\.sds_config\.`),
		"certificates that are files come as secrets by the stream that listeners come by; istiod leaves them to its agent", nil,
	},
	{
		regexp.MustCompile(`^cluster .*: tributary has it without endpoints$`),
		"a cluster of names that has no endpoint is sent without any, so that statistics show it; istiod leaves it out", nil,
	},
	{shortNames{}, "short names of services in a client's own DNS domain, such as details and details.default, are no domains: without " +
		"Kubernetes no resolver knows them", nil},
	{regexp.MustCompile(`^listener .*\.filters\{[0-9]+\}(\.name: istiod has envoy\.filters\.network\.mongo_proxy, ` +
		`.*|\.typed_config\[MongoProxy\]: istiod has set|\.typed_config\[TcpProxy\]: tributary has set|: istiod has ` +
		`set)$`), "a service of MongoDB is one of TCP; istiod has Envoy's filter for MongoDB, for its statistics", compared.ofMongo},
	{
		regexp.MustCompile(`^cluster .*\.transport_socket: istiod has set$`),
		"ISTIO_MUTUAL needs an identity: an Envoy without one sends no request, or plaintext if that is allowed",
		compared.ofMutual,
	},
	{
		regexp.MustCompile(`^cluster .*\.filter_metadata\{istio\}\.fields\{alpn_override\}: istiod has set$`),
		"istiod's clusters have metadata for its own ALPN filter, which only its own proxies have", nil,
	},
	{regexp.MustCompile(`^cluster .*\.validation_context_sds_secret_config\.name: istiod has file-root:system, tributary ` +
		`file-root:/etc/ssl/certs/` +
		`ca-certificates\.crt$`), "a server that is verified by no roots in particular is verified by the system's, which are a file here " +
		"and known to istiod's agent", nil},
	{regexp.MustCompile(`^listener (0\.0\.0\.0_[0-9]+\.filter_chains\{[0-9]+\}(\.filter_chain_match\.prefix_ranges\{.*|: istiod has ` +
		`set)|[0-9.]+_[0-9]+: istiod has ` +
		`it)$`), "a service of TCP with addresses and ranges is one filter chain for all of them; istiod has a listener for each address " +
		"and a chain for each range", compared.isMixed},
	{otherAddresses{}, "of two hosts that share an address, one has it as a domain; istiod also writes ranges of addresses as domains, " +
		"which match nothing", nil},
	{otherPort{}, "a route to a service of one port leads there, as Istio's documentation says; istiod takes the port that the request came " +
		"to, and answers 503", nil},
	{
		regexp.MustCompile(`\[TcpProxy\]\.(idle_timeout|max_downstream_connection_duration|hash_policy)`),
		"settings in portLevelSettings apply to connections, too; istiod applies only the settings for all ports", nil,
	},
	{regexp.MustCompile(`\.hash_policy\{[0-9]+\}: istiod has`), "a route has no hash where the port's load balancer does not use one", nil},
	{
		regexp.MustCompile(`^routes .*\.route\.(hash_policy\{[0-9]+\}(: tributary has set|\.(header|query_parameter|cookie|` +
			`connection_properties)[.:].*)|retry_policy\.retry_host_predicate\{0\}: (istiod|tributary) has set)$`),
		"load balancers in portLevelSettings apply to a destination without a port, too; istiod does not apply them there",
		compared.byPort,
	},
	{
		regexp.MustCompile(`^routes .*\.redirect\.(prefix_rewrite: istiod has /|regex_rewrite: tributary has set)$`),
		"a redirect of Gateway API that replaces a prefix by / leads to the rest of the path; with istiod the path begins with two slashes",
		compared.derives,
	},
	{regexp.MustCompile(`max_concurrent_streams: tributary`), "with h2UpgradePolicy, istiod forgets maxConcurrentStreams", nil},
	{
		regexp.MustCompile(`^(listener 0.0.0.0_443\.filter_chains\{[0-9]+\}: istiod has set|routes https\.443\..*: istiod has it)$`),
		"of servers with one host on one port, the first has it; Envoy rejects istiod's listener", compared.clash,
	},
	{regexp.MustCompile(`^(listener 0.0.0.0_443\.filter_chains\{[0-9]+\}[.:].*|routes https\.443\.[^.]*\.[^.]*\.[^.]*: tributary has ` +
		`it|routes http\.80\.virtual_hosts\{[^}]*\}: tributary has ` +
		`set)$`), "of a server that has a host of an older one on its port, tributary leaves out the host, istiod the whole " +
		"server", compared.clash},
	{fewerServers{}, "of servers with one host on one port, the first has it; Envoy rejects istiod's listener", compared.clash},
	{
		regexp.MustCompile(`^listener 0.0.0.0_[0-9]+\.(default_filter_chain: istiod has set|filter_chains\{[0-9]+\}: tributary has set)`),
		"beside services with ranges of addresses, the oldest other service has the rest of a TCP port; istiod leaves it out", compared.ranges,
	},
	{
		regexp.MustCompile(`^listener 127.*_[0-9]+\.default_filter_chain: istiod has set$`),
		"without redirection, istiod passes TLS connections for no known service on to their original destination, the Envoy itself", nil,
	},
	{
		regexp.MustCompile(`^listener 127.*(server_names|filter_chain_match|tls_inspector|filter_chains\{[0-9]+\}: tributary has set)`),
		"without redirection, istiod serves the oldest of several TLS hosts on one port; tributary all, by SNI, and the oldest for any " +
			"other name", nil,
	},
	{
		regexp.MustCompile(`^(listener 127.*_(9102|9110|9133)\.(listener_filters\{envoy\.filters\.listener\.http_inspector\}: istiod has set|` +
			`.*\.rds\.route_config_name: istiod has .*)|routes (9102|9110|9133): tributary has it|` +
			`routes s1\..*:[0-9]+: istiod has it|routes v1\..*:[0-9]+: istiod has it)$`),
		"without redirection, a service of HTTP keeps its port when a younger one without protocol has it, too; istiod leads all requests " +
			"to the younger one", compared.taken,
	},
	{
		regexp.MustCompile(`^(cluster outbound\|8000\|\|v4\.example\.(dns_|eds_cluster_config: istiod|load_assignment: |respect_dns_ttl: |` +
			`type: istiod has EDS, tributary STRICT_DNS|typed_dns_resolver_config: )|endpoints outbound\|8000\|\|v4\.example: istiod has it)`),
		"if one ServiceEntry of a host and port has addresses and another has names, the names are resolved; istiod sends them as " +
			"addresses, which Envoy rejects", compared.joined,
	},
}

// compared describes two compared inventories.
type compared struct {
	gateway  bool     // they are those of a gateway
	plain    bool     // connections to the sidecar are not redirected
	ranged   bool     // there are services with ranges of addresses
	clashes  bool     // there are servers of HTTPS, or that redirect to such, which have one host on one port
	balanced bool     // there are policies of ports with a load balancer
	shapes   bool     // of testdata/shapes
	derived  []string // the hosts of routes of Gateway API
	split    []string // hosts that several namespaces have, where there are Sidecars

	// of samples: there are services of MongoDB, policies of ISTIO_MUTUAL, services of addresses and ranges
	mongo, mutual, mixed bool
}

func (c compared) direct() bool   { return c.plain }
func (c compared) taken() bool    { return c.plain && c.shapes }
func (c compared) joined() bool   { return c.shapes }
func (c compared) ofMongo() bool  { return c.mongo }
func (c compared) ofMutual() bool { return c.mutual }
func (c compared) isMixed() bool  { return c.mixed }

func (c compared) byPort() bool  { return c.balanced }
func (c compared) derives() bool { return len(c.derived) > 0 }
func (c compared) clash() bool   { return c.gateway && c.clashes }
func (c compared) ranges() bool  { return !c.gateway && c.ranged }

// matcher selects the lines that a reason covers.
type matcher interface{ MatchString(line string) bool }

// otherPort matches lines that differ only in the port.
type otherPort struct{}

var anyPort = regexp.MustCompile(`[|:][0-9]+[|/]`)

func (otherPort) MatchString(line string) bool {
	istiod, tributary, hasTributary := strings.Cut(line, ", tributary ")
	_, istiod, _ = strings.Cut(istiod, ": istiod has ")
	return hasTributary && anyPort.MatchString(istiod) && anyPort.ReplaceAllString(istiod, "|") == anyPort.ReplaceAllString(tributary, "|")
}

// fewerServers matches server names of one port of a gateway if tributary leaves some out.
type fewerServers struct{}

var serversOf = regexp.MustCompile(`^listener 0\.0\.0\.0_443\.filter_chains\{[0-9]+\}\.filter_chain_match\.server_names: istiod has ` +
	`(.*), tributary (.*)$`)

func (fewerServers) MatchString(line string) bool {
	servers := serversOf.FindStringSubmatch(line)
	return servers != nil && !slices.ContainsFunc(strings.Fields(servers[2]),
		func(name string) bool { return !slices.Contains(strings.Fields(servers[1]), name) })
}

// otherAddresses is of domains that differ in addresses, or ranges of them.
type otherAddresses struct{}

var domainsOf = regexp.MustCompile(`^routes .*\.domains: istiod has (.*), tributary (.*)$`)

func (otherAddresses) MatchString(line string) bool {
	domains := domainsOf.FindStringSubmatch(line)
	return domains != nil && slices.Equal(names(domains[1]), names(domains[2]))
}

// shortNames is of domains that are the same but for names of services without all of the cluster's domain.
type shortNames struct{}

func (shortNames) MatchString(line string) bool {
	domains := domainsOf.FindStringSubmatch(line)
	if domains == nil {
		return false
	}
	ours := strings.Fields(domains[2])
	rest := slices.DeleteFunc(strings.Fields(domains[1]), func(d string) bool {
		return slices.ContainsFunc(ours, func(full string) bool {
			return strings.HasSuffix(full, ".svc.cluster.local") && strings.HasPrefix(full, d+".")
		})
	})
	return slices.Equal(rest, ours)
}

// names returns the domains of a list that are no addresses, nor ranges of them.
func names(list string) []string {
	return slices.DeleteFunc(strings.Fields(list), func(d string) bool {
		address, _, _ := strings.Cut(d, "/")
		_, err := netip.ParseAddr(strings.Trim(address, "[]"))
		return err == nil
	})
}

// excused says whether a reason is given for a line.
func excused(line string, pair compared) bool {
	for _, d := range different {
		if (d.applies == nil || d.applies(pair)) && d.line.MatchString(line) {
			return true
		}
	}
	return false
}
