package index

import (
	"maps"
	"slices"

	securityv1beta1 "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// securityObjects are those that a mesh has.
type securityObjects struct {
	policies map[resource.Key]*model.AuthorizationPolicy
	tokens   map[resource.Key]*model.RequestAuthentication
	peers    map[resource.Key]*model.PeerAuthentication
}

func newSecurityObjects() securityObjects {
	return securityObjects{
		policies: make(map[resource.Key]*model.AuthorizationPolicy),
		tokens:   make(map[resource.Key]*model.RequestAuthentication),
		peers:    make(map[resource.Key]*model.PeerAuthentication),
	}
}

func (m *Mesh) setSecurity(key resource.Key, r *resource.Resource, spec any, touched map[string]struct{}) {
	switch key.Kind {
	case resource.AuthorizationPolicy:
		setObject(m.security.policies, key, r, as[*securityv1beta1.AuthorizationPolicy](spec))
	case resource.RequestAuthentication:
		setObject(m.security.tokens, key, r, as[*securityv1beta1.RequestAuthentication](spec))
	case resource.PeerAuthentication:
		setObject(m.security.peers, key, r, as[*securityv1beta1.PeerAuthentication](spec))
		m.touchMutual(key.Namespace)
	}
	m.secureAnew(touched)
}

func setObject[T comparable](all map[resource.Key]*model.Object[T], key resource.Key, r *resource.Resource, spec T) {
	var none T
	if delete(all, key); spec != none {
		all[key] = &model.Object[T]{Key: key, Created: r.Created(), Version: r.Version(), Spec: spec}
	}
}

// secureAnew has all clients look again at what security objects ask of them.
func (m *Mesh) secureAnew(touched map[string]struct{}) {
	m.Secures++
	touched[model.GatewayUnit] = struct{}{}
}

// touchSecurity has all clients look again at what security objects ask of them if a host is touched to which these lead.
func (m *Mesh) touchSecurity(touched map[string]struct{}) {
	for service := range security.Services(m.config(), maps.Values(m.security.policies), maps.Values(m.security.tokens)) {
		_, host := splitService(service)
		if _, is := touched[host]; is {
			m.secureAnew(touched)
			return
		}
	}
}

// Security returns what security objects ask of the listeners of clients of a profile.
func (m *Mesh) Security(p model.Profile, only *SidecarRule) *model.Security {
	if p.Role == model.Proxyless {
		return nil
	}
	labels := p.LabelMap()
	return security.Of(security.Objects{
		Policies: selected(m.security.policies, p.Namespace, func(o *model.AuthorizationPolicy) bool {
			return isTarget(o.Spec, p, labels)
		}),
		Tokens: selected(m.security.tokens, p.Namespace, func(o *model.RequestAuthentication) bool {
			return isTarget(o.Spec, p, labels)
		}),
		Peers: selected(m.security.peers, p.Namespace, func(o *model.PeerAuthentication) bool {
			return model.SelectsLabels(o.Spec.GetSelector().GetMatchLabels(), labels)
		}),
		Config: m.config(), Client: p, Warn: m.Warn,
		Cluster: func(service string, port uint32) (cluster, why string) {
			_, cluster, why = m.clusterTo(service, port, p, only)
			return cluster, why
		},
	})
}

// selected returns the objects of a namespace, and of the root namespace, that select a client, the oldest first.
func selected[T any](all map[resource.Key]*model.Object[T], namespace string, is func(*model.Object[T]) bool) (list []*model.Object[T]) {
	for key, o := range all {
		if (key.Namespace == namespace || key.Namespace == model.RootNamespace) && is(o) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, (*model.Object[T]).Compare)
	return list
}

// targets are how a security object says for which clients it is.
type targets interface {
	GetSelector() *typev1beta1.WorkloadSelector
	GetTargetRef() *typev1beta1.PolicyTargetReference
	GetTargetRefs() []*typev1beta1.PolicyTargetReference
}

// gatewayNameLabel is the label of the workloads of a Gateway of the Gateway API, to which a targetRef leads.
const gatewayNameLabel = "gateway.networking.k8s.io/gateway-name"

// references returns the names of the Gateways that an object is for, and whether it has references at all.
func references(spec targets) (gateways []string, some bool) {
	refs := spec.GetTargetRefs()
	if ref := spec.GetTargetRef(); ref != nil {
		refs = append(slices.Clone(refs), ref)
	}
	for _, ref := range refs {
		if ref.GetGroup() == "gateway.networking.k8s.io" && ref.GetKind() == "Gateway" {
			gateways = append(gateways, ref.GetName())
		}
	}
	return gateways, len(refs) > 0
}

// isTarget says whether a security object is for a client: by reference to its Gateway, else by its labels.
func isTarget(spec targets, p model.Profile, labels map[string]string) bool {
	if gateways, some := references(spec); some {
		return slices.Contains(gateways, labels[gatewayNameLabel]) && p.Role == model.Ingress
	}
	return model.SelectsLabels(spec.GetSelector().GetMatchLabels(), labels)
}

// targets adds the labels of the clients that a security object is for.
func (s Selectors) targets(spec targets) {
	gateways, _ := references(spec)
	for _, name := range gateways {
		s.labels(map[string]string{gatewayNameLabel: name})
	}
	s.labels(spec.GetSelector().GetMatchLabels())
}
