package index

import (
	"slices"
	"strings"

	istiosecurity "istio.io/istio/pkg/config/security"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// objects are those of a kind by namespace, the oldest first.
type objects[T comparable] map[string][]*model.Object[T]

// set replaces the object of a key. It removes it if spec is nil.
func (o objects[T]) set(key resource.Key, r *resource.Resource, spec any) {
	all := slices.DeleteFunc(o[key.Namespace], func(o *model.Object[T]) bool { return o.Key == key })
	var none T
	if spec := as[T](spec); spec != none {
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

// all yields the objects.
func (o objects[T]) all(yield func(*model.Object[T]) bool) {
	for _, list := range o {
		for _, object := range list {
			if !yield(object) {
				return
			}
		}
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

// secureAnew has all clients look again at what security objects ask of them.
func secureAnew(touched map[string]struct{}) {
	touched[model.GatewayUnit], touched[model.InboundUnit] = struct{}{}, struct{}{}
}

// SetInvalid sets the security objects of which a source has no valid version, in order. What they ask for, and of which clients, is not
// known. Those without a namespace may be about all clients.
func (m *Mesh) SetInvalid(keys []resource.Key, touched map[string]struct{}) {
	conditions := make(Selectors)
	for _, key := range keys {
		conditions.namespaces(key.Namespace)
	}
	m.Selectors.set(resource.Key{Kind: "invalid"}, conditions)
	m.Invalid = keys
	secureAnew(touched)
}

// soughtHosts returns the hosts of the providers of the mesh, and those from which keys and modules are fetched.
func (m *Mesh) soughtHosts() map[string]bool {
	if m.sought != nil {
		return m.sought
	}
	m.sought = make(map[string]bool)
	for _, p := range m.config().Spec.GetExtensionProviders() {
		service, _, _ := model.ProviderService(p)
		_, host := splitService(service + p.GetEnvoyExtAuthzHttp().GetService() + p.GetEnvoyExtAuthzGrpc().GetService()) // it has one
		m.sought[host] = true
	}
	for o := range m.tokens.all {
		for _, host := range security.KeyHosts(o.Spec) {
			m.sought[host] = true
		}
	}
	for o := range m.plugins.all {
		if at, err := istiosecurity.ParseJwksURI(o.Spec.GetUrl()); err == nil {
			m.sought[strings.ToLower(at.Hostname.String())] = true
		}
	}
	return m.sought
}

// touchSought has all clients look again, see extendAnew, if a host is touched to which providers, keys and modules lead.
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
	invalid := slices.DeleteFunc(slices.Clone(m.Invalid), func(key resource.Key) bool {
		return !slices.Contains([]string{"", p.Namespace, model.RootNamespace}, key.Namespace)
	})
	if len(invalid) > 0 && !m.Warn {
		return security.Deny(invalid, "no version of it is valid")
	}
	if keys := m.blocking(p, nil); len(keys) > 0 && !m.Warn {
		return security.Deny(keys, "no Envoy can enforce what its targetRefs name")
	}
	all := security.Objects{
		Policies: forClient(m, m.authorizations, p), Tokens: forClient(m, m.tokens, p), Config: m.config(), Client: p, Warn: m.Warn,
		Cluster: func(service string, port uint32) (cluster, why string) {
			_, cluster, why = m.clusterTo(service, port, p, only)
			return cluster, why
		},
	}
	if p.Role == model.Sidecar { // gateways do as their servers say
		all.Peers = forClient(m, m.peers, p)
	}
	if keys := slices.Concat(hidden(m, all.Policies), hidden(m, all.Tokens), hidden(m, all.Peers)); len(keys) > 0 {
		return security.Deny(keys, "the access rules of clients do not have its namespace")
	}
	return security.Translate(all)
}

// hidden returns the keys of objects that clients may not see although they say that these are for them. Those of the root namespace are
// for clients of all namespaces, but for those of a Gateway there.
func hidden[T selectable](m *Mesh, all []*model.Object[T]) (keys []resource.Key) {
	for _, o := range all {
		forNamespace := policyTargetOf(o.Key.Namespace, o.Spec).refers || o.Key.Namespace != model.RootNamespace
		if forNamespace && m.Sees != nil && !m.Sees(o.Key.Namespace) {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// Unenforced returns the security objects that are for clients of a profile, which do not enforce them: an Envoy does that at the listeners
// of gateways and at inbound listeners, and accepts mutual TLS if it has an identity.
func (m *Mesh) Unenforced(p model.Profile) (keys []resource.Key) {
	inbound := hasInbound(p, m.SidecarFor(p))
	if p.Role == model.Ingress || inbound && p.Identity != "" {
		return nil
	}
	for _, o := range forClient(m, m.peers, p) {
		if security.IsStrict(o.Spec) {
			keys = append(keys, o.Key)
		}
	}
	if !inbound {
		keys = slices.Concat(keys, model.KeysOf(forClient(m, m.authorizations, p)),
			model.KeysOf(forClient(m, m.tokens, p)))
	}
	return keys
}

// forClient returns the objects that are for clients of a profile.
func forClient[T interface {
	comparable
	selectable
}](m *Mesh, list objects[T], p model.Profile) []*model.Object[T] {
	labels := p.LabelMap()
	served := m.servedGateways(p, labels)
	return list.selecting(p.Namespace, func(o *model.Object[T]) bool {
		return policyTargetOf(o.Key.Namespace, o.Spec).attaches(p, labels, served)
	})
}
