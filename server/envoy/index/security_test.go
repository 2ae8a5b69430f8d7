package index

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	securityv1beta1 "istio.io/api/security/v1beta1"

	"tributary/resource"
	"tributary/server/envoy/extend"
	"tributary/server/envoy/model"
)

// put sets an object, or removes it if spec is nil, and returns the hosts that this touches.
func put(t *testing.T, m *Mesh, kind resource.Kind, namespace, name string, age int64, spec proto.Message) map[string]bool {
	t.Helper()
	key := resource.Key{Kind: kind, Namespace: namespace, Name: name}
	var r *resource.Resource
	if spec != nil {
		var err error
		r, err = resource.New(resource.Meta{Key: key, Created: time.Unix(1000-age, 0)}, spec)
		require.NoError(t, err)
	}
	require.NoError(t, m.Set(key, r))
	return m.Touched()
}

func gatewayIn(namespace string, labels map[string]string) model.Profile {
	return model.Profile{Role: model.Ingress, Namespace: namespace, Labels: model.LabelText(labels), Large: true}
}

// The security of a client changes with the objects of its namespace and of the root namespace, the MeshConfig, and the
// services that they name. An irrelevant change leaves it equal.
func TestSecurity_ChangesWithItsObjects(t *testing.T) {
	m := NewMesh()
	profile, b := gatewayIn("a", nil), gatewayIn("b", nil)
	deny := &securityv1beta1.AuthorizationPolicy{
		Action: securityv1beta1.AuthorizationPolicy_DENY, Rules: []*securityv1beta1.Rule{{}},
	}
	type state struct{ ofA, ofB string }
	now := func() state { return state{m.Security(profile, nil).From, m.Security(b, nil).From} }
	previous := now()
	change := func(step string, changesA, changesB bool) {
		t.Helper()
		current := now()
		require.Equal(t, changesA, current.ofA != previous.ofA, "%s: a changes", step)
		require.Equal(t, changesB, current.ofB != previous.ofB, "%s: b changes", step)
		previous = current
	}
	touched := put(t, m, resource.AuthorizationPolicy, "a", "p", 0, deny)
	change("added", true, false)
	require.Contains(t, touched, model.GatewayPseudoHost)
	put(t, m, resource.AuthorizationPolicy, "a", "p", 1, deny)
	change("as it was, but older", false, false)
	put(t, m, resource.AuthorizationPolicy, "a", "older", 5, deny)
	change("another", true, false)
	put(t, m, resource.AuthorizationPolicy, "a", "older", 5, nil)
	change("removed", true, false)
	put(t, m, resource.AuthorizationPolicy, model.RootNamespace, "p", 0, deny)
	change("for all", true, true)
	put(t, m, resource.RequestAuthentication, "b", "t", 0, &securityv1beta1.RequestAuthentication{JwtRules: []*securityv1beta1.JWTRule{
		{Issuer: "i", JwksUri: "http://Keys.internal:8000/k"},
	}})
	change("tokens", false, true)
	service := func(host string, port uint32) *networking.ServiceEntry {
		return &networking.ServiceEntry{
			Hosts: []string{host}, Ports: []*networking.ServicePort{{Number: port, Name: "http", Protocol: "HTTP"}},
			Resolution: networking.ServiceEntry_DNS,
		}
	}
	put(t, m, resource.ServiceEntry, "c", "other", 0, service("other.internal", 8000))
	change("a service that has no keys", false, false)
	touched = put(t, m, resource.ServiceEntry, "c", "keys", 0, service("keys.internal", 8000))
	change("the service of keys", false, true)
	require.Contains(t, touched, model.GatewayPseudoHost)
	put(t, m, resource.RequestAuthentication, "b", "t", 0, nil)
	change("no tokens", false, true)
	put(t, m, resource.ServiceEntry, "c", "keys", 0, nil)
	change("no route leads there", false, false)

	config := &meshv1alpha1.MeshConfig{TrustDomain: "td", ExtensionProviders: []*meshv1alpha1.MeshConfig_ExtensionProvider{{
		Name: "p", Provider: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc{
			EnvoyExtAuthzGrpc: &meshv1alpha1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider{
				Service: "c/Asked.internal", Port: 9000,
			},
		},
	}}}
	put(t, m, resource.MeshConfig, model.RootNamespace, "mesh", 0, config)
	change("MeshConfig", true, true) // it is one of the objects
	put(t, m, resource.AuthorizationPolicy, "a", "asks", 0, &securityv1beta1.AuthorizationPolicy{
		Action: securityv1beta1.AuthorizationPolicy_CUSTOM, Rules: []*securityv1beta1.Rule{{}},
		ActionDetail: &securityv1beta1.AuthorizationPolicy_Provider{Provider: &securityv1beta1.AuthorizationPolicy_ExtensionProvider{Name: "p"}},
	})
	change("a provider that is not there", true, false)
	put(t, m, resource.ServiceEntry, "c", "asked", 0, service("asked.internal", 9000))
	change("the provider", true, false)
	put(t, m, resource.MeshConfig, model.RootNamespace, "mesh", 0, nil)
	change("no MeshConfig", true, true)
	require.Empty(t, m.findReferencedHosts())
}

// Objects that select clients of a namespace are in istiod's order: those of the namespace, the oldest first, and then
// those of the root namespace.
func TestObjectsInOrder(t *testing.T) {
	mesh := NewMesh()
	for _, o := range []struct {
		namespace, name string
		age             int64
	}{{model.RootNamespace, "root", 9}, {"a", "young", 1}, {"a", "old", 3}, {"a", "b", 2}, {"a", "a", 2}, {"b", "other", 9}} {
		put(t, mesh, resource.EnvoyFilter, o.namespace, o.name, o.age, &networking.EnvoyFilter{})
	}
	var names []string
	for _, o := range mesh.filters.selectingObjects("a", func(*extend.Filter) bool { return true }) {
		names = append(names, o.Key.Name)
	}
	require.Equal(t, []string{"old", "a", "b", "young", "root"}, names)
}
