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

// delegates returns the VirtualServices that another one delegates to.
func (m *Mesh) delegates(
	virtualService *model.VirtualService,
) (rules []*model.VirtualService) {
	if !hasDelegates(virtualService) {
		return nil
	}
	for _, route := range virtualService.Spec.GetHttp() {
		if d := m.Delegate(route.GetDelegate(), virtualService.Key.Namespace); d != nil && !slices.Contains(rules, d) {
			rules = append(rules, d)
		}
	}
	return rules
}

// Delegate returns the VirtualService that a route delegates to, or nil.
func (m *Mesh) Delegate(delegate *networking.Delegate, namespace string) *model.VirtualService {
	virtualService := m.Virtuals.ByKey[resource.DelegateKey(delegate, namespace)]
	if delegate == nil || virtualService == nil || len(virtualService.Spec.GetHosts()) > 0 ||
		!model.VisibleTo(virtualService.ExportTo, virtualService.Key.Namespace, namespace) {
		return nil
	}
	return virtualService
}

func hasDelegates(virtualService *model.VirtualService) bool {
	return slices.ContainsFunc(virtualService.DependsOn,
		func(host string) bool { return strings.HasPrefix(host, delegatePrefix) })
}

// mergedVirtualService is a VirtualService with the routes of its delegates.
type mergedVirtualService struct {
	virtualService *model.VirtualService
	findings       model.Findings
}

// mergedVirtualServices caches the merged VirtualServices by key. All hosts of a VirtualService share its result.
type mergedVirtualServices struct {
	mu    sync.Mutex
	byKey map[resource.Key]mergedVirtualService
}

// withDelegates returns the VirtualService with the routes of its delegates in place of the routes that delegate. As
// with istiod, a delegate does not delegate any further, so that there are no circles. A route without its delegate,
// and a route of a delegate with a condition that no delegated request can meet, are left out.
func (m *Mesh) withDelegates(
	virtualService *model.VirtualService, findings *model.Findings,
) *model.VirtualService {
	if !hasDelegates(virtualService) {
		return virtualService
	}
	version := m.mergedVersion(virtualService)
	m.merged.mu.Lock()
	defer m.merged.mu.Unlock()
	result, cached := m.merged.byKey[virtualService.Key]
	if !cached || result.virtualService.Version != version {
		result = m.mergeDelegates(virtualService, version)
		m.merged.byKey[virtualService.Key] = result
	}
	*findings = append(*findings, result.findings...)
	return result.virtualService
}

// mergedVersion identifies a VirtualService and its delegates.
func (m *Mesh) mergedVersion(virtualService *model.VirtualService) string {
	var version model.Digest
	version.Text(virtualService.Version)
	for i, route := range virtualService.Spec.GetHttp() {
		if d := m.Delegate(route.GetDelegate(), virtualService.Key.Namespace); d != nil {
			version.Number(int64(i))
			version.Object(d.Key)
			version.Text(d.Version)
		}
	}
	sum := sha256.Sum256(version)
	return string(sum[:])
}

func (m *Mesh) mergeDelegates(root *model.VirtualService, version string) (result mergedVirtualService) {
	merged := *root
	merged.Version = version
	merged.Spec = proto.CloneOf(root.Spec)
	merged.Spec.Http = nil
	for i, httpRoute := range root.Spec.GetHttp() {
		if httpRoute.GetDelegate() == nil {
			merged.Spec.Http = append(merged.Spec.Http, httpRoute)
			merged.Places = append(merged.Places, root.HttpRoute(i))
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
			if route := mergeDelegate(withWholeNames(httpRoute, root), withWholeNames(route, delegate)); route != nil {
				merged.Spec.Http = append(merged.Spec.Http, route)
				merged.Places = append(merged.Places, delegate.HttpRoute(j))
			} else {
				result.findings.Note(delegate.HttpRoute(j),
					"some match of it is none of the route of VirtualService %s that delegates to it", root.Key.FullName())
			}
		}
	}
	merged.Uniform = !model.DependsOnClient(merged.Spec)
	result.virtualService = &merged
	return result
}

// withWholeNames returns a route of a VirtualService with the full names of its destinations and gateways.
func withWholeNames(route *networking.HTTPRoute, virtualService *model.VirtualService) *networking.HTTPRoute {
	route = proto.CloneOf(route)
	for _, destination := range destinations(&networking.VirtualService{Http: []*networking.HTTPRoute{route}}) {
		destination.Host = virtualService.WholeName(destination.GetHost())
	}
	for _, match := range route.GetMatch() {
		for i, name := range match.GetGateways() {
			if name != model.MeshGateway {
				match.Gateways[i] = virtualService.WholeGateway(name)
			}
		}
	}
	return route
}

// mergeDelegate merges a route of a delegate into root, the route that delegates to it. It returns nil if a match of
// the delegate contradicts each match of root. The delegate's settings for requests take precedence over those of root.
func mergeDelegate(root, delegate *networking.HTTPRoute) *networking.HTTPRoute {
	result := proto.CloneOf(root)
	result.Delegate = nil
	result.Match = nil
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
			if merged := narrowedMatch(a, b); merged != nil {
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

// narrowedMatch returns the match of a delegate with the conditions of root added, or nil if they contradict each
// other.
func narrowedMatch(root, delegate *networking.HTTPMatchRequest) *networking.HTTPMatchRequest {
	ports := root.GetPort() != 0 && delegate.GetPort() != 0 && root.GetPort() != delegate.GetPort()
	// As with istiod, a delegate for requests from all namespaces is not for those from one.
	namespaces := root.GetSourceNamespace() != "" && root.GetSourceNamespace() != delegate.GetSourceNamespace()
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
	result.Headers = union(root.GetHeaders(), delegate.GetHeaders())
	result.WithoutHeaders = union(root.GetWithoutHeaders(), delegate.GetWithoutHeaders())
	result.QueryParams = union(root.GetQueryParams(), delegate.GetQueryParams())
	result.SourceLabels = union(root.GetSourceLabels(), delegate.GetSourceLabels())
	return result
}

func union[V any](root, delegate map[string]V) map[string]V {
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
