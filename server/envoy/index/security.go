package index

import (
	"slices"
	"strings"

	securityv1beta1 "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"
	istiosecurity "istio.io/istio/pkg/config/security"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// securityObjects are those that a mesh has.
type securityObjects struct {
	policies objects[*securityv1beta1.AuthorizationPolicy]
	tokens   objects[*securityv1beta1.RequestAuthentication]
	peers    objects[*securityv1beta1.PeerAuthentication]
}

func newSecurityObjects() securityObjects {
	return securityObjects{
		policies: make(objects[*securityv1beta1.AuthorizationPolicy]), tokens: make(objects[*securityv1beta1.RequestAuthentication]),
		peers: make(objects[*securityv1beta1.PeerAuthentication]),
	}
}

// objects are those of a kind by namespace, the oldest first.
type objects[T comparable] map[string][]*model.Object[T]

// set replaces the object of a key. It removes it if spec is nil.
func (o objects[T]) set(key resource.Key, r *resource.Resource, spec T) {
	var none T
	all := slices.DeleteFunc(o[key.Namespace], func(o *model.Object[T]) bool { return o.Key == key })
	if spec != none {
		added := &model.Object[T]{
			Key: key, Created: r.Created(), Version: r.Version(), Spec: spec, DryRun: r.Annotations()[model.DryRunAnnotation],
		}
		i, _ := slices.BinarySearchFunc(all, added, (*model.Object[T]).Compare)
		all = slices.Insert(all, i, added)
	}
	if o[key.Namespace] = all; len(all) == 0 {
		delete(o, key.Namespace)
	}
}

// selecting returns the objects of a namespace, and then those of the root namespace, that select a client.
func (o objects[T]) selecting(namespace string, selects func(*model.Object[T]) bool) (list []*model.Object[T]) {
	for _, of := range slices.Compact([]string{namespace, model.RootNamespace}) {
		for _, object := range o[of] {
			if selects(object) {
				list = append(list, object)
			}
		}
	}
	return list
}

func (m *Mesh) setSecurity(key resource.Key, r *resource.Resource, spec any, touched map[string]struct{}) {
	switch key.Kind {
	case resource.AuthorizationPolicy:
		m.security.policies.set(key, r, as[*securityv1beta1.AuthorizationPolicy](spec))
	case resource.RequestAuthentication:
		m.security.tokens.set(key, r, as[*securityv1beta1.RequestAuthentication](spec))
		m.sought = nil
	case resource.PeerAuthentication:
		m.security.peers.set(key, r, as[*securityv1beta1.PeerAuthentication](spec))
		m.touchMutual(key.Namespace)
	}
	secureAnew(touched)
}

// secureAnew has all clients look again at what security objects ask of them.
func secureAnew(touched map[string]struct{}) {
	touched[model.GatewayUnit], touched[model.InboundUnit] = struct{}{}, struct{}{}
}

// soughtHosts returns the hosts from which keys and modules are fetched, and those that authorize requests.
func (m *Mesh) soughtHosts() map[string]bool {
	if m.sought == nil {
		m.sought = make(map[string]bool)
		for _, service := range security.Authorizers(m.config().Spec) {
			_, host := splitService(service)
			m.sought[host] = true
		}
		for _, tokens := range m.security.tokens {
			for _, o := range tokens {
				for _, host := range security.KeyHosts(o.Spec) {
					m.sought[host] = true
				}
			}
		}
		for _, plugins := range m.plugins {
			for _, o := range plugins {
				if at, err := istiosecurity.ParseJwksURI(o.Spec.GetUrl()); err == nil {
					m.sought[strings.ToLower(at.Hostname.String())] = true
				}
			}
		}
	}
	return m.sought
}

// touchSought has all clients look again at what security objects and WasmPlugins ask of them if a host is touched to which these lead.
func (m *Mesh) touchSought(touched map[string]struct{}) {
	for host := range m.soughtHosts() {
		if _, is := touched[host]; is {
			m.extendAnew(touched)
			return
		}
	}
}

// Security returns what security objects ask of the listeners of clients of a profile.
func (m *Mesh) Security(p model.Profile, only *SidecarRule) *model.Security {
	if p.Role == model.Proxyless {
		return nil
	}
	if invalid := m.invalidFor(p.Namespace); len(invalid) > 0 && !m.Warn {
		return security.Deny(invalid)
	}
	labels := p.LabelMap()
	return security.Of(security.Objects{
		Policies: m.policiesFor(p, labels), Tokens: m.tokensFor(p, labels), Peers: m.peersFor(p, labels),
		Config: m.config(), Client: p, Warn: m.Warn,
		Cluster: func(service string, port uint32) (cluster, why string) {
			_, cluster, why = m.clusterTo(service, port, p, only)
			return cluster, why
		},
	})
}

func (m *Mesh) policiesFor(p model.Profile, labels map[string]string) []*model.AuthorizationPolicy {
	return m.security.policies.selecting(p.Namespace, func(o *model.AuthorizationPolicy) bool {
		return isTarget(o.Key.Namespace, o.Spec, p, labels)
	})
}

func (m *Mesh) tokensFor(p model.Profile, labels map[string]string) []*model.RequestAuthentication {
	return m.security.tokens.selecting(p.Namespace, func(o *model.RequestAuthentication) bool {
		return isTarget(o.Key.Namespace, o.Spec, p, labels)
	})
}

// Unenforced returns the security objects that are for clients of a profile, which do not enforce them: an Envoy does that at the listeners
// of gateways and at inbound listeners, and accepts mutual TLS if it has an identity.
func (m *Mesh) Unenforced(p model.Profile) (keys []resource.Key) {
	if p.Role == model.Ingress {
		return nil
	}
	labels, inbound := p.LabelMap(), hasInbound(p, m.SidecarFor(p))
	if !inbound {
		for _, o := range m.policiesFor(p, labels) {
			keys = append(keys, o.Key)
		}
		for _, o := range m.tokensFor(p, labels) {
			keys = append(keys, o.Key)
		}
	}
	for _, o := range m.peersFor(p, labels) {
		if security.IsStrict(o.Spec) && (!inbound || p.Identity == "") {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

func (m *Mesh) peersFor(p model.Profile, labels map[string]string) []*model.PeerAuthentication {
	return m.security.peers.selecting(p.Namespace, func(o *model.PeerAuthentication) bool {
		return model.SelectsLabels(o.Spec.GetSelector().GetMatchLabels(), labels)
	})
}

// targets are how a security object says for which clients it is.
type targets interface {
	GetSelector() *typev1beta1.WorkloadSelector
	GetTargetRef() *typev1beta1.PolicyTargetReference
	GetTargetRefs() []*typev1beta1.PolicyTargetReference
}

// gatewayNameLabel is the label of the workloads of a Gateway of the Gateway API, to which a targetRef leads.
const gatewayNameLabel = "gateway.networking.k8s.io/gateway-name"

// references returns the names of the Gateways in its namespace that an object is for, and whether it has references at all.
func references(namespace string, spec targets) (gateways []string, some bool) {
	refs := spec.GetTargetRefs()
	if ref := spec.GetTargetRef(); ref != nil && len(refs) == 0 {
		refs = []*typev1beta1.PolicyTargetReference{ref}
	}
	for _, ref := range refs {
		if ref.GetGroup() == "gateway.networking.k8s.io" && ref.GetKind() == "Gateway" &&
			(ref.GetNamespace() == "" || ref.GetNamespace() == namespace) {
			gateways = append(gateways, ref.GetName())
		}
	}
	return gateways, len(refs) > 0
}

// isTarget says whether a security object in a namespace is for a client: by reference to its Gateway, which is in that namespace, too,
// else by its labels.
func isTarget(namespace string, spec targets, p model.Profile, labels map[string]string) bool {
	if gateways, some := references(namespace, spec); some {
		name, is := labels[gatewayNameLabel]
		return is && namespace == p.Namespace && slices.Contains(gateways, name)
	}
	return model.SelectsLabels(spec.GetSelector().GetMatchLabels(), labels)
}

// targets adds the labels of the clients that a security object is for.
func (s Selectors) targets(namespace string, spec targets) {
	gateways, some := references(namespace, spec)
	for _, name := range gateways {
		s.labels(map[string]string{gatewayNameLabel: name})
	}
	if !some {
		s.labels(spec.GetSelector().GetMatchLabels())
	}
}
