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

// delegatePrefix, with the name of a VirtualService, stands for it among the targets of routes that delegate to it.
const delegatePrefix = "~delegate/"

// delegates returns the VirtualServices that r delegates to.
func (m *Mesh) delegates(r *model.Rule[*networking.VirtualService]) (rules []*model.Rule[*networking.VirtualService]) {
	if !hasDelegates(r) {
		return nil
	}
	for _, h := range r.Spec.GetHttp() {
		if d := m.Delegate(h.GetDelegate(), r.Key.Namespace); d != nil && !slices.Contains(rules, d) {
			rules = append(rules, d)
		}
	}
	return rules
}

// Delegate returns the VirtualService that a route delegates to, or nil.
func (m *Mesh) Delegate(d *networking.Delegate, namespace string) *model.Rule[*networking.VirtualService] {
	r := m.Virtuals.ByKey[resource.DelegateKey(d, namespace)]
	if d == nil || r == nil || len(r.Spec.GetHosts()) > 0 || !model.VisibleTo(r.ExportTo, r.Key.Namespace, namespace) {
		return nil
	}
	return r
}

func hasDelegates(r *model.Rule[*networking.VirtualService]) bool {
	return slices.ContainsFunc(r.LeadsTo, func(host string) bool { return strings.HasPrefix(host, delegatePrefix) })
}

// merged is a VirtualService with the routes of its delegates.
type merged struct {
	rule     *model.Rule[*networking.VirtualService]
	findings model.Findings
}

// mergedRules caches the merged VirtualServices by key. All hosts of a VirtualService share its result.
type mergedRules struct {
	mu    sync.Mutex
	byKey map[resource.Key]merged
}

// withDelegates returns the VirtualService with the routes of its delegates in place of the routes that delegate. As
// with istiod, a delegate does not delegate any further, so that there are no circles. A route without its delegate,
// and a route of a delegate with a condition that no delegated request can meet, are left out.
func (m *Mesh) withDelegates(
	r *model.Rule[*networking.VirtualService], findings *model.Findings,
) *model.Rule[*networking.VirtualService] {
	if !hasDelegates(r) {
		return r
	}
	version := m.mergedVersion(r)
	m.merged.mu.Lock()
	defer m.merged.mu.Unlock()
	result, cached := m.merged.byKey[r.Key]
	if !cached || result.rule.Version != version {
		result = m.merge(r, version)
		m.merged.byKey[r.Key] = result
	}
	*findings = append(*findings, result.findings...)
	return result.rule
}

// mergedVersion identifies a VirtualService and its delegates.
func (m *Mesh) mergedVersion(r *model.Rule[*networking.VirtualService]) string {
	var version model.Digest
	version.Text(r.Version)
	for i, h := range r.Spec.GetHttp() {
		if d := m.Delegate(h.GetDelegate(), r.Key.Namespace); d != nil {
			version.Number(int64(i))
			version.Object(d.Key)
			version.Text(d.Version)
		}
	}
	sum := sha256.Sum256(version)
	return string(sum[:])
}

func (m *Mesh) merge(r *model.Rule[*networking.VirtualService], version string) (result merged) {
	rule := *r
	rule.Version = version
	rule.Spec = proto.CloneOf(r.Spec)
	rule.Spec.Http = nil
	for i, h := range r.Spec.GetHttp() {
		if h.GetDelegate() == nil {
			rule.Spec.Http, rule.Places = append(rule.Spec.Http, h), append(rule.Places, r.HttpRoute(i))
			continue
		}
		d := m.Delegate(h.GetDelegate(), r.Key.Namespace)
		if d == nil {
			continue
		}
		for j, route := range d.Spec.GetHttp() {
			if route.GetDelegate() != nil {
				continue
			}
			if route := delegated(completed(h, r.Key.Namespace), completed(route, d.Key.Namespace)); route != nil {
				rule.Spec.Http, rule.Places = append(rule.Spec.Http, route), append(rule.Places, d.HttpRoute(j))
			} else {
				result.findings.Note(d.HttpRoute(j),
					"some match of it is none of the route of VirtualService %s that delegates to it", r.Key.FullName())
			}
		}
	}
	rule.Uniform = !model.TellsApart(rule.Spec)
	result.rule = &rule
	return result
}

// completed returns a route with full names of its destinations, short names being relative to a namespace.
func completed(h *networking.HTTPRoute, namespace string) *networking.HTTPRoute {
	h = proto.CloneOf(h)
	for d := range destinations(&networking.VirtualService{Http: []*networking.HTTPRoute{h}}) {
		d.Host = model.WholeName(d.GetHost(), namespace)
	}
	return h
}

// delegated merges a route of a delegate into root, the route that delegates to it. It returns nil if a match of the
// delegate is within no match of root. The delegate's settings for requests take precedence over those of root.
func delegated(root, delegate *networking.HTTPRoute) *networking.HTTPRoute {
	out := proto.CloneOf(root)
	out.Delegate, out.Match = nil, nil
	for _, name := range []string{
		"redirect", "directResponse", "rewrite", "timeout", "retries", "fault", "mirror", "mirrors", "mirrorPercent",
		"mirrorPercentage", "corsPolicy", "headers", "route",
	} {
		f := out.ProtoReflect().Descriptor().Fields().ByJSONName(name)
		if delegate.ProtoReflect().Has(f) {
			out.ProtoReflect().Set(f, proto.CloneOf(delegate).ProtoReflect().Get(f))
		}
	}
	if delegate.GetName() != "" {
		out.Name = strings.TrimPrefix(root.GetName()+"-"+delegate.GetName(), "-")
	}
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
	for _, name := range []string{
		"uri", "scheme", "method", "authority", "port", "sourceNamespace", "gateways", "statPrefix",
	} {
		f := out.ProtoReflect().Descriptor().Fields().ByJSONName(name)
		if delegate.ProtoReflect().Has(f) {
			out.ProtoReflect().Set(f, proto.CloneOf(delegate).ProtoReflect().Get(f))
		}
	}
	if delegate.GetName() != "" {
		out.Name = strings.TrimPrefix(root.GetName()+"-"+delegate.GetName(), "-")
	}
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

// contradict says whether the condition of a delegate is not one within that of the one that delegates.
func contradict(root, of *networking.StringMatch) bool {
	if root == nil || of == nil {
		return false
	}
	switch r := root.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return !proto.Equal(root, of)
	case *networking.StringMatch_Prefix:
		switch d := of.GetMatchType().(type) {
		case *networking.StringMatch_Exact:
			return !strings.HasPrefix(d.Exact, r.Prefix)
		case *networking.StringMatch_Prefix:
			return !strings.HasPrefix(d.Prefix, r.Prefix)
		}
	}
	return true
}

func contradictAny(root, of map[string]*networking.StringMatch) bool {
	for name, m := range of {
		if contradict(root[name], m) {
			return true
		}
	}
	return false
}
