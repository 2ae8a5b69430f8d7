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

func (m *Mesh) merge(r *model.VirtualService, version string) (result mergedRule) {
	rule := *r
	rule.Version = version
	rule.Spec = proto.CloneOf(r.Spec)
	rule.Spec.Http = nil
	for i, httpRoute := range r.Spec.GetHttp() {
		if httpRoute.GetDelegate() == nil {
			rule.Spec.Http, rule.Places = append(rule.Spec.Http, httpRoute), append(rule.Places, r.HttpRoute(i))
			continue
		}
		d := m.Delegate(httpRoute.GetDelegate(), r.Key.Namespace)
		if d == nil {
			continue
		}
		for j, route := range d.Spec.GetHttp() {
			if route.GetDelegate() != nil {
				continue
			}
			if route := delegated(completed(httpRoute, r.Key.Namespace), completed(route, d.Key.Namespace)); route != nil {
				rule.Spec.Http, rule.Places = append(rule.Spec.Http, route), append(rule.Places, d.HttpRoute(j))
			} else {
				result.findings.Note(d.HttpRoute(j),
					"some match of it is none of the route of VirtualService %s that delegates to it", r.Key.FullName())
			}
		}
	}
	rule.Uniform = !model.DependsOnClient(rule.Spec)
	result.rule = &rule
	return result
}

// completed returns a route with the full names of its destinations. Short names are relative to a namespace.
func completed(route *networking.HTTPRoute, namespace string) *networking.HTTPRoute {
	route = proto.CloneOf(route)
	for _, destination := range destinations(&networking.VirtualService{Http: []*networking.HTTPRoute{route}}) {
		destination.Host = model.WholeName(destination.GetHost(), namespace)
	}
	return route
}

// delegated merges a route of a delegate into root, the route that delegates to it. It returns nil if a match of the
// delegate contradicts each match of root. The delegate's settings for requests take precedence over those of root.
func delegated(root, delegate *networking.HTTPRoute) *networking.HTTPRoute {
	out := proto.CloneOf(root)
	out.Delegate, out.Match = nil, nil
	override(out, delegate, "redirect", "directResponse", "rewrite", "timeout", "retries", "fault", "mirror", "mirrors",
		"mirrorPercent", "mirrorPercentage", "corsPolicy", "headers", "route")
	out.Name = joinedName(root, delegate)
	switch {
	case len(root.GetMatch()) == 0:
		out.Match = delegate.GetMatch()
		return out
	case len(delegate.GetMatch()) == 0:
		out.Match = root.GetMatch()
		return out
	}
	for _, b := range delegate.GetMatch() {
		before := len(out.GetMatch())
		for _, a := range root.GetMatch() {
			if merged := narrowed(a, b); merged != nil {
				out.Match = append(out.Match, merged)
			}
		}
		if len(out.GetMatch()) == before {
			return nil
		}
	}
	return out
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
	for _, g := range delegate.GetGateways() {
		if len(root.GetGateways()) > 0 && !slices.Contains(root.GetGateways(), g) {
			return nil
		}
	}
	out := proto.CloneOf(root)
	override(out, delegate, "uri", "scheme", "method", "authority", "port", "sourceNamespace", "gateways", "statPrefix")
	out.Name = joinedName(root, delegate)
	out.Headers = joined(root.GetHeaders(), delegate.GetHeaders())
	out.WithoutHeaders = joined(root.GetWithoutHeaders(), delegate.GetWithoutHeaders())
	out.QueryParams, out.SourceLabels = joined(root.GetQueryParams(), delegate.GetQueryParams()),
		joined(root.GetSourceLabels(), delegate.GetSourceLabels())
	return out
}

func joined[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	if out == nil {
		return b
	}
	maps.Copy(out, b)
	return out
}

// contradict reports whether the condition of a delegate may accept values that the root's condition refuses.
func contradict(root, delegate *networking.StringMatch) bool {
	if root == nil || delegate == nil {
		return false
	}
	switch r := root.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return !proto.Equal(root, delegate)
	case *networking.StringMatch_Prefix:
		switch d := delegate.GetMatchType().(type) {
		case *networking.StringMatch_Exact:
			return !strings.HasPrefix(d.Exact, r.Prefix)
		case *networking.StringMatch_Prefix:
			return !strings.HasPrefix(d.Prefix, r.Prefix)
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
