package e2e

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// different is where tributary tells an Envoy something else than istiod does, and why. docs/fields.md has the same list.
var different = []struct {
	line matcher
	why  string
	of   func(compared) bool // in which comparisons; nil is all
}{
	{
		regexp.MustCompile(`\.tracing\.custom_tags\{istio\.(authorization\.dry_run\.(allow|deny)_policy\.(name|result)|canonical_(revision|` +
			`service)|cluster_id|mesh_id|namespace)\}: istiod has set$`),
		"spans have none of Istio's tags, by which all workloads would differ",
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
		"Kubernetes nobody resolves them", nil},
	{regexp.MustCompile(`^listener .*\.filters\{[0-9]+\}(\.name: istiod has envoy\.filters\.network\.mongo_proxy, ` +
		`.*|\.typed_config\[MongoProxy\]: istiod has set|\.typed_config\[TcpProxy\]: tributary has set|: istiod has ` +
		`set)$`), "a service of MongoDB is one of TCP; istiod has Envoy's filter for MongoDB, for its statistics", compared.ofMongo},
	{
		regexp.MustCompile(`^cluster .*\.transport_socket: istiod has set$`),
		"ISTIO_MUTUAL needs an identity: without one nothing is sent, or plaintext if that is allowed",
		compared.ofMutual,
	},
	{
		regexp.MustCompile(`^cluster .*\.filter_metadata\{istio\}\.fields\{alpn_override\}: istiod has set$`),
		"istiod's clusters have what its own filter for ALPN reads, which only its own proxies have", nil,
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
		"what portLevelSettings say applies to connections too; istiod heeds what is said of all ports only", nil,
	},
	{regexp.MustCompile(`\.hash_policy\{[0-9]+\}: istiod has`), "a route has no hash where the port's load balancer does not use one", nil},
	{
		regexp.MustCompile(`^routes [0-9]+\..*\.route\.(hash_policy\{[0-9]+\}: tributary has set|retry_policy\.retry_host_predicate\{0\}: ` +
			`istiod has set)$`),
		"what portLevelSettings say of hashes applies to a destination that names no port, too; istiod does not heed it there",
		compared.byPort,
	},
	{regexp.MustCompile(`max_concurrent_streams: tributary`), "with h2UpgradePolicy, istiod forgets maxConcurrentStreams", nil},
	{
		regexp.MustCompile(`^(listener 0.0.0.0_443\.filter_chains\{[0-9]+\}: istiod has set|routes https\.443\..*: istiod has it)$`),
		"of servers that have one host on one port, the first has it; Envoy refuses what istiod sends", compared.clash,
	},
	{regexp.MustCompile(`^(listener 0.0.0.0_443\.filter_chains\{[0-9]+\}[.:].*|routes https\.443\.[^.]*\.[^.]*\.[^.]*: tributary has ` +
		`it|routes http\.80\.virtual_hosts\{[^}]*\}: tributary has ` +
		`set)$`), "of a server that has a host of an older one on its port, tributary leaves out the host, istiod the whole " +
		"server", compared.clash},
	{fewerServers{}, "of servers that have one host on one port, the first has it; Envoy refuses what istiod sends", compared.clash},
	{
		regexp.MustCompile(`^listener 0.0.0.0_[0-9]+\.(default_filter_chain: istiod has set|filter_chains\{[0-9]+\}: tributary has set)`),
		"beside services whose addresses are ranges, the oldest other one has the rest of a port of TCP; istiod leaves it out", compared.ranges,
	},
	{
		regexp.MustCompile(`^listener 127.*_[0-9]+\.default_filter_chain: istiod has set$`),
		"without redirection, istiod has what no service of TLS is asked for pass through to where it came, which is the Envoy itself", nil,
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
		"of ServiceEntries of one host and port, of which one has addresses and another names, the names are resolved; istiod sends them as " +
			"addresses, which Envoy rejects", compared.joined,
	},
}

// compared is what is known of two inventories that are compared.
type compared struct {
	gateway bool     // they are those of a gateway
	plain   bool     // connections to the sidecar are not redirected
	ranged  bool     // there are services whose addresses are ranges
	clashes bool     // there are servers of HTTPS, or that redirect to such, which have one host on one port
	hashes  bool     // there are policies of ports that say of what a hash is made
	shapes  bool     // of testdata/shapes
	split   []string // hosts that several namespaces have, where there are Sidecars

	// of samples: there are services of MongoDB, policies of ISTIO_MUTUAL, services of addresses and ranges
	mongo, mutual, mixed bool
}

func (c compared) direct() bool   { return c.plain }
func (c compared) taken() bool    { return c.plain && c.shapes }
func (c compared) joined() bool   { return c.shapes }
func (c compared) ofMongo() bool  { return c.mongo }
func (c compared) ofMutual() bool { return c.mutual }
func (c compared) isMixed() bool  { return c.mixed }

func (c compared) byPort() bool { return !c.gateway && c.hashes }
func (c compared) clash() bool  { return c.gateway && c.clashes }
func (c compared) ranges() bool { return !c.gateway && c.ranged }

// matcher says of which lines a reason is.
type matcher interface{ MatchString(line string) bool }

// otherPort is of lines in which both say the same but for the port.
type otherPort struct{}

var anyPort = regexp.MustCompile(`[|:][0-9]+[|/]`)

func (otherPort) MatchString(line string) bool {
	istiod, tributary, both := strings.Cut(line, ", tributary ")
	_, istiod, _ = strings.Cut(istiod, ": istiod has ")
	return both && anyPort.MatchString(istiod) && anyPort.ReplaceAllString(istiod, "|") == anyPort.ReplaceAllString(tributary, "|")
}

// fewerServers is of server names of one port of a gateway, of which tributary has left some out.
type fewerServers struct{}

var serversOf = regexp.MustCompile(`^listener 0\.0\.0\.0_443\.filter_chains\{[0-9]+\}\.filter_chain_match\.server_names: istiod has ` +
	`(.*), tributary (.*)$`)

func (fewerServers) MatchString(line string) bool {
	both := serversOf.FindStringSubmatch(line)
	return both != nil && !slices.ContainsFunc(strings.Fields(both[2]),
		func(name string) bool { return !slices.Contains(strings.Fields(both[1]), name) })
}

// otherAddresses is of domains that differ in addresses, or ranges of them.
type otherAddresses struct{}

var domainsOf = regexp.MustCompile(`^routes .*\.domains: istiod has (.*), tributary (.*)$`)

func (otherAddresses) MatchString(line string) bool {
	both := domainsOf.FindStringSubmatch(line)
	return both != nil && slices.Equal(names(both[1]), names(both[2]))
}

// shortNames is of domains that are the same but for names of services without all of the cluster's domain.
type shortNames struct{}

func (shortNames) MatchString(line string) bool {
	both := domainsOf.FindStringSubmatch(line)
	if both == nil {
		return false
	}
	ours := strings.Fields(both[2])
	rest := slices.DeleteFunc(strings.Fields(both[1]), func(d string) bool {
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
func excused(line string, of compared) bool {
	for _, d := range different {
		if (d.of == nil || d.of(of)) && d.line.MatchString(line) {
			return true
		}
	}
	return false
}
