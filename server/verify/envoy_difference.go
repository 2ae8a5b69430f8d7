package verify

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"tributary/internal/words"
	"tributary/resource"
)

// CompareEnvoy returns the differences between an Envoy's configuration and the expected one in key order, and the
// number of compared resources. Both sides have to be snapshots of the same moment.
func CompareEnvoy(expected *Expected, theirs *Dump) ([]Finding, int, error) {
	ours, err := ParseDump(expected.Dump)
	if err != nil {
		return nil, 0, fmt.Errorf("served configuration: %w", err)
	}
	differences := comparison{expected: expected, ours: ours, theirs: theirs}
	for _, kind := range []resource.Kind{cluster, listener} {
		if theirs.subscribed[kind] {
			differences.compareKind(kind, differences.requiredNames(kind))
		}
	}
	differences.compareKind(routes, differences.routeNames())
	differences.compareKind(secret, differences.secretNames())
	differences.compareEndpoints()
	slices.SortStableFunc(differences.findings, func(a, b Finding) int { return a.Key().Compare(b.Key()) })
	return differences.findings, differences.compared, nil
}

// comparison compares an Envoy's resources with the expected ones.
type comparison struct {
	expected     *Expected
	ours, theirs *Dump
	findings     []Finding
	compared     int
}

// add adds a finding. If the Envoy reported an error about the resource, the error is the reason.
func (c *comparison) add(class Class, kind resource.Kind, name, reason string) {
	if text := c.rejection(kind, name); text != "" && class != Extra && class != Rejected {
		class, reason = Rejected, text
	}
	c.findings = append(c.findings, Finding{Class: class, Kind: kind, Name: name, Reason: reason})
}

// rejection returns the Envoy's newest error about a resource. An error about the kind counts, too, if its text names
// the resource or no expected resource.
func (c *comparison) rejection(kind resource.Kind, name string) (message string) {
	for _, refusal := range c.expected.Refusals {
		matches := refusal.Resource == name
		if refusal.Resource == "" {
			matches = strings.Contains(refusal.Error, name) || !c.namesAny(kind, refusal.Error)
		}
		if matches && typeKind(refusal.TypeURL) == kind {
			message = refusal.Error
		}
	}
	return message
}

// namesAny reports whether a text names an expected resource of a kind.
func (c *comparison) namesAny(kind resource.Kind, text string) bool {
	for name := range c.ours.resources[kind] {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// typeKind returns the kind of a type's resources.
func typeKind(typeURL string) resource.Kind {
	return resource.Kind(typeURL[strings.LastIndexByte(typeURL, '.')+1:])
}

// requiredNames returns the names of a kind that the Envoy has to have. If it requests clusters on demand, only those
// that it has are required.
func (c *comparison) requiredNames(kind resource.Kind) map[string]bool {
	names := make(map[string]bool)
	for name := range c.ours.resources[kind] {
		if _, present := c.theirs.resources[kind][name]; present || kind != cluster || !c.expected.OnDemand {
			names[name] = true
		}
	}
	return names
}

// routeNames returns the names of the routes that the Envoy's listeners refer to.
func (c *comparison) routeNames() map[string]bool {
	names := make(map[string]bool)
	for name, entry := range c.ours.resources[listener] {
		if counterpart := c.theirs.resources[listener][name]; counterpart != nil && counterpart.body != nil {
			entry, _ := entry.body.(*listenerv3.Listener)
			addReferencedRoutes(names, entry)
		}
	}
	return names
}

// addReferencedRoutes adds the names of the routes that a listener subscribes to.
func addReferencedRoutes(names map[string]bool, listener *listenerv3.Listener) {
	for _, chain := range append(slices.Clone(listener.GetFilterChains()), listener.GetDefaultFilterChain()) {
		for _, filter := range chain.GetFilters() {
			var manager hcmv3.HttpConnectionManager
			if filter.GetTypedConfig().MessageIs(&manager) && filter.GetTypedConfig().UnmarshalTo(&manager) == nil &&
				manager.GetRds() != nil {
				names[manager.GetRds().GetRouteConfigName()] = true
			}
		}
	}
}

// secretNames returns the names of the expected secrets that the Envoy has. Its dump does not list subscriptions to
// other secrets.
func (c *comparison) secretNames() map[string]bool {
	names := make(map[string]bool)
	for name := range c.ours.resources[secret] {
		if c.theirs.resources[secret][name] != nil {
			names[name] = true
		}
	}
	return names
}

// compareKind compares the required resources of a kind, and then the rest of the Envoy's.
func (c *comparison) compareKind(kind resource.Kind, required map[string]bool) {
	for name := range required {
		if expected := c.ours.resources[kind][name]; expected != nil {
			c.compared++
			c.compareEntry(kind, name, expected, c.theirs.resources[kind][name])
		}
	}
	for name, dumped := range c.theirs.resources[kind] {
		switch expected := c.ours.resources[kind][name]; {
		case required[name]:
		case expected != nil && dumped.body != nil: // no longer required, and the Envoy still has it
			c.compareEntry(kind, name, expected, dumped)
		case dumped.rejection != "" && dumped.body == nil:
			c.add(Rejected, kind, name, dumped.rejection)
		case isServedVersion(dumped.version):
			c.add(Stale, kind, name, "it is no longer served, and the Envoy still has it")
		default:
			c.add(Extra, kind, name, "another server sent it to this Envoy")
		}
	}
}

// compareEntry compares an expected resource with the Envoy's.
func (c *comparison) compareEntry(kind resource.Kind, name string, expected, dumped *dumpEntry) {
	switch {
	case dumped != nil && dumped.rejection != "":
		c.add(Rejected, kind, name, dumped.rejection)
	case dumped != nil && dumped.warming:
		c.add(Warming, kind, name, "it waits for resources that it refers to: "+dependencies[kind])
	case dumped == nil:
		c.add(Missing, kind, name, c.whyMissing())
	case kind == secret:
		if c.theirs.Delta && expected.version != dumped.version {
			c.addOutdated(kind, name, expected, dumped)
		}
	case dumped.err != nil:
		c.add(Different, kind, name, "the Envoy's resource cannot be read: "+dumped.err.Error())
	case kind == routes:
		c.compareRoutes(name, expected, dumped)
	case !proto.Equal(expected.body, dumped.body):
		c.addOutdated(kind, name, expected, dumped)
	}
}

// dependencies are the resources that a resource of a kind may wait for.
var dependencies = map[resource.Kind]string{
	cluster: "endpoints, or secrets", listener: "routes, or secrets", secret: "files",
}

func (c *comparison) whyMissing() string {
	if !c.expected.Connected {
		return "no client of its id is connected"
	}
	return "it may be on its way; if it stays so, something in between holds it back"
}

// addOutdated adds a finding for a resource with other content. The Envoy's version shows if this server sent it
// earlier.
func (c *comparison) addOutdated(kind resource.Kind, name string, expected, dumped *dumpEntry) {
	switch {
	case c.theirs.Delta && expected.version == dumped.version && kind != secret && !c.expected.OnDemand:
		c.add(Different, kind, name, "the Envoy shows other content than it was sent")
	case isServedVersion(dumped.version):
		c.add(Stale, kind, name, "the Envoy has the earlier version "+dumped.version+c.disconnectedNote())
	default:
		c.add(Different, kind, name, fmt.Sprintf("another server sent it, with version %q", dumped.version))
	}
}

// disconnectedNote explains an old version if the Envoy is not connected.
func (c *comparison) disconnectedNote() string {
	if c.expected.Connected {
		return ""
	}
	return ", and no client of its id is connected"
}

// versionFormat matches the versions of this program: of a resource, or of a type's state.
var versionFormat = regexp.MustCompile(`^[A-Za-z0-9_-]{16}([A-Za-z0-9_-]{6})?$`)

func isServedVersion(version string) bool { return versionFormat.MatchString(version) }

// compareRoutes compares routes. With VHDS it compares only the virtual hosts that the Envoy has requested.
func (c *comparison) compareRoutes(name string, expectedEntry, dumpedEntry *dumpEntry) {
	expected, expectedOK := expectedEntry.body.(*routev3.RouteConfiguration)
	dumped, dumpedOK := dumpedEntry.body.(*routev3.RouteConfiguration)
	if !expectedOK || !dumpedOK || expected.GetVhds() == nil || dumped.GetVhds() == nil {
		if !proto.Equal(expectedEntry.body, dumpedEntry.body) {
			c.addOutdated(routes, name, expectedEntry, dumpedEntry)
		}
		return
	}
	hosts := make(map[string]*routev3.VirtualHost, len(expected.GetVirtualHosts()))
	for _, host := range expected.GetVirtualHosts() {
		hosts[host.GetName()] = host
	}
	for _, host := range dumped.GetVirtualHosts() {
		c.compared++
		switch expected := hosts[host.GetName()]; {
		case expected == nil:
			c.add(Stale, virtualHost, host.GetName(), "it is no longer served, and the Envoy still has it"+c.disconnectedNote())
		case !proto.Equal(expected, host):
			c.add(Stale, virtualHost, host.GetName(), "the Envoy has an earlier one"+c.disconnectedNote())
		}
	}
	expected, dumped = proto.CloneOf(expected), proto.CloneOf(dumped)
	expected.VirtualHosts, dumped.VirtualHosts = nil, nil
	if !proto.Equal(expected, dumped) {
		c.addOutdated(routes, name, expectedEntry, dumpedEntry)
	}
}

// compareEndpoints compares the endpoints of the Envoy's EDS clusters.
func (c *comparison) compareEndpoints() {
	for name, entry := range c.theirs.resources[cluster] {
		dumpedCluster, _ := entry.body.(*clusterv3.Cluster)
		served := c.ours.resources[cluster][name]
		if served == nil || entry.warming || dumpedCluster.GetType() != clusterv3.Cluster_EDS {
			continue
		}
		name = cmp.Or(dumpedCluster.GetEdsClusterConfig().GetServiceName(), name)
		expectedEntry := c.ours.resources[endpoints][name]
		if expectedEntry == nil {
			continue // the cluster itself differs
		}
		c.compared++
		dumpedEntry := c.theirs.resources[endpoints][name]
		if dumpedEntry == nil {
			c.add(Missing, endpoints, name, c.whyMissing())
			continue
		}
		expected, _ := expectedEntry.body.(*endpointv3.ClusterLoadAssignment)
		dumped, _ := dumpedEntry.body.(*endpointv3.ClusterLoadAssignment)
		if reason := endpointDifference(expected, dumped); reason != "" && isServedVersion(entry.version) {
			c.add(Stale, endpoints, name, reason+c.disconnectedNote())
		} else if reason != "" {
			c.add(Different, endpoints, name, reason)
		}
	}
}

// endpointState has the settings of an endpoint that an Envoy dumps as it received them.
type endpointState struct {
	weight         uint32
	localityWeight uint32
	locality       string
	drained        bool // the control plane marks it as not accepting requests
}

// endpointStates returns the endpoints by address and priority. The first of several with one address counts, as in
// Envoy, which also drops priorities and localities without endpoints.
func endpointStates(assignment *endpointv3.ClusterLoadAssignment) map[string]endpointState {
	states := make(map[string]endpointState)
	for _, group := range assignment.GetEndpoints() {
		locality := group.GetLocality()
		for _, endpoint := range group.GetLbEndpoints() {
			address := addressOf(endpoint.GetEndpoint().GetAddress())
			if priority := group.GetPriority(); priority > 0 {
				address += fmt.Sprintf(" (priority %d)", priority)
			}
			if _, duplicate := states[address]; duplicate {
				continue
			}
			states[address] = endpointState{
				weight:         max(endpoint.GetLoadBalancingWeight().GetValue(), 1),
				localityWeight: group.GetLoadBalancingWeight().GetValue(),
				locality:       strings.Join([]string{locality.GetRegion(), locality.GetZone(), locality.GetSubZone()}, "/"),
				drained: endpoint.GetHealthStatus() != corev3.HealthStatus_UNKNOWN &&
					endpoint.GetHealthStatus() != corev3.HealthStatus_HEALTHY,
			}
		}
	}
	return states
}

func addressOf(address *corev3.Address) string {
	if path := address.GetPipe().GetPath(); path != "" {
		return path
	}
	socket := address.GetSocketAddress()
	return fmt.Sprintf("%s:%d", socket.GetAddress(), socket.GetPortValue())
}

// endpointDifference describes how an Envoy's endpoints differ from the expected ones. It is empty if they are equal.
// An endpoint that only Envoy itself considers unhealthy is no difference.
func endpointDifference(expected, dumped *endpointv3.ClusterLoadAssignment) string {
	expectedStates, dumpedStates := endpointStates(expected), endpointStates(dumped)
	var missing, changed, stale []string
	for address, state := range expectedStates {
		dumpedState, ok := dumpedStates[address]
		dumpedState.drained = dumpedState.drained && state.drained
		switch {
		case !ok:
			missing = append(missing, address)
		case dumpedState != state:
			changed = append(changed, address)
		}
	}
	for address := range dumpedStates {
		if _, ok := expectedStates[address]; !ok {
			stale = append(stale, address)
		}
	}
	var parts []string
	for verb, addresses := range map[string][]string{"lacks": missing, "has otherwise": changed, "still has": stale} {
		if len(addresses) > 0 {
			parts = append(parts, "the Envoy "+verb+" "+listAddresses(addresses))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// maxAddresses limits the addresses in a reason.
const maxAddresses = 3

func listAddresses(addresses []string) string {
	slices.Sort(addresses)
	if rest := len(addresses) - maxAddresses; rest > 0 {
		return strings.Join(addresses[:maxAddresses], ", ") + " and " + words.Count(rest, "other", "others")
	}
	return strings.Join(addresses, ", ")
}
