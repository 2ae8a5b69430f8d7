package dubbo

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/adsc"
	"tributary/aggregate"
	"tributary/memstore"
	"tributary/server/envoy"
	envoymodel "tributary/server/envoy/model"
	"tributary/server/xds"
	"tributary/sources"
	"tributary/sources/dubbo/zookeeper/zktest"
	"tributary/sources/eureka"
	"tributary/sources/eureka/eurekatest"
	"tributary/sources/guard"
	"tributary/sources/kube"
	"tributary/sources/kube/kubetest"
	"tributary/sources/registry"
)

// clusterHost is the host of a Service in the cluster of TestDisplaced.
const clusterHost = "payments.prod.svc.cluster.local"

// registrants has registries that register a service with a host of the cluster at 10.0.0.2.
var registrants = map[string]func(t *testing.T, hosts string) sources.Source{
	"zookeeper": func(t *testing.T, hosts string) sources.Source {
		server := zktest.New()
		register(server, clusterHost+" 10.0.0.2")
		settings := quickly()
		settings.Mapping.Hosts, settings.Mapping.ServicePorts = hosts, map[string]int{"dubbo": 80}
		return sourceOf(t, server, settings)
	},
	"eureka": func(t *testing.T, hosts string) sources.Source {
		server := eurekatest.Start(t)
		instance := eurekatest.Instance("evil", "10.0.0.2", 80, nil)
		instance["vipAddress"] = clusterHost
		server.Put("evil", instance)
		settings := eureka.Settings{PollSettings: registry.PollSettings{Interval: 5 * time.Millisecond}}
		settings.Mapping.HostTemplate, settings.Mapping.Hosts = "{vip}", hosts
		source, err := eureka.New(server.Address(), settings)
		require.NoError(t, err)
		return source
	},
}

// clusters have something with the host at 10.0.0.1, and a time of creation.
var clusters = map[string]func(server *kubetest.Server){
	"Service": func(server *kubetest.Server) {
		server.Put("services", "prod", "payments", "spec: {ports: [{port: 80}]}")
		server.Put("endpointslices.discovery.k8s.io", "prod", "payments-1",
			"{metadata: {labels: {kubernetes.io/service-name: payments}}, addressType: IPv4, "+
				"ports: [{port: 8080}], endpoints: [{addresses: [10.0.0.1]}]}")
	},
	"ServiceEntry": func(server *kubetest.Server) {
		server.Put("serviceentries.networking.istio.io", "prod", "payments",
			"{metadata: {creationTimestamp: '2026-01-02T03:04:05Z'}, spec: {hosts: ["+clusterHost+"], resolution: STATIC, "+
				"ports: [{number: 80, name: http}], endpoints: [{address: 10.0.0.1}]}}")
	},
}

// TestDisplaced has a cluster as the first source, and a registry that registers a host of it. Clients outside the
// registry's namespace keep the cluster's endpoints. The losing service is reported: by the registry if it may not name
// hosts of clusters, otherwise as a conflict that names the order of sources.
func TestDisplaced(t *testing.T) {
	t.Parallel()
	for kind, fill := range clusters {
		for registry, register := range registrants {
			for _, hosts := range []string{"", "any"} {
				t.Run(kind+", "+registry+" hosts: "+hosts, func(t *testing.T) {
					server := kubetest.Start(t, "services", "endpointslices.discovery.k8s.io", "serviceentries.networking.istio.io")
					fill(server)
					testDisplaced(t, server, register(t, hosts), hosts != "")
				})
			}
		}
	}
}

func testDisplaced(t *testing.T, server *kubetest.Server, registry sources.Source, allowed bool) {
	cluster, err := kube.New("k8s://"+server.Host(), kube.Settings{Services: &kube.Services{}, TLS: &adsc.TLS{Mode: adsc.TLSDisable}})
	require.NoError(t, err)
	mesh := startMesh(t, cluster, registry)
	if allowed {
		mesh.await(t, func() bool { return len(mesh.view.Competing()) == 1 })
		conflict := mesh.view.Competing()[0]
		require.Equal(t, "prod", conflict.Objects[0].Namespace, "the winner")
		require.Contains(t, conflict.Message, "the one of the earlier source")
	} else {
		mesh.await(t, func() bool { return strings.Contains(mesh.reports(), "hosts: any") })
		require.Contains(t, mesh.reports(), clusterHost)
	}
	for _, namespace := range []string{"prod", "shop", "istio-system"} {
		text := mesh.endpoints(t, namespace)
		require.Contains(t, text, "10.0.0.1", "clients of namespace %s", namespace)
		require.NotContains(t, text, "10.0.0.2", "clients of namespace %s", namespace)
	}
}

// mesh has two sources, their view and an Envoy catalog.
type mesh struct {
	supervisor *sources.Supervisor
	view       *aggregate.View
	catalog    *envoy.Catalog
}

func startMesh(t *testing.T, first, second sources.Source) *mesh {
	t.Helper()
	m := &mesh{supervisor: sources.NewSupervisor(sources.Options{})}
	var read []aggregate.Source
	var specs []sources.Spec
	for name, source := range map[string]sources.Source{"first": first, "second": second} {
		table := &memstore.Table{}
		specs = append(specs, sources.Spec{
			Name: name, Source: source, Table: table, Partial: true, Guard: guard.Settings{Off: true},
		})
		read = append(read, aggregate.Source{Name: name, Reader: table, Precedence: map[string]int{"first": 1}[name]})
	}
	require.NoError(t, m.supervisor.Reconfigure(specs))
	m.view = aggregate.New(read...)
	m.catalog = envoy.New(m.view, envoy.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{m.supervisor.Run, m.view.Run, m.catalog.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	m.await(t, func() bool { return m.view.Snapshot().Len() > 0 })
	return m
}

func (m *mesh) reports() (text string) {
	for _, status := range m.supervisor.Status() {
		text += status.Message + "\n" + strings.Join(status.Warnings, "\n")
		for _, q := range status.Quarantined {
			text += "\n" + q.Reason
		}
	}
	return text
}

func (m *mesh) await(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		require.False(t, time.Now().After(end), "waited in vain: %s", m.reports())
	}
}

// endpoints returns the endpoints of the host that an Envoy of a namespace gets.
func (m *mesh) endpoints(t *testing.T, namespace string) (text string) {
	t.Helper()
	client := &corev3.Node{Id: "n", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
		envoymodel.MetadataNamespace: structpb.NewStringValue(namespace),
	}}}
	m.await(t, func() bool {
		assignments, release, err := m.catalog.Collection(t.Context(), client, xds.EndpointURL)
		require.NoError(t, err)
		defer release()
		for resource := range assignments.All() {
			if strings.Contains(resource.Name, clusterHost) {
				text += string(resource.Any)
			}
		}
		return text != ""
	})
	return text
}
