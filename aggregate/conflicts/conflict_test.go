package conflicts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	security "istio.io/api/security/v1beta1"
	telemetry "istio.io/api/telemetry/v1alpha1"
	typev1beta1 "istio.io/api/type/v1beta1"

	"tributary/memstore"
	"tributary/resource"
)

// object makes a resource of spec that was made minutes after all began.
func object(
	t *testing.T, kind resource.Kind, namespace, name string, minutes int, spec proto.Message,
) *resource.Resource {
	t.Helper()
	r, err := resource.New(resource.Meta{
		Key:     resource.Key{Kind: kind, Namespace: namespace, Name: name},
		Created: time.Date(2026, 1, 1, 0, minutes, 0, 0, time.UTC),
	}, spec)
	require.NoError(t, err)
	return r
}

func serviceEntry(host string, port uint32, exportTo ...string) *networking.ServiceEntry {
	return &networking.ServiceEntry{
		Hosts: []string{host}, ExportTo: exportTo, Resolution: networking.ServiceEntry_STATIC,
		Ports: []*networking.ServicePort{{Number: port, Name: "http", Protocol: "HTTP"}},
	}
}

// find returns the conflicts of a table.
func find(table *memstore.Table) []Conflict {
	var x Index
	x.Follow(table)
	return x.Conflicts()
}

func TestConflicts(t *testing.T) {
	const (
		se = resource.ServiceEntry
		vs = resource.VirtualService
		dr = resource.DestinationRule
	)
	dns := func(se *networking.ServiceEntry) *networking.ServiceEntry {
		se.Resolution = networking.ServiceEntry_DNS
		return se
	}
	route := func(host string, gateways ...string) *networking.VirtualService {
		return &networking.VirtualService{Hosts: []string{host}, Gateways: gateways}
	}
	rule := func(host string, exportTo ...string) *networking.DestinationRule {
		return &networking.DestinationRule{Host: host, ExportTo: exportTo}
	}
	const pa = resource.PeerAuthentication
	matching := func(label, value string) *typev1beta1.WorkloadSelector {
		return &typev1beta1.WorkloadSelector{MatchLabels: map[string]string{label: value}}
	}
	peer := func(labels ...string) *security.PeerAuthentication {
		if len(labels) == 0 {
			return &security.PeerAuthentication{}
		}
		return &security.PeerAuthentication{Selector: matching(labels[0], labels[1])}
	}
	type obj struct {
		kind            resource.Kind
		namespace, name string
		minutes         int
		spec            proto.Message
	}
	type conflict struct {
		rule    Rule
		subject string
		objects []string // in order
		says    string   // part of the message
	}
	for _, test := range []struct {
		name    string
		objects []obj
		want    []conflict
	}{
		{name: "none", objects: []obj{
			{se, "a", "x", 0, serviceEntry("x.example", 80)}, {se, "a", "y", 0, serviceEntry("y.example", 80)},
		}},
		{
			name: "same host and port in a namespace",
			objects: []obj{
				{se, "a", "new", 5, serviceEntry("X.example", 80)}, {se, "a", "old", 1, serviceEntry("x.example", 80)},
			},
			want: []conflict{{ServiceEntryPort, "x.example:80", []string{"a/old", "a/new"}, "endpoints of all"}},
		},
		{
			name:    "same host and port in two namespaces",
			objects: []obj{{se, "a", "x", 5, serviceEntry("x.example", 80)}, {se, "b", "x", 1, serviceEntry("x.example", 80)}},
			want:    []conflict{{ServiceEntryPort, "x.example:80", []string{"b/x", "a/x"}, "own namespace"}},
		},
		{
			name: "no namespace sees both",
			objects: []obj{
				{se, "a", "x", 0, serviceEntry("x.example", 80, ".")},
				{se, "b", "x", 0, serviceEntry("x.example", 80, "b")},
				{se, "c", "x", 0, serviceEntry("x.example", 80, "~")},
			},
		},
		{
			name: "two of three are seen together",
			objects: []obj{
				{se, "a", "x", 0, serviceEntry("x.example", 80, ".", "c")},
				{se, "b", "x", 0, serviceEntry("x.example", 80, ".")},
				{se, "c", "x", 0, serviceEntry("x.example", 80, ".")},
			},
			want: []conflict{{
				ServiceEntryPort, "x.example:80", []string{"a/x", "c/x"}, "the first of those exported to it: the first by name",
			}},
		},
		{
			name: "a public one and a private one",
			objects: []obj{
				{se, "a", "x", 0, serviceEntry("x.example", 80, "*", "b")}, {se, "b", "x", 0, serviceEntry("x.example", 80, ".")},
			},
			want: []conflict{{
				ServiceEntryPort, "x.example:80", []string{"a/x", "b/x"}, "by name, or, without one, a/x, the first public one",
			}},
		},
		{
			name:    "other ports of the same shape are joined",
			objects: []obj{{se, "a", "x", 0, serviceEntry("x.example", 80)}, {se, "a", "y", 0, serviceEntry("x.example", 81)}},
		},
		{
			name: "other ports of another shape are not",
			objects: []obj{
				{se, "a", "x", 0, serviceEntry("x.example", 80)},
				{se, "a", "y", 0, dns(serviceEntry("x.example", 81))},
				{se, "a", "z", 0, serviceEntry("x.example", 82)},
			},
			want: []conflict{{
				ServiceEntryShape, "x.example in namespace a", []string{"a/x", "a/y"}, "does not join the ports of a/y",
			}},
		},
		{
			name:    "virtual services of sidecars",
			objects: []obj{{vs, "a", "x", 2, route("reviews")}, {vs, "b", "x", 1, route("reviews.a.svc.cluster.local", "mesh")}},
			want: []conflict{{
				VirtualServiceMesh, "reviews.a.svc.cluster.local",
				[]string{"b/x", "a/x"},
				"uses the routes of b/x, the oldest, and ignores",
			}},
		},
		{
			name: "virtual services of a gateway",
			objects: []obj{
				{vs, "a", "x", 1, route("shop.example", "gw")},
				{vs, "b", "x", 2, route("shop.example", "a/gw")},
				{vs, "b", "y", 0, route("shop.example", "gw")},
			},
			want: []conflict{{VirtualServiceGateway, "shop.example on gateway a/gw", []string{"a/x", "b/x"}, "a/x first"}},
		},
		{name: "a delegate has no host", objects: []obj{
			{vs, "a", "x", 0, &networking.VirtualService{}},
			{vs, "a", "y", 0, &networking.VirtualService{}},
		}},
		{
			name:    "destination rules in a namespace",
			objects: []obj{{dr, "a", "y", 0, rule("x")}, {dr, "a", "x", 0, rule("x.a.svc.cluster.local")}},
			want: []conflict{{
				DestinationRuleNamespace, "x.a.svc.cluster.local in namespace a", []string{"a/x", "a/y"}, "merges",
			}},
		},
		{
			name: "destination rules of two namespaces",
			objects: []obj{
				{dr, "a", "x", 0, rule("x.example")},
				{dr, "b", "x", 0, rule("x.example")},
				{dr, "c", "x", 0, rule("x.example", "~")},
			},
			want: []conflict{{DestinationRuleHost, "x.example", []string{"a/x", "b/x"}, "own namespace"}},
		},
		{
			name: "destination rules for other workloads",
			objects: []obj{
				{dr, "a", "x", 0, rule("x.example")},
				{dr, "a", "y", 0, &networking.DestinationRule{Host: "x.example", WorkloadSelector: selector("v1")}},
				{dr, "a", "z", 0, &networking.DestinationRule{Host: "x.example", WorkloadSelector: selector("v2")}},
			},
		},
		{
			name: "oldest PeerAuthentication of a namespace and of workloads",
			objects: []obj{
				{pa, "a", "new", 5, peer()},
				{pa, "a", "old", 1, peer()},
				{pa, "b", "other", 1, peer()},
				{pa, "a", "web", 1, peer("app", "web")},
				{pa, "a", "web2", 2, peer("app", "web")},
				{pa, "a", "db", 1, peer("app", "db")},
				{pa, "istio-system", "x", 1, peer("app", "web")},
				{pa, "istio-system", "y", 1, peer("app", "web")},
			},
			want: []conflict{
				{
					PeerAuthenticationNamespace, "all workloads of namespace a",
					[]string{"a/old", "a/new"},
					"istiod uses a/old, the oldest, and ignores a/new",
				},
				{PeerAuthenticationWorkloads, "workloads app=web of namespace a", []string{"a/web", "a/web2"}, "ignores a/web2"},
			},
		},
		{
			name: "Sidecars, Telemetries and ProxyConfigs",
			objects: []obj{
				{resource.Sidecar, "a", "x", 0, &networking.Sidecar{}},
				{resource.Sidecar, "a", "y", 0, &networking.Sidecar{}},
				{
					resource.Sidecar, "a", "z", 0,
					&networking.Sidecar{WorkloadSelector: &networking.WorkloadSelector{Labels: map[string]string{"a": "b"}}},
				},
				{resource.Telemetry, "a", "x", 0, &telemetry.Telemetry{}},
				{resource.Telemetry, "a", "y", 0, &telemetry.Telemetry{}},
				{
					resource.Telemetry, "a", "gw", 0,
					&telemetry.Telemetry{TargetRefs: []*typev1beta1.PolicyTargetReference{{Kind: "Gateway", Name: "g"}}},
				},
				{resource.Telemetry, "b", "x", 0, &telemetry.Telemetry{Selector: matching("a", "b")}},
				{resource.Telemetry, "b", "y", 0, &telemetry.Telemetry{Selector: matching("a", "b")}},
				{resource.ProxyConfig, "a", "x", 0, &networkingv1beta1.ProxyConfig{}},
				{resource.ProxyConfig, "a", "y", 0, &networkingv1beta1.ProxyConfig{}},
			},
			want: []conflict{
				{
					SidecarNamespace, "all workloads of namespace a",
					[]string{"a/x", "a/y"},
					"istiod uses a/x, the first by name, and ignores a/y",
				},
				{TelemetryWorkloads, "workloads a=b of namespace b", []string{"b/x", "b/y"}, "settings of b/y replace"},
				{TelemetryNamespace, "all workloads of namespace a", []string{"a/x", "a/y"}, "ignores a/y"},
				{ProxyConfigNamespace, "all workloads of namespace a", []string{"a/x", "a/y"}, "ignores a/y"},
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var table memstore.Table
			for _, o := range test.objects {
				table.Apply([]*resource.Resource{object(t, o.kind, o.namespace, o.name, o.minutes, o.spec)}, nil)
			}
			conflicts := find(&table)
			require.Len(t, conflicts, len(test.want), "%+v", conflicts)
			for i, want := range test.want {
				require.Equal(t, want.rule, conflicts[i].Rule)
				require.Equal(t, want.subject, conflicts[i].Subject)
				var names []string
				for _, o := range conflicts[i].Objects {
					names = append(names, o.Key().FullName())
				}
				require.Equal(t, want.objects, names)
				require.Contains(t, conflicts[i].Message, want.says)
			}
		})
	}
}

// TestConflicts_Rank has every rule that has an order decide by source, time and name: the message says which of them
// decided. The objects are ranked as in the view. The name of the winner comes last, so that no name decides by chance.
func TestConflicts_Rank(t *testing.T) {
	const earlier, timeless = "the one of the earlier source", "the one without a time of creation"
	dns := serviceEntry("x.example", 81)
	dns.Resolution = networking.ServiceEntry_DNS
	route := &networking.VirtualService{Hosts: []string{"x.example"}}
	rule := &networking.DestinationRule{Host: "x.example"}
	for rule, row := range map[Rule]struct {
		kind          resource.Kind
		namespace     string // of the other
		first, second proto.Message
	}{
		ServiceEntryPort: {resource.ServiceEntry, "a", serviceEntry("x.example", 80), serviceEntry("x.example", 80)},
		"elsewhere":      {resource.ServiceEntry, "b", serviceEntry("x.example", 80), serviceEntry("x.example", 80)},
		"private": {
			resource.ServiceEntry, "b", serviceEntry("x.example", 80, "a", "c"), serviceEntry("x.example", 80, "c"),
		},
		ServiceEntryShape:        {resource.ServiceEntry, "a", serviceEntry("x.example", 80), dns},
		VirtualServiceMesh:       {resource.VirtualService, "b", route, route},
		DestinationRuleNamespace: {resource.DestinationRule, "a", rule, rule},
	} {
		isEntry := row.kind == resource.ServiceEntry
		for _, order := range []struct {
			name                        string
			firstMinutes, secondMinutes int // -1 for no time
			firstPlace, secondPlace     int
			entry, second               string // the reason; empty if the other object wins
		}{
			{"the earlier source is younger", 9, 1, 0, 1, earlier, ""},
			{"the later one has no time", 9, -1, 0, 1, earlier, ""},
			{"the later one has no time, third", 9, -1, 1, 2, earlier, ""},
			{"only the later one has a time", -1, 1, 0, 1, earlier, timeless},
			{"only the later one has a time, third", -1, 1, 1, 2, earlier, timeless},
			{"neither has a time", -1, -1, 1, 2, earlier, earlier},
			{"one source", 1, 9, 1, 1, "the oldest", "the oldest"},
			{"one source, without a time", -1, 1, 1, 1, timeless, timeless},
		} {
			t.Run(string(rule)+", "+order.name, func(t *testing.T) {
				created := func(namespace, name string, minutes, place int, spec proto.Message) *resource.Resource {
					r := object(t, row.kind, namespace, name, max(minutes, 0), spec)
					if minutes < 0 {
						r = r.WithCreated(time.Time{})
					}
					return r.Ranked(place)
				}
				var table memstore.Table
				table.Apply([]*resource.Resource{
					created("a", "z", order.firstMinutes, order.firstPlace, row.first),
					created(row.namespace, "y", order.secondMinutes, order.secondPlace, row.second),
				}, nil)
				conflicts := find(&table)
				require.Len(t, conflicts, 1)
				want := order.second
				if isEntry {
					want = order.entry
				}
				if want == "" {
					require.Equal(t, "y", conflicts[0].Objects[0].Name)
					return
				}
				require.Equal(t, "z", conflicts[0].Objects[0].Name)
				require.Contains(t, conflicts[0].Message, want)
			})
		}
	}
}

func TestNamesOf(t *testing.T) {
	require.Equal(t, []string{"a.b.c", "*.b.c", "*.c", "*"}, NamesOf("a.b.c"))
	require.Equal(t, []string{"*.c", "*"}, NamesOf("*.c"))
	require.Equal(t, []string{"*"}, NamesOf("*"))
	require.Equal(t, []string{"localhost", "*"}, NamesOf("localhost"))
}
