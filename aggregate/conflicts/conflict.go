package conflicts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tributary/resource"
)

// Rule names a kind of conflict between resources of different keys.
type Rule string

// The rules of istiod, as read in pilot/pkg/model (push_context.go, sidecar.go, destination_rule.go) and
// pilot/pkg/networking/core (httproute.go, gateway.go) of Istio's master of April 2026.
const (
	// ServiceEntryPort: two ServiceEntries have the same host and port, and some namespace sees both.
	ServiceEntryPort Rule = "service-entry-port"
	// ServiceEntryShape: two ServiceEntries of a namespace have the same host and different ports, and differ in fields
	// that must be equal before istiod joins them.
	ServiceEntryShape Rule = "service-entry-shape"
	// VirtualServiceMesh: two VirtualServices have the same host for sidecars, and some namespace sees both.
	VirtualServiceMesh Rule = "virtual-service-mesh"
	// VirtualServiceGateway: two VirtualServices have the same host on the same gateway.
	VirtualServiceGateway Rule = "virtual-service-gateway"
	// DestinationRuleNamespace: two DestinationRules of a namespace are for the same host and workloads.
	DestinationRuleNamespace Rule = "destination-rule-namespace"
	// DestinationRuleHost: DestinationRules of several namespaces are for the same host, and some namespace sees both.
	DestinationRuleHost Rule = "destination-rule-host"
	// Two objects of a namespace are for all its workloads, or for the same ones. The codes are those of istioctl analyze,
	// which reports such conflicts as errors.
	PeerAuthenticationNamespace Rule = "peer-authentication-namespace"
	PeerAuthenticationWorkloads Rule = "peer-authentication-workloads"
	ProxyConfigNamespace        Rule = "proxy-config-namespace"
	ProxyConfigWorkloads        Rule = "proxy-config-workloads"
	SidecarNamespace            Rule = "IST0111" // MultipleSidecarsWithoutWorkloadSelectors
	SidecarWorkloads            Rule = "IST0110" // ConflictingSidecarWorkloadSelectors
	TelemetryNamespace          Rule = "IST0160" // MultipleTelemetriesWithoutWorkloadSelectors
	TelemetryWorkloads          Rule = "IST0159" // ConflictingTelemetryWorkloadSelectors
)

// IsError reports whether istioctl analyze reports the conflict as an error.
func (r Rule) IsError() bool { return strings.HasPrefix(string(r), "IST") }

// MergeEndpoints means that ServiceEntries of sources with merged endpoints cannot be merged: the first in order of
// precedence is served, the others are not. Package aggregate finds these.
const MergeEndpoints Rule = "merge-endpoints"

// Conflict is one thing that several resources claim.
type Conflict struct {
	Rule    Rule   `json:"rule"`
	Host    string `json:"host,omitempty"` // none for workloads
	Subject string `json:"subject"`        // such as a host and port, or a host on a gateway
	Objects []Ref  `json:"objects"`        // in istiod's order: by age, name and namespace
	Message string `json:"message"`        // istiod's behaviour
}

// Ref names an object.
type Ref = resource.Ref

// conflictOf returns the conflict between claimants of one subject, or false if there is none.
func conflictOf(disputed claim, claimants []*claimant) (Conflict, bool) {
	claimants = slices.SortedFunc(slices.Values(claimants), byAge)
	_, forWorkloads := workloadRules[claimants[0].res.Key().Kind]
	if forWorkloads {
		disputed.host = ""
	}
	switch {
	case disputed.rule == ServiceEntryShape:
		claimants = unjoinable(claimants)
	case forWorkloads:
		claimants = readTogether(claimants)
	case disputed.rule == DestinationRuleNamespace: // they are in one namespace
	case disputed.rule == DestinationRuleHost:
		if sameNamespace(claimants) { // see DestinationRuleNamespace
			return Conflict{}, false
		}
		claimants = seenTogether(claimants)
	default:
		claimants = seenTogether(claimants)
	}
	if len(claimants) < 2 {
		return Conflict{}, false
	}
	conflict := Conflict{
		Rule: disputed.rule, Host: disputed.host, Subject: disputed.subject, Message: message(disputed.rule, claimants),
	}
	for _, claimant := range claimants {
		conflict.Objects = append(conflict.Objects, Ref(claimant.res.Key()))
	}
	return conflict, true
}

// readTogether returns the claimants that an istiod reads together with another one.
func readTogether(claimants []*claimant) []*claimant {
	revision := func(c *claimant) string { return c.res.Labels()[resource.RevisionLabel] }
	return slices.DeleteFunc(slices.Clone(claimants), func(c *claimant) bool {
		return !slices.ContainsFunc(claimants, func(rival *claimant) bool {
			return rival != c && (revision(c) == "" || revision(rival) == "" || revision(c) == revision(rival))
		})
	})
}

// message tells how istiod treats claimants, which are in its order.
func message(rule Rule, claimants []*claimant) string {
	first, rest := claimants[0].res.Key().FullName(), fullNames(claimants[1:])
	switch rule {
	case ServiceEntryPort:
		if sameNamespace(claimants) {
			return fmt.Sprintf("istiod serves the endpoints of all of them under the host; protocol, resolution and "+
				"addresses are those of %s, "+
				"%s, not of %s", first, claimants[0].rank(claimants[1:]), rest)
		}
		return "a proxy uses the ServiceEntry of its own namespace if there is one, else " + firstSeen(claimants) +
			"; it ignores the others, endpoints included"
	case ServiceEntryShape:
		return fmt.Sprintf("istiod does not join the ports of %s to those of %s, %s: labels, resolution, exportTo or "+
			"workload selector "+
			"differ; proxies do not get them", rest, first, claimants[0].rank(claimants[1:]))
	case VirtualServiceMesh:
		return "for HTTP, a sidecar uses the routes of " + firstSeen(claimants) + ", and ignores those of the others"
	case VirtualServiceGateway:
		return fmt.Sprintf("the gateway has the HTTP routes of all of them, those of %s first, then those of %s; a "+
			"catch-all route goes last",
			first, rest)
	case DestinationRuleNamespace:
		return fmt.Sprintf("where their exportTo is the same, istiod merges them: the traffic policy is that of %s, %s, "+
			"or of the next that has one, and of subsets of one name the first counts; %s only adds", first,
			claimants[0].rank(claimants[1:]), rest)
	case DestinationRuleHost:
		return "a proxy uses the rule of its own namespace, else that of the service's namespace, else that of the root " +
			"namespace; it never " +
			"merges them"
	case TelemetryWorkloads:
		youngest := claimants[len(claimants)-1].res.Key().FullName()
		return fmt.Sprintf("istiod applies them in this order: settings of %s replace those before it", youngest)
	default:
		return fmt.Sprintf("istiod uses %s, %s, and ignores %s", first, claimants[0].rank(claimants[1:]), rest)
	}
}

// firstSeen describes the claimant that a proxy sees first: istiod lists objects exported to single namespaces before
// public ones, each in its order.
func firstSeen(claimants []*claimant) string {
	i := slices.IndexFunc(claimants, func(c *claimant) bool { return c.public })
	if i < 0 {
		return "the first of those exported to it: " + claimants[0].rank(claimants[1:])
	}
	public := claimants[i].res.Key().FullName()
	if slices.ContainsFunc(claimants, func(c *claimant) bool { return !c.public }) {
		return "the first of those exported to its namespace by name, or, without one, " + public + ", the first public one"
	}
	return public + ", " + claimants[i].rank(claimants[i+1:])
}

// seenTogether returns the claimants that some namespace sees together with another, in the given order.
func seenTogether(claimants []*claimant) []*claimant {
	public, indexes := 0, make(map[string]int)
	for _, claimant := range claimants {
		if claimant.public {
			public++
		}
		for _, namespace := range claimant.visible {
			indexes[namespace]++
		}
	}
	var seen []*claimant
	for _, claimant := range claimants {
		switch {
		case claimant.public && (public > 1 || len(indexes) > 0),
			len(claimant.visible) > 0 && public > 0,
			slices.ContainsFunc(claimant.visible, func(namespace string) bool { return indexes[namespace] > 1 }):
			seen = append(seen, claimant)
		}
	}
	return seen
}

// unjoinable returns the oldest claimant, and those that istiod does not join to it.
func unjoinable(claimants []*claimant) []*claimant {
	separate := claimants[:1:1]
	for _, c := range claimants[1:] {
		if c.shape != claimants[0].shape {
			separate = append(separate, c)
		}
	}
	return separate
}

func sameNamespace(claimants []*claimant) bool {
	return !slices.ContainsFunc(claimants, func(c *claimant) bool {
		return c.res.Key().Namespace != claimants[0].res.Key().Namespace
	})
}

func fullNames(claimants []*claimant) string {
	var names []string
	for _, c := range claimants {
		names = append(names, c.res.Key().FullName())
	}
	return strings.Join(names, ", ")
}

// Compare orders conflicts by rule and subject.
func Compare(a, b Conflict) int {
	return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Subject, b.Subject))
}
