package index

import (
	"slices"
	"strings"

	istiosecurity "istio.io/istio/pkg/config/security"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/envoy/security"
)

// objects holds the objects of a kind by namespace, the oldest first.
type objects[T comparable] map[string][]*model.Object[T]

// set replaces the object of a key, or removes it if spec is nil.
func (o objects[T]) set(key resource.Key, object *resource.Resource, spec any) {
	list := slices.DeleteFunc(o[key.Namespace], func(o *model.Object[T]) bool { return o.Key == key })
	var absent T
	if spec := specAs[T](spec); spec != absent {
		added := &model.Object[T]{
			Key: key, Created: object.Created(), Version: object.Version(), Spec: spec,
			DryRun: object.Annotations()[model.DryRunAnnotation],
		}
		i, _ := slices.BinarySearchFunc(list, added, (*model.Object[T]).Compare)
		list = slices.Insert(list, i, added)
	}
	o[key.Namespace] = list
	if len(list) == 0 {
		delete(o, key.Namespace)
	}
}

// each yields the objects.
func (o objects[T]) each(yield func(*model.Object[T]) bool) {
	for _, list := range o {
		for _, object := range list {
			if !yield(object) {
				return
			}
		}
	}
}

// selectingObjects returns the objects of a namespace, and then those of the root namespace, that select a client.
func (o objects[T]) selectingObjects(namespace string, selects func(*model.Object[T]) bool) (list []*model.Object[T]) {
	for _, objectNamespace := range slices.Compact([]string{namespace, model.RootNamespace}) {
		for _, object := range o[objectNamespace] {
			if selects(object) {
				list = append(list, object)
			}
		}
	}
	return list
}

// securityChanged makes all clients evaluate security objects again.
func (m *Mesh) securityChanged() {
	m.touched[model.GatewayPseudoHost] = true
	m.touched[model.InboundPseudoHost] = true
}

// SetInvalid sets the security objects without a valid version, in order. Their content and the clients that they
// select are unknown. Objects without a namespace may select all clients.
func (m *Mesh) SetInvalid(keys []resource.Key) {
	conditions := make(Selectors)
	for _, key := range keys {
		conditions.namespaces(key.Namespace)
	}
	m.Selectors.set(resource.Key{Kind: "invalid"}, conditions)
	m.Invalid = keys
	m.securityChanged()
}

// findReferencedHosts returns the hosts of the providers of the mesh, and the hosts that serve keys and modules.
func (m *Mesh) findReferencedHosts() map[string]bool {
	if m.referencedHosts != nil {
		return m.referencedHosts
	}
	m.referencedHosts = make(map[string]bool)
	for _, p := range m.config().Spec.GetExtensionProviders() {
		service, _, _ := model.ProviderService(p)
		// the provider has one
		_, host := splitService(service + p.GetEnvoyExtAuthzHttp().GetService() + p.GetEnvoyExtAuthzGrpc().GetService())
		m.referencedHosts[host] = true
	}
	for o := range m.tokens.each {
		for _, host := range security.KeyHosts(o.Spec) {
			m.referencedHosts[host] = true
		}
	}
	for o := range m.plugins.each {
		if uri, err := istiosecurity.ParseJwksURI(o.Spec.GetUrl()); err == nil {
			m.referencedHosts[strings.ToLower(uri.Hostname.String())] = true
		}
	}
	return m.referencedHosts
}

// touchReferencedHosts calls extensionsChanged if the host of a provider, of keys or of a module is touched.
func (m *Mesh) touchReferencedHosts() {
	for host := range m.findReferencedHosts() {
		if m.touched[host] {
			m.extensionsChanged()
			return
		}
	}
}

// Security returns the rules of security objects for the listeners of clients of a profile.
func (m *Mesh) Security(profile model.Profile, sidecar *Sidecar) *model.Security {
	if profile.Role == model.Proxyless {
		return nil
	}
	invalid := slices.DeleteFunc(slices.Clone(m.Invalid), func(key resource.Key) bool {
		return !slices.Contains([]string{"", profile.Namespace, model.RootNamespace}, key.Namespace)
	})
	if len(invalid) > 0 && !m.Warn {
		return security.Deny(invalid, "no version of it is valid")
	}
	if keys := m.blocking(profile, nil); len(keys) > 0 && !m.Warn {
		return security.Deny(keys, "no Envoy can enforce it on the targets of its targetRefs")
	}
	relevant := security.Objects{
		Policies: forClient(m, m.authorizations, profile), Tokens: forClient(m, m.tokens, profile), Config: m.config(),
		Client: profile, Warn: m.Warn,
		Cluster: func(service string, port uint32) (cluster, why string) {
			_, cluster, why = m.clusterTo(service, port, profile, sidecar)
			return cluster, why
		},
	}
	if profile.Role == model.Sidecar { // the servers of gateways decide themselves
		relevant.Peers = forClient(m, m.peers, profile)
	}
	if keys := slices.Concat(hidden(m, relevant.Policies), hidden(m, relevant.Tokens),
		hidden(m, relevant.Peers)); len(keys) > 0 {
		return security.Deny(keys, "the access rules of clients do not have its namespace")
	}
	return security.Translate(relevant)
}

// hidden returns the keys of objects that select clients without the right to see them. Clients of all namespaces see
// those of the root namespace, except for objects with references.
func hidden[T selectable](m *Mesh, list []*model.Object[T]) (keys []resource.Key) {
	for _, o := range list {
		forNamespace := policyTargetOf(o.Key.Namespace, o.Spec).refers || o.Key.Namespace != model.RootNamespace
		if forNamespace && m.Sees != nil && !m.Sees(o.Key.Namespace) {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// Unenforced returns the security objects that select clients of a profile, but are not enforced by them: an Envoy
// enforces them at the listeners of gateways and at inbound listeners, and accepts mutual TLS if it has an identity.
func (m *Mesh) Unenforced(profile model.Profile) (keys []resource.Key) {
	inbound := hasInbound(profile, m.SidecarFor(profile))
	if profile.Role == model.Ingress || inbound && profile.Identity != "" {
		return nil
	}
	for _, o := range forClient(m, m.peers, profile) {
		if security.IsStrict(o.Spec) {
			keys = append(keys, o.Key)
		}
	}
	if !inbound {
		keys = slices.Concat(keys, model.KeysOf(forClient(m, m.authorizations, profile)),
			model.KeysOf(forClient(m, m.tokens, profile)))
	}
	return keys
}

// forClient returns the objects that select clients of a profile.
func forClient[T interface {
	comparable
	selectable
}](m *Mesh, list objects[T], profile model.Profile) []*model.Object[T] {
	labels := profile.LabelMap()
	served := m.servedGateways(profile, labels)
	return list.selectingObjects(profile.Namespace, func(o *model.Object[T]) bool {
		return policyTargetOf(o.Key.Namespace, o.Spec).attaches(profile, labels, served)
	})
}
