package envoy

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// delegatePrefix, with the name of a VirtualService, is what leads there: those that delegate to it.
const delegatePrefix = "~delegate/"

// delegateOf returns the name, with its namespace, of the VirtualService to which a route of one in a namespace is delegated, or nothing.
func delegateOf(d *networking.Delegate, namespace string) string {
	if d == nil {
		return ""
	}
	if d.GetNamespace() != "" {
		namespace = d.GetNamespace()
	}
	return namespace + "/" + d.GetName()
}

// delegates returns the VirtualServices to which one delegates, which are those without hosts.
func (m *mesh) delegates(r *rule[*networking.VirtualService]) (all []*rule[*networking.VirtualService]) {
	for _, h := range r.spec.GetHttp() {
		if d := m.delegate(h.GetDelegate(), r.key.Namespace); d != nil && !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	return all
}

func (m *mesh) delegate(d *networking.Delegate, namespace string) *rule[*networking.VirtualService] {
	of, name, _ := strings.Cut(delegateOf(d, namespace), "/")
	r := m.virtuals.byKey[resource.Key{Kind: resource.VirtualService, Namespace: of, Name: name}]
	if d == nil || r == nil || len(r.spec.GetHosts()) > 0 || !visibleTo(r.exportTo, r.key.Namespace, namespace) {
		return nil
	}
	return r
}

// whole returns the VirtualService with the routes of those to which it delegates in the places where it does. As with istiod, a delegate does not
// delegate any further, so that there are no circles; a route is left out whose delegate is not there, or one of
// whose conditions no request could meet that is delegated.
func (m *mesh) whole(r *rule[*networking.VirtualService], found *findings) *rule[*networking.VirtualService] {
	if !slices.ContainsFunc(r.spec.GetHttp(), func(h *networking.HTTPRoute) bool { return h.GetDelegate() != nil }) {
		return r
	}
	whole := *r
	whole.spec = proto.CloneOf(r.spec)
	whole.spec.Http = nil
	var version digest
	version.text(r.version)
	for i, h := range r.spec.GetHttp() {
		if h.GetDelegate() == nil {
			whole.spec.Http, whole.places = append(whole.spec.Http, h), append(whole.places, r.httpRoute(i))
			continue
		}
		d := m.delegate(h.GetDelegate(), r.key.Namespace)
		if d == nil {
			continue
		}
		version.number(int64(i))
		version.object(d.key)
		version.text(d.version)
		for j, of := range d.spec.GetHttp() {
			if of.GetDelegate() != nil {
				continue
			}
			if merged := delegated(completed(h, r.key.Namespace), completed(of, d.key.Namespace)); merged != nil {
				whole.spec.Http, whole.places = append(whole.spec.Http, merged), append(whole.places, d.httpRoute(j))
			} else {
				found.note(d.httpRoute(j), "some match of it is none of the route of VirtualService %s that delegates to it", r.key.FullName())
			}
		}
	}
	whole.version = string(version)
	return &whole
}

// completed returns a route with the names to which it leads as an object in a namespace means them.
func completed(h *networking.HTTPRoute, namespace string) *networking.HTTPRoute {
	h = proto.CloneOf(h)
	for d := range destinations(&networking.VirtualService{Http: []*networking.HTTPRoute{h}}) {
		d.Host = wholeName(d.GetHost(), namespace)
	}
	return h
}

// delegated returns a route of a delegate as the one that delegates to it narrows it, or nil if some of its conditions lies within none of that one's.
// What the delegate says of the requests counts, and what it does not say is said for it.
func delegated(root, of *networking.HTTPRoute) *networking.HTTPRoute {
	out := proto.CloneOf(root)
	out.Delegate, out.Match = nil, nil
	for _, name := range []string{"redirect", "directResponse", "rewrite", "timeout", "retries", "fault", "mirror", "mirrors", "mirrorPercent", "mirrorPercentage", "corsPolicy", "headers", "route"} {
		f := out.ProtoReflect().Descriptor().Fields().ByJSONName(name)
		if of.ProtoReflect().Has(f) {
			out.ProtoReflect().Set(f, proto.CloneOf(of).ProtoReflect().Get(f))
		}
	}
	if of.GetName() != "" {
		out.Name = strings.TrimPrefix(root.GetName()+"-"+of.GetName(), "-")
	}
	switch {
	case len(root.GetMatch()) == 0:
		out.Match = of.GetMatch()
		return out
	case len(of.GetMatch()) == 0:
		out.Match = root.GetMatch()
		return out
	}
	for _, b := range of.GetMatch() {
		known := len(out.GetMatch())
		for _, a := range root.GetMatch() {
			if both := narrowed(a, b); both != nil {
				out.Match = append(out.Match, both)
			}
		}
		if len(out.GetMatch()) == known {
			return nil
		}
	}
	return out
}

// narrowed returns the match of a delegate with the conditions of the one that delegates besides, or nil if they contradict each other.
func narrowed(root, of *networking.HTTPMatchRequest) *networking.HTTPMatchRequest {
	ports := root.GetPort() != 0 && of.GetPort() != 0 && root.GetPort() != of.GetPort()
	namespaces := root.GetSourceNamespace() != "" && of.GetSourceNamespace() != "" && root.GetSourceNamespace() != of.GetSourceNamespace()
	if ports || namespaces || root.GetIgnoreUriCase() != of.GetIgnoreUriCase() ||
		contradict(root.GetUri(), of.GetUri()) || contradict(root.GetScheme(), of.GetScheme()) || contradict(root.GetMethod(), of.GetMethod()) ||
		contradict(root.GetAuthority(), of.GetAuthority()) || contradictAny(root.GetHeaders(), of.GetHeaders()) ||
		contradictAny(root.GetWithoutHeaders(), of.GetWithoutHeaders()) || contradictAny(root.GetQueryParams(), of.GetQueryParams()) {
		return nil
	}
	for name, value := range of.GetSourceLabels() {
		if wanted, ok := root.GetSourceLabels()[name]; ok && wanted != value {
			return nil
		}
	}
	for _, g := range of.GetGateways() {
		if len(root.GetGateways()) > 0 && !slices.Contains(root.GetGateways(), g) {
			return nil
		}
	}
	out := proto.CloneOf(root)
	for _, name := range []string{"uri", "scheme", "method", "authority", "port", "sourceNamespace", "gateways", "statPrefix"} {
		f := out.ProtoReflect().Descriptor().Fields().ByJSONName(name)
		if of.ProtoReflect().Has(f) {
			out.ProtoReflect().Set(f, proto.CloneOf(of).ProtoReflect().Get(f))
		}
	}
	if of.GetName() != "" {
		out.Name = strings.TrimPrefix(root.GetName()+"-"+of.GetName(), "-")
	}
	out.Headers, out.WithoutHeaders = joined(root.GetHeaders(), of.GetHeaders()), joined(root.GetWithoutHeaders(), of.GetWithoutHeaders())
	out.QueryParams, out.SourceLabels = joined(root.GetQueryParams(), of.GetQueryParams()), joined(root.GetSourceLabels(), of.GetSourceLabels())
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
