package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"tributary/internal/words"
)

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
