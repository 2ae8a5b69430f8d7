package registry

import (
	"testing"

	"tributary/internal/testutil"

	"github.com/stretchr/testify/require"
)

func TestLongHost_KeepsHash(t *testing.T) {
	parts := func(s svc) []Part {
		return []Part{{Placeholder: "{a}", Text: string(s), Dots: true}, {Placeholder: "{b}", Text: "B"}, {Placeholder: "{c}"}}
	}
	for _, naming := range []Naming[svc]{
		{Template: "{a}.{b}.{c}.x", Joint: ".", Parts: parts},
		{Template: "{a}-{b}-{c}", Joint: "-", Spare: 64, Parts: parts},
		{Template: "{a}.x", Joint: "-", Spare: 7, Parts: parts},
	} {
		testutil.HashIsNotCutAway(t, func(text, toHash string) (host, object string) {
			name := naming.name(svc(text), toHash)
			return name.Host, name.Object
		})
	}
}

// TestCheckHost has registrants choose hosts of a cluster in several spellings.
func TestCheckHost(t *testing.T) {
	for _, row := range []struct {
		template, service string
		refused           bool
	}{
		{"{name}", "payments.prod.svc.cluster.local", true},
		{"{name}", "Payments.PROD.SVC.Cluster.Local", true},
		{"{name}", "payments.prod.svc.cluster.local.", true},
		{"{name}", ".payments..prod.svc.cluster.local", true},
		{"{name}", "payments.prod.svc", true},
		{"{name}", "payments.prod.svc.k8s.internal", true},
		{"{name}", "payments.prod.svc.k8s.example.com", true},
		{"{name}", "payments.prod.svc.Example.COM.", true},
		{"{name}", "payments.prod.svc.mesh.corp", true},
		{"{name}", "payments.prod.svc.eu.prod.acme.io", true},
		{"{name}", "payments-.prod.svc.k8s.example.de", true},
		{"{name}.com", "payments.prod.svc.k8s.example", false}, // the template ends in com
		{"{name}.example", "payments.prod.svc.k8s.example.com", false},
		{"{name}", "com.acme.order.svc.api.Shop", false},
		{"{name}", "com.acme.svc.OrderService", false},
		{"{name}", "com.acme.svc.order.OrderService", false},
		{"{name}", "*.prod.svc.cluster.local", false}, // the host is prod.svc.cluster.local
		{"{name}", "db-0.db.prod.svc.cluster.local", true},
		{"{name}.local", "payments.prod.svc.cluster", true},
		{"{name}.cluster.local", "payments.prod.svc", true},
		{"{name}", "*", false},
		{"{name}", "*.example", false},
		{"{name}", "svc.example", false},
		{"{name}", "com.example.Service", false},
		{"{name}.test", "payments.prod.svc.cluster.local", false},
		{"{name}.svc.cluster.local", "payments.prod", false},
	} {
		options := MappingOptions{HostTemplate: row.template, Namespace: "n"}
		for _, options.Hosts = range []string{"", AnyHosts} {
			hosts := NewHosts(options, nil, Naming[svc]{Parts: func(s svc) []Part {
				return []Part{{Placeholder: "{name}", Text: string(s), Dots: true}}
			}}, func(s svc) string { return string(s) })
			id := svc(row.service)
			name := hosts.Names([]svc{id})[id]
			require.NotContains(t, name.Host, "*")
			resource, _, err := hosts.Entry(Service[svc]{ID: id, Name: name, Port: Port{Number: 80}}, map[string]string{})
			if row.refused && options.Hosts == "" {
				require.ErrorContains(t, err, "hosts: any", row)
				require.Nil(t, resource)
			} else {
				require.NoError(t, err, row)
				require.NotNil(t, resource)
			}
		}
	}
	require.ErrorContains(t, CheckHosts("all"), "hosts: want any")
}
