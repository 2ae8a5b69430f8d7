package verify

import (
	"cmp"
	"fmt"
	"maps"
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

// CompareEnvoy returns, in order, the differences between an Envoy's configuration and the expected one, and how many things it compared.
// Both are taken to be of one moment.
func CompareEnvoy(expected *Expected, theirs *Dump) ([]Finding, int, error) {
	ours, err := ParseDump(expected.Dump)
	if err != nil {
		return nil, 0, fmt.Errorf("what is served: %w", err)
	}
	d := difference{expected: expected, ours: ours, theirs: theirs}
	for _, kind := range []resource.Kind{cluster, listener} {
		if theirs.asks[kind] {
			d.all(kind, d.wanted(kind))
		}
	}
	d.all(routes, d.routes())
	d.all(secret, d.secrets())
	d.endpoints()
	slices.SortStableFunc(d.found, func(a, b Finding) int { return a.Key().Compare(b.Key()) })
	return d.found, d.compared, nil
}

// difference is that between what an Envoy has and what it is to be expected.
type difference struct {
	expected     *Expected
	ours, theirs *Dump
	found        []Finding
	compared     int
}

func (d *difference) add(class Class, kind resource.Kind, name, reason string) {
	if text := d.refusal(kind, name); text != "" && class != Extra && class != Rejected {
		class, reason = Rejected, text
	}
	d.found = append(d.found, Finding{Class: class, Kind: kind, Name: name, Reason: reason})
}

// refusal returns the Envoy's newest error about resources of a kind that names name, or names no resource at all.
func (d *difference) refusal(kind resource.Kind, name string) (said string) {
	for _, r := range d.expected.Refusals {
		if kindOf(r.TypeURL) == kind && (r.Resource == name || r.Resource == "" && (strings.Contains(r.Error, name) || !d.names(kind, r.Error))) {
			said = r.Error
		}
	}
	return said
}

// names says whether a text names anything that the Envoy is to have of a kind.
func (d *difference) names(kind resource.Kind, text string) bool {
	for name := range d.ours.has[kind] {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// kindOf is the kind of a type's resources.
func kindOf(typeURL string) resource.Kind {
	return resource.Kind(typeURL[strings.LastIndexByte(typeURL, '.')+1:])
}

// wanted are the names of a kind of which the Envoy is to have all; of clusters on demand those for which it asked.
func (d *difference) wanted(kind resource.Kind) map[string]bool {
	names := make(map[string]bool)
	for name := range d.ours.has[kind] {
		if _, has := d.theirs.has[kind][name]; has || kind != cluster || !d.expected.OnDemand {
			names[name] = true
		}
	}
	return names
}

// routes are the names of those to which listeners lead that the Envoy has.
func (d *difference) routes() map[string]bool {
	names := make(map[string]bool)
	for name, l := range d.ours.has[listener] {
		if their := d.theirs.has[listener][name]; their != nil && their.body != nil {
			l, _ := l.body.(*listenerv3.Listener)
			for route := range routesOf(l) {
				names[route] = true
			}
		}
	}
	return names
}

// routesOf are the routes for which those ask who have a listener.
func routesOf(l *listenerv3.Listener) map[string]bool {
	names := make(map[string]bool)
	for _, chain := range append(slices.Clone(l.GetFilterChains()), l.GetDefaultFilterChain()) {
		for _, f := range chain.GetFilters() {
			var manager hcmv3.HttpConnectionManager
			if f.GetTypedConfig().MessageIs(&manager) && f.GetTypedConfig().UnmarshalTo(&manager) == nil && manager.GetRds() != nil {
				names[manager.GetRds().GetRouteConfigName()] = true
			}
		}
	}
	return names
}

// secrets are the names of those that the Envoy has asked for, as far as it tells.
func (d *difference) secrets() map[string]bool {
	names := make(map[string]bool)
	for name := range d.ours.has[secret] {
		if d.theirs.has[secret][name] != nil {
			names[name] = true
		}
	}
	return names
}

// all compares all of a kind: what is wanted, and what the Envoy has besides.
func (d *difference) all(kind resource.Kind, wanted map[string]bool) {
	for name := range wanted {
		if ours := d.ours.has[kind][name]; ours != nil {
			d.compared++
			d.one(kind, name, ours, d.theirs.has[kind][name])
		}
	}
	for name, their := range d.theirs.has[kind] {
		switch ours := d.ours.has[kind][name]; {
		case wanted[name]:
		case ours != nil && their.body != nil: // it does not have to have it any more
			d.one(kind, name, ours, their)
		case their.refused != "" && their.body == nil:
			d.add(Rejected, kind, name, their.refused)
		case isOurs(their.version):
			d.add(Stale, kind, name, "it is no longer served, and the Envoy has not dropped it")
		default:
			d.add(Extra, kind, name, "another server sent it to this Envoy")
		}
	}
}

// one compares one thing that is served and that the Envoy is to have.
func (d *difference) one(kind resource.Kind, name string, ours, their *part) {
	switch {
	case their != nil && their.refused != "":
		d.add(Rejected, kind, name, their.refused)
	case their != nil && their.warming:
		d.add(Warming, kind, name, "it is not in force before what it refers to has come: "+waitsFor(kind))
	case their == nil:
		d.add(Missing, kind, name, d.whyMissing())
	case kind == secret:
		if d.theirs.Delta && ours.version != their.version {
			d.older(kind, name, ours, their)
		}
	case their.err != nil:
		d.add(Different, kind, name, "what the Envoy has cannot be read: "+their.err.Error())
	case kind == routes:
		d.routing(name, ours, their)
	case !proto.Equal(ours.body, their.body):
		d.older(kind, name, ours, their)
	}
}

func waitsFor(kind resource.Kind) string {
	switch kind {
	case cluster:
		return "endpoints, or secrets"
	case listener:
		return "routes, or secrets"
	}
	return "files"
}

func (d *difference) whyMissing() string {
	if !d.expected.Connected {
		return "no client of its id is connected"
	}
	return "it may be on its way; if it stays so, something in between holds it back"
}

// older says that the Envoy has something else than is served, which its version tells from what.
func (d *difference) older(kind resource.Kind, name string, ours, their *part) {
	switch {
	case d.theirs.Delta && ours.version == their.version && kind != secret && !d.expected.OnDemand:
		d.add(Different, kind, name, "the Envoy shows other content than it was sent")
	case isOurs(their.version):
		d.add(Stale, kind, name, "the Envoy has the earlier version "+their.version+d.away())
	default:
		d.add(Different, kind, name, fmt.Sprintf("another server sent it, with version %q", their.version))
	}
}

func (d *difference) away() string {
	if d.expected.Connected {
		return ""
	}
	return ", and no client of its id is connected"
}

// form is of versions as this program makes them: of a resource, or of all of a type.
var form = regexp.MustCompile(`^[A-Za-z0-9_-]{16}([A-Za-z0-9_-]{6})?$`)

func isOurs(version string) bool { return form.MatchString(version) }

// routing compares routes. Virtual hosts that are asked for one by one are those that the Envoy has asked for.
func (d *difference) routing(name string, ours, their *part) {
	our, isRoutes := ours.body.(*routev3.RouteConfiguration)
	has, hasRoutes := their.body.(*routev3.RouteConfiguration)
	if !isRoutes || !hasRoutes || our.GetVhds() == nil || has.GetVhds() == nil {
		if !proto.Equal(ours.body, their.body) {
			d.older(routes, name, ours, their)
		}
		return
	}
	hosts := make(map[string]*routev3.VirtualHost, len(our.GetVirtualHosts()))
	for _, v := range our.GetVirtualHosts() {
		hosts[v.GetName()] = v
	}
	for _, v := range has.GetVirtualHosts() {
		d.compared++
		switch our := hosts[v.GetName()]; {
		case our == nil:
			d.add(Stale, virtualHost, v.GetName(), "it is no longer served, and the Envoy has not dropped it"+d.away())
		case !proto.Equal(our, v):
			d.add(Stale, virtualHost, v.GetName(), "the Envoy has an earlier one"+d.away())
		}
	}
	our, has = proto.CloneOf(our), proto.CloneOf(has)
	our.VirtualHosts, has.VirtualHosts = nil, nil
	if !proto.Equal(our, has) {
		d.older(routes, name, ours, their)
	}
}

// endpoints compares those of clusters that the Envoy has, and for whose endpoints it asks.
func (d *difference) endpoints() {
	for name, c := range d.theirs.has[cluster] {
		their, _ := c.body.(*clusterv3.Cluster)
		served := d.ours.has[cluster][name]
		if served == nil || c.warming || their.GetType() != clusterv3.Cluster_EDS {
			continue
		}
		if from := their.GetEdsClusterConfig().GetServiceName(); from != "" {
			name = from
		}
		ours := d.ours.has[endpoints][name]
		if ours == nil {
			continue // the cluster itself is another one
		}
		d.compared++
		has := d.theirs.has[endpoints][name]
		if has == nil {
			d.add(Missing, endpoints, name, d.whyMissing())
			continue
		}
		our, _ := ours.body.(*endpointv3.ClusterLoadAssignment)
		members, _ := has.body.(*endpointv3.ClusterLoadAssignment)
		if said := membersDiffer(our, members); said != "" && isOurs(c.version) {
			d.add(Stale, endpoints, name, said+d.away())
		} else if said != "" {
			d.add(Different, endpoints, name, said)
		}
	}
}

// member is an endpoint as far as Envoy shows it as it was expected.
type member struct {
	weight, local uint32 // of itself, and of its locality
	locality      string
	drained       bool // it is said not to take requests
}

// members are endpoints by priority and address, of which each counts once. Envoy leaves a priority or locality without endpoints away.
func members(a *endpointv3.ClusterLoadAssignment) map[string]member {
	all := make(map[string]member)
	for _, l := range a.GetEndpoints() {
		place := l.GetLocality()
		for _, e := range l.GetLbEndpoints() {
			address := addressOf(e.GetEndpoint().GetAddress())
			if priority := l.GetPriority(); priority > 0 {
				address += fmt.Sprintf(" (priority %d)", priority)
			}
			if _, twice := all[address]; twice {
				continue
			}
			all[address] = member{
				weight: max(e.GetLoadBalancingWeight().GetValue(), 1), local: l.GetLoadBalancingWeight().GetValue(),
				locality: strings.Join([]string{place.GetRegion(), place.GetZone(), place.GetSubZone()}, "/"),
				drained:  e.GetHealthStatus() != corev3.HealthStatus_UNKNOWN && e.GetHealthStatus() != corev3.HealthStatus_HEALTHY,
			}
		}
	}
	return all
}

func addressOf(a *corev3.Address) string {
	if path := a.GetPipe().GetPath(); path != "" {
		return path
	}
	s := a.GetSocketAddress()
	return fmt.Sprintf("%s:%d", s.GetAddress(), s.GetPortValue())
}

// membersDiffer says in words how the endpoints that an Envoy has differ from those that it should have; nothing if they do not. That Envoy
// itself takes one for unhealthy is no difference.
func membersDiffer(ours, theirs *endpointv3.ClusterLoadAssignment) string {
	served, has := members(ours), members(theirs)
	var lacks, others, gone []string
	for address, m := range served {
		their, ok := has[address]
		their.drained = their.drained && m.drained
		switch {
		case !ok:
			lacks = append(lacks, address)
		case their != m:
			others = append(others, address)
		}
	}
	for address := range maps.Keys(has) {
		if _, ok := served[address]; !ok {
			gone = append(gone, address)
		}
	}
	var said []string
	for what, of := range map[string][]string{"lacks": lacks, "has otherwise": others, "still has": gone} {
		if len(of) > 0 {
			said = append(said, "the Envoy "+what+" "+some(of))
		}
	}
	slices.Sort(said)
	return strings.Join(said, "; ")
}

// maxSaid is how many addresses a reason has.
const maxSaid = 3

func some(all []string) string {
	slices.SortFunc(all, cmp.Compare[string])
	if more := len(all) - maxSaid; more > 0 {
		return strings.Join(all[:maxSaid], ", ") + " and " + words.Count(more, "other", "others")
	}
	return strings.Join(all, ", ")
}
