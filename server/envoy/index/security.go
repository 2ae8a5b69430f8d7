package index

import (
	"iter"
	"slices"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	securityv1beta1 "istio.io/api/security/v1beta1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// securityObjects are those that a mesh has.
type securityObjects struct {
	policies objects[*securityv1beta1.AuthorizationPolicy]
	tokens   objects[*securityv1beta1.RequestAuthentication]
	peers    objects[*securityv1beta1.PeerAuthentication]

	hosts counts // to which they lead
}

func newSecurityObjects() securityObjects {
	return securityObjects{
		policies: make(objects[*securityv1beta1.AuthorizationPolicy]), tokens: make(objects[*securityv1beta1.RequestAuthentication]),
		peers: make(objects[*securityv1beta1.PeerAuthentication]), hosts: make(counts),
	}
}

// objects are those of a kind by namespace, the oldest first.
type objects[T comparable] map[string][]*model.Object[T]

// set replaces the object of a key, and returns the old and the new one, either of which may be nil.
func (o objects[T]) set(key resource.Key, r *resource.Resource, spec T) (old, now T) {
	all := o[key.Namespace]
	if i := slices.IndexFunc(all, func(o *model.Object[T]) bool { return o.Key == key }); i >= 0 {
		old = all[i].Spec
		all = slices.Delete(all, i, i+1)
	}
	if spec != now {
		added := &model.Object[T]{
			Key: key, Created: r.Created(), Version: r.Version(), Spec: spec, DryRun: r.Annotations()[model.DryRunAnnotation],
		}
		i, _ := slices.BinarySearchFunc(all, added, (*model.Object[T]).Compare)
		all = slices.Insert(all, i, added)
	}
	if o[key.Namespace] = all; len(all) == 0 {
		delete(o, key.Namespace)
	}
	return old, spec
}

// selecting yields the objects of a namespace, and then those of the root namespace, that select a client.
func (o objects[T]) selecting(namespace string, selects func(*model.Object[T]) bool) iter.Seq[*model.Object[T]] {
	return func(yield func(*model.Object[T]) bool) {
		for _, of := range slices.Compact([]string{namespace, model.RootNamespace}) {
			for _, object := range o[of] {
				if selects(object) && !yield(object) {
					return
				}
			}
		}
	}
}

func (m *Mesh) setSecurity(key resource.Key, r *resource.Resource, spec any, touched map[string]struct{}) {
	switch key.Kind {
	case resource.AuthorizationPolicy:
		m.security.policies.set(key, r, as[*securityv1beta1.AuthorizationPolicy](spec))
	case resource.RequestAuthentication:
		old, now := m.security.tokens.set(key, r, as[*securityv1beta1.RequestAuthentication](spec))
		m.security.hosts.count(security.KeyHosts(old), -1)
		m.security.hosts.count(security.KeyHosts(now), 1)
	case resource.PeerAuthentication:
		m.security.peers.set(key, r, as[*securityv1beta1.PeerAuthentication](spec))
		m.touchMutual(key.Namespace)
	}
	secureAnew(touched)
}

// counts has how often objects name hosts.
type counts map[string]int

func (c counts) count(hosts []string, by int) {
	for _, host := range hosts {
		if c[host] += by; c[host] == 0 {
			delete(c, host)
		}
	}
}

// among says whether one of the hosts is touched.
func (c counts) among(touched map[string]struct{}) bool {
	for host := range c {
		if _, is := touched[host]; is {
			return true
		}
	}
	return false
}

// secureBy has the security objects refer to another MeshConfig. Either may be nil.
func (m *Mesh) secureBy(old, now *meshv1alpha1.MeshConfig, touched map[string]struct{}) {
	m.security.hosts.count(authorizers(old), -1)
	m.security.hosts.count(authorizers(now), 1)
	secureAnew(touched)
}

func authorizers(config *meshv1alpha1.MeshConfig) (hosts []string) {
	for _, service := range security.Authorizers(config) {
		_, host := splitService(service)
		hosts = append(hosts, host)
	}
	return hosts
}

// secureAnew has all clients look again at what security objects ask of them.
func secureAnew(touched map[string]struct{}) {
	touched[model.GatewayUnit], touched[model.InboundUnit] = struct{}{}, struct{}{}
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
		Policies: slices.Collect(m.policiesFor(p, labels)), Tokens: slices.Collect(m.tokensFor(p, labels)),
		Peers:  slices.Collect(m.peersFor(p, labels)),
		Config: m.config(), Client: p, Warn: m.Warn,
		Cluster: func(service string, port uint32) (cluster, why string) {
			_, cluster, why = m.clusterTo(service, port, p, only)
			return cluster, why
		},
	})
}

func (m *Mesh) policiesFor(p model.Profile, labels map[string]string) iter.Seq[*model.AuthorizationPolicy] {
	return m.security.policies.selecting(p.Namespace, func(o *model.AuthorizationPolicy) bool {
		return isTarget(o.Key.Namespace, o.Spec, p, labels)
	})
}

func (m *Mesh) tokensFor(p model.Profile, labels map[string]string) iter.Seq[*model.RequestAuthentication] {
	return m.security.tokens.selecting(p.Namespace, func(o *model.RequestAuthentication) bool {
		return isTarget(o.Key.Namespace, o.Spec, p, labels)
	})
}

// Unenforced yields the security objects that are for clients of a profile, which do not enforce them: an Envoy does that at the listeners
// of gateways and at inbound listeners, and accepts mutual TLS if it has an identity.
func (m *Mesh) Unenforced(p model.Profile) iter.Seq[resource.Key] {
	return func(yield func(resource.Key) bool) {
		if p.Role == model.Ingress {
			return
		}
		labels, inbound := p.LabelMap(), hasInbound(p, m.SidecarFor(p))
		if !inbound {
			for o := range m.policiesFor(p, labels) {
				if !yield(o.Key) {
					return
				}
			}
			for o := range m.tokensFor(p, labels) {
				if !yield(o.Key) {
					return
				}
			}
		}
		for o := range m.peersFor(p, labels) {
			if security.IsStrict(o.Spec) && (!inbound || p.Identity == "") && !yield(o.Key) {
				return
			}
		}
	}
}

func (m *Mesh) peersFor(p model.Profile, labels map[string]string) iter.Seq[*model.PeerAuthentication] {
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
