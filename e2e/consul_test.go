package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

const (
	// consulTime is within which a change in Consul shows in istiod. It takes 0.2 s on an idle machine, and more where a
	// service changes several times a second, because such a service is read ever less often.
	consulTime = 5 * time.Second
	// consulGrace is how long a service that has gone stays, in these tests.
	consulGrace = 2 * time.Second
)

// TestConsulServices shows that each thing that can happen to a service in Consul shows in istiod.
func TestConsulServices(t *testing.T) {
	t.Parallel()
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	tributary := fixture.StartTributary(t, consul.Source("consul").With("grace", consulGrace.String()))
	istiod := tributary.StartIstiod(t)
	agent := consul.API().Agent()

	showing := func(t *testing.T, service string) func(change string, endpoints ...string) {
		return func(change string, endpoints ...string) {
			t.Helper()
			shows(t, istiod, service, change, httpEntry(service, 9080, endpoints...))
		}
	}

	t.Run("checks", func(t *testing.T) {
		t.Parallel()
		show := showing(t, "checks")
		s := withWeights(instance("checks-1", "127.0.0.1", 9080), 10, 3)
		consul.Register(t, s, api.HealthPassing)
		consul.Register(t, instance("checks-2", "127.0.0.2", 9080), api.HealthPassing)
		endpointTwo := endpoint("127.0.0.2 9080 weight: 1")
		show("passing", endpoint("127.0.0.1 9080 weight: 10"), endpointTwo)
		consul.SetStatus(t, s.ID, api.HealthWarning)
		show("warning", endpoint("127.0.0.1 9080 weight: 3"), endpointTwo)
		consul.SetStatus(t, s.ID, api.HealthCritical)
		show("critical", endpointTwo)
		consul.SetStatus(t, s.ID, api.HealthPassing)
		show("passing again", endpoint("127.0.0.1 9080 weight: 10"), endpointTwo)
	})

	t.Run("all critical", func(t *testing.T) {
		t.Parallel()
		show := showing(t, "sick")
		s := instance("sick-1", "127.0.0.1", 9080)
		consul.Register(t, s, api.HealthCritical)
		show("registered with a critical check")
		consul.SetStatus(t, s.ID, api.HealthPassing)
		show("passing", endpoint("127.0.0.1 9080 weight: 1"))
		consul.SetStatus(t, s.ID, api.HealthCritical)
		show("critical again")
	})

	t.Run("deregistration", func(t *testing.T) {
		t.Parallel()
		show := showing(t, "leaving")
		consul.Register(t, instance("leaving-1", "127.0.0.1", 9080), api.HealthPassing)
		consul.Register(t, instance("leaving-2", "127.0.0.2", 9080), api.HealthPassing)
		endpointOne, endpointTwo := endpoint("127.0.0.1 9080 weight: 1"), endpoint("127.0.0.2 9080 weight: 1")
		show("two instances", endpointOne, endpointTwo)
		require.NoError(t, agent.ServiceDeregister("leaving-1"))
		show("one goes", endpointTwo)
		require.NoError(t, agent.ServiceDeregister("leaving-2"))
		show("the last goes")
		shows(t, istiod, "leaving", "its grace is over", "")
		consul.Register(t, instance("leaving-1", "127.0.0.1", 9090), api.HealthPassing)
		shows(t, istiod, "leaving", "back, as a new service", httpEntry("leaving", 9090, endpoint("127.0.0.1 9090 weight: 1")))
	})

	t.Run("maintenance of an instance", func(t *testing.T) {
		t.Parallel()
		show := showing(t, "maintained")
		consul.Register(t, instance("maintained-1", "127.0.0.1", 9080), api.HealthPassing)
		consul.Register(t, instance("maintained-2", "127.0.0.2", 9080), api.HealthPassing)
		endpointOne, endpointTwo := endpoint("127.0.0.1 9080 weight: 1"), endpoint("127.0.0.2 9080 weight: 1")
		show("two instances", endpointOne, endpointTwo)
		require.NoError(t, agent.EnableServiceMaintenance("maintained-1", "e2e"))
		show("maintenance of one", endpointTwo)
		require.NoError(t, agent.DisableServiceMaintenance("maintained-1"))
		show("its end", endpointOne, endpointTwo)
	})

	t.Run("fields of the registration", func(t *testing.T) {
		t.Parallel()
		s := withWeights(instance("changing-1", "127.0.0.1", 9080), 1, 1)
		step := func(change, want string) {
			t.Helper()
			consul.Register(t, s, api.HealthPassing)
			shows(t, istiod, "changing", change, want)
		}
		step("at first", httpEntry("changing", 9080, endpoint("127.0.0.1 9080 weight: 1")))
		withWeights(s, 7, 1)
		step("weight", httpEntry("changing", 9080, endpoint("127.0.0.1 9080 weight: 7")))
		s.Meta["version"] = "v1"
		step("meta", httpEntry("changing", 9080, endpoint("127.0.0.1 9080 weight: 7, labels: {version: v1}")))
		s.Tags = []string{"stage=blue", "not a label"}
		step("tag", httpEntry("changing", 9080, endpoint("127.0.0.1 9080 weight: 7, labels: {version: v1, stage: blue}")))
	})

	t.Run("address of the registration", func(t *testing.T) {
		t.Parallel()
		s := instance("wandering-1", "127.0.0.1", 9080)
		step := func(change, want string) {
			t.Helper()
			consul.Register(t, s, api.HealthPassing)
			shows(t, istiod, "wandering", change, want)
		}
		step("at first", httpEntry("wandering", 9080, endpoint("127.0.0.1 9080 weight: 1")))
		s.Port = 9090
		step("port: that of the service stays", httpEntry("wandering", 9080, endpoint("127.0.0.1 9090 weight: 1")))
		s.Address = "::1"
		step("address", httpEntry("wandering", 9080, endpoint(`'::1' 9090 weight: 1`)))
		s.Meta["protocol"] = "grpc"
		step("protocol: the port stays", strings.NewReplacer("http", "grpc", "HTTP", "GRPC").Replace(
			httpEntry("wandering", 9080, endpoint(`'::1' 9090 weight: 1`))))
	})

	t.Run("address of a node", func(t *testing.T) {
		t.Parallel()
		show := showing(t, "moving")
		s := &api.AgentService{ID: "moving-1", Service: "moving", Port: 9080, Meta: map[string]string{"protocol": "http"}}
		consul.RegisterAt(t, "elsewhere", "127.0.0.3", s)
		show("at first", endpoint("127.0.0.3 9080 weight: 1"))
		_, err := consul.API().Catalog().Register(&api.CatalogRegistration{Node: "elsewhere", Address: "127.0.0.4"}, nil)
		require.NoError(t, err)
		show("the node has another address", endpoint("127.0.0.4 9080 weight: 1"))
		_, err = consul.API().Catalog().Deregister(&api.CatalogDeregistration{Node: "elsewhere"}, nil)
		require.NoError(t, err)
		show("the node goes")
	})

	t.Run("ports that differ", func(t *testing.T) {
		t.Parallel()
		instanceOne, instanceTwo := instance("ported-1", "127.0.0.1", 0), instance("ported-2", "127.0.0.2", 0)
		instanceOne.Meta, instanceTwo.Meta = nil, nil
		instanceOne.Ports = api.ServicePorts{{Name: "http", Port: 9080, Default: true}, {Name: "grpc", Port: 9081}}
		instanceTwo.Ports = api.ServicePorts{{Name: "http", Port: 9090, Default: true}}
		consul.Register(t, instanceOne, api.HealthPassing)
		consul.Register(t, instanceTwo, api.HealthPassing)
		grpc := strings.NewReplacer("http", "grpc", "HTTP", "GRPC", "name: ported,", "name: ported.grpc.port,")
		shows(t, istiod, "ported", "a ServiceEntry for each", httpEntry("ported", 9080, endpoint("127.0.0.1 9080 weight: 1"),
			endpoint("127.0.0.2 9090 weight: 1"))+"---\n"+
			grpc.Replace(httpEntry("ported", 9081, endpoint("127.0.0.1 9081 weight: 1"))))
		// istiod merges them into one service, in which the second instance has one port.
		istiod.WaitFor(t, consulTime, func() error {
			got, err := istiodEndpoints(t, istiod, "ported.service.consul")
			want := []string{"grpc 127.0.0.1:9081", "http 127.0.0.1:9080", "http 127.0.0.2:9090"}
			if err == nil && !slices.Equal(want, got) {
				err = fmt.Errorf("istiod has the endpoints %q", got)
			}
			return err
		})
	})

	t.Run("tcp", func(t *testing.T) {
		t.Parallel()
		s := instance("redis-1", "127.0.0.1", 6379)
		s.Meta = nil
		consul.Register(t, s, api.HealthPassing)
		entry := func(name, host, address string) string {
			return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: consul}
spec:
  hosts: [%s]
  addresses: [%s]
  ports: [{number: 6379, name: tcp, protocol: TCP}]
  location: MESH_INTERNAL
  resolution: STATIC
  endpoints: [{address: 127.0.0.1, ports: {tcp: 6379}, locality: dc1, weight: 1}]
`, name, host, address)
		}
		// The addresses are made of the hosts alone: every tributary gives the same.
		shows(t, istiod, "redis", "with virtual addresses", entry("redis", "redis.service.consul", "241.4.122.71")+"---\n"+
			entry("redis.dc1.dc", "redis.service.dc1.consul", "241.195.67.63"))
		fixture.WaitFor(t, consulTime, func() error {
			b, err := os.ReadFile(filepath.Join(tributary.State, "virtual-addresses"))
			if err == nil && !strings.Contains(string(b), "\n241.4.122.71 redis.service.consul\n") {
				err = fmt.Errorf("remembered is %q", b)
			}
			return err
		})
	})

	t.Run("weight 0", func(t *testing.T) {
		t.Parallel()
		show := showing(t, "idle")
		s := withWeights(instance("idle-1", "127.0.0.1", 9080), 5, 0)
		consul.Register(t, s, api.HealthPassing)
		show("passing", endpoint("127.0.0.1 9080 weight: 5"))
		consul.SetStatus(t, s.ID, api.HealthWarning)
		show("warning, with no weight: not one of 1, which istiod would make of 0")
	})
}

// TestConsulNodeMaintenance is apart from the others, since all that is registered with the agent goes with it.
func TestConsulNodeMaintenance(t *testing.T) {
	t.Parallel()
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	consul.Register(t, instance("web-1", "127.0.0.1", 9080), api.HealthPassing)
	tributary := fixture.StartTributary(t, consul.Source("consul"))
	istiod := tributary.StartIstiod(t)
	healthy := httpEntry("web", 9080, endpoint("127.0.0.1 9080 weight: 1"))
	shows(t, istiod, "web", "at first", healthy)
	require.NoError(t, consul.API().Agent().EnableNodeMaintenance("e2e"))
	shows(t, istiod, "web", "maintenance of the node", httpEntry("web", 9080))
	require.NoError(t, consul.API().Agent().DisableNodeMaintenance())
	shows(t, istiod, "web", "its end", healthy)
}

// TestConsulDatacenters shows that one service in two datacenters is one host, with a further host for each datacenter,
// and that the outage of a datacenter removes no object.
func TestConsulDatacenters(t *testing.T) {
	t.Parallel()
	consulOne := fixture.StartConsul(t, fixture.ConsulOptions{})
	consulTwo := fixture.StartConsul(t, fixture.ConsulOptions{Datacenter: "dc2", Join: consulOne})
	consulOne.Register(t, instance("web-1", "127.0.0.1", 9080), api.HealthPassing)
	consulTwo.Register(t, instance("web-2", "127.0.0.2", 9080), api.HealthPassing)
	fixture.Await(t, func() error {
		list, _, err := consulOne.API().Catalog().Service("web", "", &api.QueryOptions{Datacenter: "dc2"})
		if err == nil && len(list) != 1 {
			err = fmt.Errorf("%d instances in dc2", len(list))
		}
		return err
	})
	tributary := fixture.StartTributary(t, consulOne.Source("consul").With("datacenters", []string{"dc1", "dc2"}))
	istiod := tributary.StartIstiod(t)

	entry := func(name, host string, endpoints ...string) string {
		return strings.ReplaceAll(httpEntry(name, 9080, endpoints...), name+".service.consul, "+name+".service.dc1.consul", host)
	}
	endpointIn := func(address, datacenter string) string {
		return strings.ReplaceAll(endpoint(address+" 9080 weight: 1"), "dc1", datacenter)
	}
	first, second, third := endpointIn("127.0.0.1", "dc1"), endpointIn("127.0.0.2", "dc2"), endpointIn("127.0.0.3", "dc1")
	entries := func(dc1 []string, dc2 ...string) string {
		return strings.Join([]string{
			entry("web", "web.service.consul", slices.Sorted(slices.Values(slices.Concat(dc1, dc2)))...),
			entry("web.dc1.dc", "web.service.dc1.consul", dc1...), entry("web.dc2.dc", "web.service.dc2.consul", dc2...),
		}, "---\n")
	}
	shows(t, istiod, "web", "in both", entries([]string{first}, second))
	consulTwo.SetStatus(t, "web-2", api.HealthCritical)
	shows(t, istiod, "web", "critical in the second", entries([]string{first}))
	consulTwo.SetStatus(t, "web-2", api.HealthPassing)
	shows(t, istiod, "web", "passing in both", entries([]string{first}, second))

	watch := guard(t, istiod, fixture.ParseObjects(t, entries([]string{first}, second)))
	consulTwo.Kill()
	awaitMessage(t, tributary, "consul", "degraded", "dc2")
	watch.stop(t)
	consulOne.Register(t, instance("web-3", "127.0.0.3", 9080), api.HealthPassing)
	shows(t, istiod, "web", "the second is away, the first goes on", entries([]string{first, third}, second))
	tributary.Kill()
	tributary.Restart(t)
	tributary.AwaitAlive(t)
	consulOne.Register(t, instance("web-4", "127.0.0.4", 9080), api.HealthPassing)
	fourth := endpointIn("127.0.0.4", "dc1")
	shows(t, istiod, "web", "tributary was restarted, the first goes on", entries([]string{first, third, fourth}, second))
	consulTwo.Restart(t)
	consulTwo.AwaitLeader(t)
	awaitState(t, tributary, "consul", "healthy", false)
	shows(t, istiod, "web", "the second is back", entries([]string{first, third, fourth}, second))
}

// instance is a registration of the service that its id begins with.
func instance(id, address string, port int) *api.AgentServiceRegistration {
	return &api.AgentServiceRegistration{
		ID: id, Name: id[:strings.LastIndexByte(id, '-')], Address: address, Port: port, Meta: map[string]string{"protocol": "http"},
	}
}

// withWeights sets the weights of a registration.
func withWeights(s *api.AgentServiceRegistration, passing, warning int) *api.AgentServiceRegistration {
	s.Weights = &api.AgentWeights{Passing: passing, Warning: warning}
	return s
}

// httpEntry is the ServiceEntry of a service in dc1.
func httpEntry(name string, port int, endpoints ...string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: consul}
spec:
  hosts: [%[1]s.service.consul, %[1]s.service.dc1.consul]
  ports: [{number: %[2]d, name: http, protocol: HTTP}]
  location: MESH_INTERNAL
  resolution: STATIC
  endpoints: [%[3]s]
`, name, port, strings.Join(endpoints, ", "))
}

// endpoint is the endpoint of an instance in dc1: its address, port and further fields.
func endpoint(text string) string {
	fields := strings.SplitN(text, " ", 3)
	return fmt.Sprintf("{address: %s, ports: {http: %s}, locality: dc1, %s}", fields[0], fields[1], fields[2])
}

// istiodEndpoints are the endpoints that istiod has of a host, in order.
func istiodEndpoints(t *testing.T, istiod *fixture.Istiod, host string) (endpoints []string, err error) {
	t.Helper()
	var shards map[string]map[string]struct {
		Shards map[string][]struct {
			Addresses       []string
			ServicePortName string
			EndpointPort    int
		}
	}
	if err := fixture.GetJSON(t.Context(), "http://"+istiod.HTTP+"/debug/endpointShardz", &shards); err != nil {
		return nil, err
	}
	for _, namespace := range shards[host] {
		for _, shard := range namespace.Shards {
			for _, e := range shard {
				endpoints = append(endpoints, fmt.Sprintf("%s %s:%d", e.ServicePortName, strings.Join(e.Addresses, ","), e.EndpointPort))
			}
		}
	}
	slices.Sort(endpoints)
	return endpoints, nil
}

// shows waits until istiod has these objects of a service, and no other of it.
func shows(t *testing.T, istiod *fixture.Istiod, service, change, want string) {
	t.Helper()
	objects := fixture.Objects{}
	if want != "" {
		objects = fixture.ParseObjects(t, want)
	}
	began := time.Now()
	istiod.WaitFor(t, consulTime, func() error {
		got, err := istiod.Configs(t.Context())
		if err != nil {
			return err
		}
		maps.DeleteFunc(got, func(k fixture.Key, _ *fixture.Object) bool {
			return k.Name != service && !strings.HasPrefix(k.Name, service+".")
		})
		if err := objects.Diff(got); err != nil {
			return fmt.Errorf("%s: %s: %w", service, change, err)
		}
		return nil
	})
	t.Logf("%s: %s: after %v", service, change, time.Since(began).Round(10*time.Millisecond))
}
