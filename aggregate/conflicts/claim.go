package conflicts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/resource"
)

// HostsOf returns the hosts that r names, completed and in lower case, as in the index. Those of a kind that is for
// workloads are the workloads.
func HostsOf(r *resource.Resource) []string {
	if c := claimantOf(r); c != nil {
		return c.hosts
	}
	return nil
}

// meshGateway is the gateway name that binds a VirtualService to the sidecars.
const meshGateway = "mesh"

// clusterDomain completes host names without a dot, as istiod does by default.
const clusterDomain = "cluster.local"

// rootNamespace has the objects for all namespaces, as in istiod by default.
const rootNamespace = "istio-system"

// claim is one thing a resource competes for.
type claim struct {
	rule    Rule
	host    string
	subject string // as in messages; claims of the same rule and subject compete
}

// claimant is a resource with its claims and visibility.
type claimant struct {
	res    *resource.Resource
	hosts  []string
	claims []claim
	// public: every namespace sees it; otherwise only those in visible do, which may be none.
	public  bool
	visible []string
	// shape must be equal for istiod to join the ports of two ServiceEntries of a host.
	shape string
	// selector selects the workloads of a DestinationRule, if not all.
	selector string
	precedes bool // istiod prefers a Sidecar with an empty selector to those without a selector
}

// kinds lists the kinds that have competing resources.
var kinds = append([]resource.Kind{resource.ServiceEntry, resource.VirtualService, resource.DestinationRule},
	slices.Collect(maps.Keys(workloadRules))...)

// workloadRules are the rules of kinds for workloads: a namespace has one effective object without a selector, and a
// selector one effective object.
var workloadRules = map[resource.Kind]struct{ namespace, workloads Rule }{
	resource.PeerAuthentication: {PeerAuthenticationNamespace, PeerAuthenticationWorkloads},
	resource.ProxyConfig:        {ProxyConfigNamespace, ProxyConfigWorkloads},
	resource.Sidecar:            {SidecarNamespace, SidecarWorkloads},
	resource.Telemetry:          {TelemetryNamespace, TelemetryWorkloads},
}

// claimantOf reads the claims of object. It returns nil if object can make none, or cannot be decoded.
func claimantOf(object *resource.Resource) *claimant {
	if !slices.Contains(kinds, object.Key().Kind) {
		return nil
	}
	spec, err := object.Spec()
	if err != nil {
		return nil // reported where it was read
	}
	result := &claimant{res: object}
	switch spec := spec.(type) {
	case *networking.ServiceEntry:
		result.serviceEntry(spec)
	case *networking.VirtualService:
		result.virtualService(spec)
	case *networking.DestinationRule:
		result.destinationRule(spec)
	case *networking.Sidecar:
		result.precedes = spec.GetWorkloadSelector() != nil && len(spec.GetWorkloadSelector().GetLabels()) == 0
		result.workloads(spec.GetWorkloadSelector().GetLabels())
	case *networkingv1beta1.ProxyConfig:
		if labels := spec.GetSelector().GetMatchLabels(); spec.GetSelector() == nil || len(labels) > 0 {
			result.workloads(labels)
		}
	case *telemetry.Telemetry:
		if spec.GetTargetRef() == nil && len(spec.GetTargetRefs()) == 0 {
			result.workloads(spec.GetSelector().GetMatchLabels())
		}
	case interface {
		GetSelector() *typev1beta1.WorkloadSelector
	}:
		result.workloads(spec.GetSelector().GetMatchLabels())
	}
	slices.SortFunc(result.claims, func(a, b claim) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.host, b.host), cmp.Compare(a.subject, b.subject))
	})
	result.claims = slices.Compact(result.claims) // a host or port may be given twice
	return result
}

func (c *claimant) serviceEntry(serviceEntry *networking.ServiceEntry) {
	c.setVisibility(serviceEntry.ExportTo)
	c.shape = fmt.Sprint(serviceEntry.Resolution, sorted(c.res.Labels()),
		sorted(serviceEntry.WorkloadSelector.GetLabels()), c.public,
		c.visible)
	for _, host := range serviceEntry.Hosts {
		host = strings.ToLower(host)
		c.hosts = append(c.hosts, host)
		for _, port := range serviceEntry.Ports {
			c.claim(ServiceEntryPort, host, fmt.Sprintf("%s:%d", host, port.Number))
		}
		c.claim(ServiceEntryShape, host, fmt.Sprintf("%s in namespace %s", host, c.res.Key().Namespace))
	}
}

func (c *claimant) virtualService(virtualService *networking.VirtualService) {
	c.setVisibility(virtualService.ExportTo)
	gateways := virtualService.Gateways
	if len(gateways) == 0 {
		gateways = []string{meshGateway}
	}
	for _, host := range virtualService.Hosts {
		host = FullHost(host, c.res.Key().Namespace)
		c.hosts = append(c.hosts, host)
		for _, gateway := range gateways {
			if gateway == meshGateway {
				c.claim(VirtualServiceMesh, host, host)
			} else {
				c.claim(VirtualServiceGateway, host, host+" on gateway "+fullGateway(gateway, c.res.Key().Namespace))
			}
		}
	}
}

func (c *claimant) destinationRule(destinationRule *networking.DestinationRule) {
	exportTo := destinationRule.ExportTo
	if destinationRule.WorkloadSelector != nil {
		exportTo = []string{"."} // as istiod sees it
		c.selector = fmt.Sprint(sorted(destinationRule.WorkloadSelector.MatchLabels))
	}
	c.setVisibility(exportTo)
	host := FullHost(destinationRule.Host, c.res.Key().Namespace)
	c.hosts = []string{host}
	subject := host
	if c.selector != "" {
		subject += " for workloads " + c.selector
	}
	c.claim(DestinationRuleNamespace, host, subject+" in namespace "+c.res.Key().Namespace)
	c.claim(DestinationRuleHost, host, subject)
}

// workloads claims the workloads of the namespace that have labels.
func (c *claimant) workloads(labels map[string]string) {
	key, rules := c.res.Key(), workloadRules[c.res.Key().Kind]
	rule, subject := rules.namespace, "all workloads of namespace "+key.Namespace
	if len(labels) > 0 {
		if key.Kind == resource.PeerAuthentication && key.Namespace == rootNamespace {
			return // istiod ignores it
		}
		rule, subject = rules.workloads, fmt.Sprintf("workloads %s of namespace %s", strings.Join(sorted(labels), ","),
			key.Namespace)
	}
	c.hosts = []string{subject}
	c.claim(rule, subject, subject)
}

func (c *claimant) claim(rule Rule, host, subject string) {
	c.claims = append(c.claims, claim{rule, host, subject})
}

// setVisibility sets which namespaces see the resource: all without exportTo, the default of MeshConfig.
func (c *claimant) setVisibility(exportTo []string) {
	switch {
	case len(exportTo) == 0 || slices.Contains(exportTo, "*"):
		c.public = true
	case slices.Contains(exportTo, "~"):
	default:
		for _, namespace := range exportTo {
			if namespace == "." {
				namespace = c.res.Key().Namespace
			}
			c.visible = append(c.visible, namespace)
		}
		slices.Sort(c.visible)
		c.visible = slices.Compact(c.visible)
	}
}

// rank names the claimant by the reason why istiod takes it before its rivals, which are in istiod's order. See
// resource.Resource.Ranked.
func (c *claimant) rank(rivals []*claimant) string {
	if len(rivals) == 0 {
		return "the only one"
	}
	first, second := c.res, rivals[0].res
	switch {
	case first.Created().Equal(second.Created()):
		return "the first by name"
	case first.Rank() < second.Rank():
		return "the one of the earlier source"
	case first.Own().IsZero() && !second.Own().IsZero():
		return "the one without a time of creation"
	default:
		return "the oldest"
	}
}

// byAge orders claimants as istiod does: by time of creation, which has the order of sources, then by name and
// namespace.
func byAge(first, second *claimant) int {
	if first.precedes != second.precedes {
		return map[bool]int{true: -1, false: +1}[first.precedes]
	}
	return cmp.Or(
		first.res.Created().Compare(second.res.Created()),
		cmp.Compare(first.res.Key().Name, second.res.Key().Name),
		cmp.Compare(first.res.Key().Namespace, second.res.Key().Namespace),
	)
}

// FullHost completes a short host name as istiod does.
func FullHost(host, namespace string) string {
	host = strings.ToLower(host)
	if host == "*" || strings.Contains(host, ".") || strings.Contains(host, ":") {
		return host
	}
	return host + "." + namespace + ".svc." + clusterDomain
}

// fullGateway returns "namespace/name".
func fullGateway(gateway, namespace string) string {
	gatewayNamespace, name, ok := strings.Cut(gateway, "/")
	switch {
	case !ok:
		return namespace + "/" + gateway
	case gatewayNamespace == ".":
		return namespace + "/" + name
	default:
		return gateway
	}
}

// sorted returns the labels as "key=value", in order of the keys.
func sorted(labels map[string]string) []string {
	var entries []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		entries = append(entries, key+"="+labels[key])
	}
	return entries
}
