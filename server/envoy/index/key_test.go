package index

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/server/envoy/model"
)

// The key of a view covers all that translation reads: a field that translation begins to read must be added to the
// key, and to this test.
func TestKey_CoversAllViewFields(t *testing.T) {
	for _, tt := range []struct {
		value  any
		fields []string
	}{
		{model.View{}, []string{
			"Host", "Service", "Policy", "Mutual", "RoutesByListener", "UnregisteredRoutes", "RouteTargets", "Servers",
			"BoundVirtualServices", "Observability", "Security", "Inbound", "Patches", "Client", "Objects", "Findings",
		}},
		// by from, and the profile
		{model.Inbound{}, []string{"Captured", "Transparent", "Localhost", "Ports", "From"}},
		{model.Target{}, []string{"Ports", "Policy"}},
		// by from; plaintext is the same in all of a catalog
		{model.Policy{}, []string{"Namespace", "Name", "Traffic", "Subsets", "Plaintext", "Objects", "From"}},
		// by the version of the gateway, and the place there
		{model.Server{}, []string{"Server", "Gateway", "Place", "Kind", "Bind", "Route", "Denial"}},
		// by from
		{model.Service{}, []string{
			"Host", "Namespace", "Precedence", "Ports", "Addresses", "Resolution", "External", "Names", "Domains", "Objects", "From",
		}},
		// by from
		{model.Port{}, []string{
			"Number", "Name", "Target", "Protocol", "Endpoints", "Resolution", "Owner", "Index", "Unreached", "Late", "Part", "Spoken",
			"Bind",
		}},
	} {
		var fields []string
		for f := range reflect.TypeOf(tt.value).Fields() {
			fields = append(fields, f.Name)
		}
		require.Equal(t, tt.fields, fields, "%T", tt.value)
	}
	keys := map[model.Key]string{Key((&model.View{})): "an empty view"}
	different := func(v model.View, part string) {
		t.Helper()
		k := Key(&v)
		require.Empty(t, keys[k], part)
		keys[k] = part
	}
	for field, profile := range map[string]model.Profile{
		"role": {Role: model.Proxyless}, "namespace": {Namespace: "a"}, "captures": {Captures: true}, "labels": {Labels: "a"},
		"labelled":  {LabelsMatter: true},
		"on demand": {OnDemand: true}, "large": {Large: true}, "region": {Locality: model.Locality{Region: "a"}},
		"zone": {Locality: model.Locality{Zone: "a"}}, "sub-zone": {Locality: model.Locality{SubZone: "a"}}, "credentials": {Credentials: "a"},
		"transparent": {Transparent: true}, "inbound": {Inbound: "a"}, "identity": {Identity: "a"},
	} {
		different(model.View{Client: profile}, field)
	}
	require.Equal(t, 15, reflect.TypeFor[model.Profile]().NumField())
	rule := &model.VirtualService{Version: "1"}
	different(model.View{Host: "a"}, "host")
	different(model.View{Observability: &model.Observation{}}, "logs")
	different(model.View{Observability: &model.Observation{From: "a"}}, "origin of the logs")
	different(model.View{Security: &model.Security{}}, "security")
	different(model.View{Security: &model.Security{From: "a"}}, "origin of the security")
	different(model.View{Mutual: &model.Mutual{}}, "mutual TLS")
	different(model.View{Mutual: &model.Mutual{From: "a"}}, "origin of the mutual TLS")
	different(model.View{Inbound: &model.Inbound{}}, "inbound ports")
	different(model.View{Inbound: &model.Inbound{From: "a"}}, "origin of the inbound ports")
	different(model.View{Patches: &model.Extension{}}, "extension")
	different(model.View{Patches: &model.Extension{From: "a"}}, "origin of an extension")
	different(model.View{Service: &model.Service{}}, "service")
	different(model.View{Service: &model.Service{From: "a"}}, "origin of a service")
	different(model.View{Policy: model.Policy{From: "a"}}, "policy")
	different(model.View{RoutesByListener: map[int]*model.VirtualService{0: rule}}, "rule")
	different(model.View{RoutesByListener: map[int]*model.VirtualService{1: rule}}, "rule of another part")
	different(model.View{UnregisteredRoutes: rule}, "own rule")
	different(model.View{BoundVirtualServices: []*model.VirtualService{rule}}, "bound rule")
	different(model.View{RouteTargets: map[string]model.Target{"a": {}}}, "target")
	different(model.View{RouteTargets: map[string]model.Target{"a": {Ports: []uint32{1}}}}, "port of a target")
	different(model.View{RouteTargets: map[string]model.Target{"a": {Policy: model.Policy{From: "a"}}}}, "policy of a target")
	different(model.View{Servers: []model.Server{{Gateway: &model.Gateway{Version: "1"}}}}, "server")
	different(model.View{Servers: []model.Server{{Gateway: &model.Gateway{Version: "1"}, Place: model.Place{Field: "a"}}}},
		"place of a server")
	different(model.View{Objects: []resource.Key{{Name: "a"}}}, "object")
	different(model.View{Findings: model.Findings{{Why: "a"}}}, "finding")
}
