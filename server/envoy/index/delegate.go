package index

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// delegatePrefix, with the name of a VirtualService, stands for it among the targets of routes that delegate to it.
const delegatePrefix = "~delegate/"

// DelegateOf returns namespace/name of the VirtualService to which a route delegates, or "".
func DelegateOf(d *networking.Delegate, namespace string) string {
	if d == nil {
		return ""
	}
	if d.GetNamespace() != "" {
		namespace = d.GetNamespace()
	}
	return namespace + "/" + d.GetName()
}

// delegates returns the VirtualServices to which r delegates.
func (m *Mesh) delegates(r *model.Rule[*networking.VirtualService]) (all []*model.Rule[*networking.VirtualService]) {
	if !hasDelegates(r) {
		return nil
	}
	for _, h := range r.Spec.GetHttp() {
		if d := m.Delegate(h.GetDelegate(), r.Key.Namespace); d != nil && !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	return all
}

// Delegate returns the VirtualService to which a route delegates, or nil.
func (m *Mesh) Delegate(d *networking.Delegate, namespace string) *model.Rule[*networking.VirtualService] {
	of, name, _ := strings.Cut(DelegateOf(d, namespace), "/")
	r := m.Virtuals.ByKey[resource.Key{Kind: resource.VirtualService, Namespace: of, Name: name}]
	if d == nil || r == nil || len(r.Spec.GetHosts()) > 0 || !model.VisibleTo(r.ExportTo, r.Key.Namespace, namespace) {
		return nil
	}
	return r
}

func hasDelegates(r *model.Rule[*networking.VirtualService]) bool {
	return slices.ContainsFunc(r.LeadsTo, func(host string) bool { return strings.HasPrefix(host, delegatePrefix) })
}

// whole returns the VirtualService with the routes of those to which it delegates in the places where it does. As with istiod, a delegate
// does not delegate any further, so that there are no circles; a route is left out whose delegate is not there, or one of whose conditions
// no request could meet that is delegated.
func (m *Mesh) whole(r *model.Rule[*networking.VirtualService], found *model.Findings) *model.Rule[*networking.VirtualService] {
	if !hasDelegates(r) {
		return r
	}
	whole := *r
	whole.Uniform = false
	whole.Spec = proto.CloneOf(r.Spec)
	whole.Spec.Http = nil
	var version model.Digest
	version.Text(r.Version)
	for i, h := range r.Spec.GetHttp() {
		if h.GetDelegate() == nil {
			whole.Spec.Http, whole.Places = append(whole.Spec.Http, h), append(whole.Places, r.HttpRoute(i))
			continue
		}
		d := m.Delegate(h.GetDelegate(), r.Key.Namespace)
		if d == nil {
			continue
		}
		version.Number(int64(i))
		version.Object(d.Key)
		version.Text(d.Version)
		for j, of := range d.Spec.GetHttp() {
			if of.GetDelegate() != nil {
				continue
			}
			if merged := delegated(completed(h, r.Key.Namespace), completed(of, d.Key.Namespace)); merged != nil {
				whole.Spec.Http, whole.Places = append(whole.Spec.Http, merged), append(whole.Places, d.HttpRoute(j))
			} else {
				found.Note(d.HttpRoute(j), "some match of it is none of the route of VirtualService %s that delegates to it", r.Key.FullName())
			}
		}
	}
	whole.Version = string(version)
	return &whole
}

// completed returns a route with the names to which it leads as an object in a namespace means them.
func completed(h *networking.HTTPRoute, namespace string) *networking.HTTPRoute {
	h = proto.CloneOf(h)
	for d := range destinations(&networking.VirtualService{Http: []*networking.HTTPRoute{h}}) {
		d.Host = model.WholeName(d.GetHost(), namespace)
	}
	return h
}

// delegated returns a route of a delegate as the one that delegates to it narrows it, or nil if some of its conditions lies within none of
// that one's. What the delegate says of the requests counts, and what it does not say is said for it.
func delegated(root, of *networking.HTTPRoute) *networking.HTTPRoute {
	out := proto.CloneOf(root)
	out.Delegate, out.Match = nil, nil
	for _, name := range []string{
		"redirect", "directResponse", "rewrite", "timeout", "retries", "fault", "mirror", "mirrors", "mirrorPercent",
		"mirrorPercentage", "corsPolicy", "headers", "route",
	} {
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
	out.QueryParams, out.SourceLabels = joined(root.GetQueryParams(), of.GetQueryParams()),
		joined(root.GetSourceLabels(), of.GetSourceLabels())
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
