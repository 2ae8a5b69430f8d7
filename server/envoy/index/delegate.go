package index

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// delegatePrefix marks the name of a delegate VirtualService among the targets of routes.
const delegatePrefix = "~delegate/"

// delegates returns the VirtualServices that a rule delegates to.
func (m *Mesh) delegates(
	rule *model.VirtualService,
) (rules []*model.VirtualService) {
	if !hasDelegates(rule) {
		return nil
	}
	for _, route := range rule.Spec.GetHttp() {
		if d := m.Delegate(route.GetDelegate(), rule.Key.Namespace); d != nil && !slices.Contains(rules, d) {
			rules = append(rules, d)
		}
	}
	return rules
}

// Delegate returns the VirtualService that a route delegates to, or nil.
func (m *Mesh) Delegate(delegate *networking.Delegate, namespace string) *model.VirtualService {
	rule := m.Virtuals.ByKey[resource.DelegateKey(delegate, namespace)]
	if delegate == nil || rule == nil || len(rule.Spec.GetHosts()) > 0 ||
		!model.VisibleTo(rule.ExportTo, rule.Key.Namespace, namespace) {
		return nil
	}
	return rule
}

func hasDelegates(rule *model.VirtualService) bool {
	return slices.ContainsFunc(rule.LeadsTo, func(host string) bool { return strings.HasPrefix(host, delegatePrefix) })
}

// mergedRule is a VirtualService with the routes of its delegates.
type mergedRule struct {
	rule     *model.VirtualService
	findings model.Findings
}

// mergedRules caches the merged VirtualServices by key. All hosts of a VirtualService share its result.
type mergedRules struct {
	mu    sync.Mutex
	byKey map[resource.Key]mergedRule
}

// withDelegates returns the VirtualService with the routes of its delegates in place of the routes that delegate. As
// with istiod, a delegate does not delegate any further, so that there are no circles. A route without its delegate,
// and a route of a delegate with a condition that no delegated request can meet, are left out.
func (m *Mesh) withDelegates(
	rule *model.VirtualService, findings *model.Findings,
) *model.VirtualService {
	if !hasDelegates(rule) {
		return rule
	}
	version := m.mergedVersion(rule)
	m.merged.mu.Lock()
	defer m.merged.mu.Unlock()
	result, cached := m.merged.byKey[rule.Key]
	if !cached || result.rule.Version != version {
		result = m.merge(rule, version)
		m.merged.byKey[rule.Key] = result
	}
	*findings = append(*findings, result.findings...)
	return result.rule
}

// mergedVersion identifies a VirtualService and its delegates.
func (m *Mesh) mergedVersion(rule *model.VirtualService) string {
	var version model.Digest
	version.Text(rule.Version)
	for i, route := range rule.Spec.GetHttp() {
		if d := m.Delegate(route.GetDelegate(), rule.Key.Namespace); d != nil {
			version.Number(int64(i))
			version.Object(d.Key)
			version.Text(d.Version)
		}
	}
	sum := sha256.Sum256(version)
	return string(sum[:])
}

func (m *Mesh) merge(root *model.VirtualService, version string) (result mergedRule) {
	rule := *root
	rule.Version = version
	rule.Spec = proto.CloneOf(root.Spec)
	rule.Spec.Http = nil
	for i, httpRoute := range root.Spec.GetHttp() {
		if httpRoute.GetDelegate() == nil {
			rule.Spec.Http, rule.Places = append(rule.Spec.Http, httpRoute), append(rule.Places, root.HttpRoute(i))
			continue
		}
		delegate := m.Delegate(httpRoute.GetDelegate(), root.Key.Namespace)
		if delegate == nil {
			continue
		}
		for j, route := range delegate.Spec.GetHttp() {
			if route.GetDelegate() != nil {
				continue
			}
			if route := delegated(completed(httpRoute, root), completed(route, delegate)); route != nil {
				rule.Spec.Http, rule.Places = append(rule.Spec.Http, route), append(rule.Places, delegate.HttpRoute(j))
			} else {
				result.findings.Note(delegate.HttpRoute(j),
					"some match of it is none of the route of VirtualService %s that delegates to it", root.Key.FullName())
			}
		}
	}
	rule.Uniform = !model.DependsOnClient(rule.Spec)
	result.rule = &rule
	return result
}

// completed returns a route of a rule with the full names of its destinations and gateways.
func completed(route *networking.HTTPRoute, rule *model.VirtualService) *networking.HTTPRoute {
	route = proto.CloneOf(route)
	for _, destination := range destinations(&networking.VirtualService{Http: []*networking.HTTPRoute{route}}) {
		destination.Host = rule.WholeName(destination.GetHost())
	}
	for _, match := range route.GetMatch() {
		for i, name := range match.GetGateways() {
			if name != model.MeshGateway {
				match.Gateways[i] = rule.WholeGateway(name)
			}
		}
	}
	return route
}

// delegated merges a route of a delegate into root, the route that delegates to it. It returns nil if a match of the
// delegate contradicts each match of root. The delegate's settings for requests take precedence over those of root.
func delegated(root, delegate *networking.HTTPRoute) *networking.HTTPRoute {
	result := proto.CloneOf(root)
	result.Delegate, result.Match = nil, nil
	override(result, delegate, "redirect", "directResponse", "rewrite", "timeout", "retries", "fault", "mirror", "mirrors",
		"mirrorPercent", "mirrorPercentage", "corsPolicy", "headers", "route")
	result.Name = joinedName(root, delegate)
	switch {
	case len(root.GetMatch()) == 0:
		result.Match = delegate.GetMatch()
		return result
	case len(delegate.GetMatch()) == 0:
		result.Match = root.GetMatch()
		return result
	}
	for _, b := range delegate.GetMatch() {
		before := len(result.GetMatch())
		for _, a := range root.GetMatch() {
			if merged := narrowed(a, b); merged != nil {
				result.Match = append(result.Match, merged)
			}
		}
		if len(result.GetMatch()) == before {
			return nil
		}
	}
	return result
}

// override sets fields to those that a delegate has.
func override[M proto.Message](out, delegate M, names ...string) {
	into, from := out.ProtoReflect(), proto.CloneOf(delegate).ProtoReflect()
	for _, name := range names {
		if f := into.Descriptor().Fields().ByJSONName(name); from.Has(f) {
			into.Set(f, from.Get(f))
		}
	}
}

// joinedName joins the names of a route or match and of its delegate.
func joinedName(root, delegate interface{ GetName() string }) string {
	if delegate.GetName() == "" {
		return root.GetName()
	}
	return strings.TrimPrefix(root.GetName()+"-"+delegate.GetName(), "-")
}

// narrowed returns the match of a delegate with the conditions of root added, or nil if they contradict each other.
func narrowed(root, delegate *networking.HTTPMatchRequest) *networking.HTTPMatchRequest {
	ports := root.GetPort() != 0 && delegate.GetPort() != 0 && root.GetPort() != delegate.GetPort()
	namespaces := root.GetSourceNamespace() != "" && delegate.GetSourceNamespace() != "" &&
		root.GetSourceNamespace() != delegate.GetSourceNamespace()
	if ports || namespaces || root.GetIgnoreUriCase() != delegate.GetIgnoreUriCase() ||
		contradict(root.GetUri(), delegate.GetUri()) || contradict(root.GetScheme(), delegate.GetScheme()) ||
		contradict(root.GetMethod(), delegate.GetMethod()) ||
		contradict(root.GetAuthority(), delegate.GetAuthority()) ||
		contradictAny(root.GetHeaders(), delegate.GetHeaders()) ||
		contradictAny(root.GetWithoutHeaders(), delegate.GetWithoutHeaders()) ||
		contradictAny(root.GetQueryParams(), delegate.GetQueryParams()) {
		return nil
	}
	for name, value := range delegate.GetSourceLabels() {
		if wanted, ok := root.GetSourceLabels()[name]; ok && wanted != value {
			return nil
		}
	}
	for _, gateway := range delegate.GetGateways() {
		if len(root.GetGateways()) > 0 && !slices.Contains(root.GetGateways(), gateway) {
			return nil
		}
	}
	result := proto.CloneOf(root)
	override(result, delegate, "uri", "scheme", "method", "authority", "port", "sourceNamespace", "gateways", "statPrefix")
	result.Name = joinedName(root, delegate)
	result.Headers = joined(root.GetHeaders(), delegate.GetHeaders())
	result.WithoutHeaders = joined(root.GetWithoutHeaders(), delegate.GetWithoutHeaders())
	result.QueryParams, result.SourceLabels = joined(root.GetQueryParams(), delegate.GetQueryParams()),
		joined(root.GetSourceLabels(), delegate.GetSourceLabels())
	return result
}

func joined[V any](root, delegate map[string]V) map[string]V {
	result := maps.Clone(root)
	if result == nil {
		return delegate
	}
	maps.Copy(result, delegate)
	return result
}

// contradict reports whether the condition of a delegate may accept values that the root's condition refuses.
func contradict(root, delegate *networking.StringMatch) bool {
	if root == nil || delegate == nil {
		return false
	}
	switch rootMatch := root.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return !proto.Equal(root, delegate)
	case *networking.StringMatch_Prefix:
		switch delegateMatch := delegate.GetMatchType().(type) {
		case *networking.StringMatch_Exact:
			return !strings.HasPrefix(delegateMatch.Exact, rootMatch.Prefix)
		case *networking.StringMatch_Prefix:
			return !strings.HasPrefix(delegateMatch.Prefix, rootMatch.Prefix)
		}
	}
	return true
}

func contradictAny(root, delegate map[string]*networking.StringMatch) bool {
	for name, m := range delegate {
		if contradict(root[name], m) {
			return true
		}
	}
	return false
}
