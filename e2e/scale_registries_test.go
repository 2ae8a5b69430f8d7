package e2e

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// The instances of each service.
const (
	fewInstances  = 5
	manyInstances = 10
)

// largeConsul has many instances on a few nodes. A change is a check that flips.
func largeConsul(t *testing.T, secure bool) registry {
	t.Helper()
	consul := fixture.StartConsul(t, fixture.ConsulOptions{TLS: true})
	r := registry{
		server: consul.Process, source: consul.Source("consul"), services: servicesOr(1000), instances: manyInstances,
		quiet: []time.Duration{time.Minute}, changes: 14, reads: "tributary_consul_reads_total",
	}
	if secure {
		r.source = consul.SecureSource("consul")
	}
	name := func(n int) string { return fmt.Sprintf("svc-%04d", n) }
	for i := range manyInstances {
		node := fmt.Sprintf("node-%d", i)
		_, err := consul.API().Catalog().Register(&api.CatalogRegistration{Node: node, Address: fmt.Sprintf("127.1.0.%d", i+1)}, nil)
		require.NoError(t, err)
		const batch = 64 // half of Consul's limit, for two operations each
		for from := 0; from < r.services; from += batch {
			var ops api.TxnOps
			for n := from; n < min(from+batch, r.services); n++ {
				id := fmt.Sprintf("%s-%d", name(n), i)
				ops = append(ops, &api.TxnOp{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: node, Service: api.AgentService{
					ID: id, Service: name(n), Port: 10000 + n, Meta: map[string]string{"protocol": "http"}, Tags: []string{"version=v1"},
				}}}, &api.TxnOp{Check: &api.CheckTxnOp{Verb: api.CheckSet, Check: api.HealthCheck{
					Node: node, CheckID: "check:" + id, Name: "e2e", ServiceID: id, Status: api.HealthPassing,
				}}})
			}
			ok, res, _, err := consul.API().Txn().Txn(ops, nil)
			require.NoError(t, err)
			require.True(t, ok, "%v", res)
		}
	}
	r.change = func(n int) { // from one end of the names to the other, since the last ones may have no watch slot
		id, status := name(n/2*(r.services-1)/(r.changes/2-1))+"-0", []string{api.HealthCritical, api.HealthPassing}[n%2]
		_, err := consul.API().Catalog().Register(&api.CatalogRegistration{
			Node: "node-0", Address: "127.1.0.1", SkipNodeUpdate: true,
			Check: &api.AgentCheck{Node: "node-0", CheckID: "check:" + id, Name: "e2e", ServiceID: id, Status: status},
		}, nil)
		require.NoError(t, err)
	}
	r.check = func(m measured, tributary *fixture.Tributary) {
		_, address, _ := strings.Cut(r.source.Address, "://")
		t.Logf("%d connections", fixture.Connections(t, address))
		require.Zero(t, tributary.Metric(t, "tributary_consul_rate_limited_total", ""))
		if secure {
			for _, n := range m.reads {
				require.Equal(t, 1, n, "reads for one check that flips, where every service is watched")
			}
		} else { // Three more queries exist for the costs and the delay of more services than watch slots.
			require.LessOrEqual(t, m.median(), 2*time.Second, "over plain HTTP")
			require.LessOrEqual(t, m.quiet.theirs.Seconds(), 0.02*m.quiet.took.Seconds(), "CPU of Consul without changes")
		}
		tributary.Terminate(t, 20*time.Second)
		restart := meter(cpuOf(t, r.server), func() time.Duration { return 0 })
		tributary.Restart(t)
		tributary.AwaitAlive(t)
		awaitSource(t, tributary, "consul", 3*time.Minute, func(s state) bool {
			return s.State == "healthy" && !s.Stale && tributary.Metric(t, r.reads, "") >= r.services
		})
		t.Logf("restart, until all was read: %v, CPU %v; %d reads", restart(), tributary.Usage(t).CPU, tributary.Metric(t, r.reads, ""))
	}
	return r
}

// readInALoop measures a loop in this process that reads all of a Consul every 15 s, as Traefik does by default.
func readInALoop(t *testing.T) {
	const round = 15 * time.Second
	r := largeConsul(t, false)
	_, address, _ := strings.Cut(r.source.Address, "://")
	client, err := api.NewClient(&api.Config{Address: address})
	require.NoError(t, err)
	theirs, ours := cpuOf(t, r.server), func() time.Duration { return fixture.UsageOf(t, os.Getpid()).CPU }
	var mu sync.Mutex
	passing := 0
	read := func(ctx context.Context) error { // all names and then each service, one after the other, as simple integrations do
		q := (&api.QueryOptions{AllowStale: true}).WithContext(ctx)
		names, _, err := client.Catalog().Services(q)
		n := 0
		delete(names, "consul") // the servers themselves
		for name := range names {
			entries, _, err := client.Health().Service(name, "", false, q)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if e.Checks.AggregatedStatus() == api.HealthPassing {
					n++
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		passing = n
		return err
	}
	first := meter(theirs, ours)
	require.NoError(t, read(t.Context()))
	t.Logf("first sync: %v", first())
	watching(t, round, read)
	idle := meter(theirs, ours)
	time.Sleep(r.quiet[0]) // The test measures a period of time.
	t.Logf("no changes: %v; %d connections", idle(), fixture.Connections(t, address))
	for i := range r.changes {
		time.Sleep(round * time.Duration(i) / time.Duration(r.changes)) // So that changes are spread evenly over a round.
		change := meter(theirs, ours)
		r.change(i)
		fixture.WaitFor(t, time.Minute, func() error {
			mu.Lock()
			defer mu.Unlock()
			if passing != r.services*r.instances-1+i%2 {
				return fmt.Errorf("%d instances pass", passing)
			}
			return nil
		})
		t.Logf("one change: seen after %v", change())
	}
}

func largeZooKeeper(t *testing.T) registry {
	t.Helper()
	zookeeper := fixture.StartZooKeeper(t)
	admin := zookeeper.Client(t)
	r := registry{
		server: zookeeper.Process, source: zookeeper.Source("dubbo").With("hold", "15s"), services: servicesOr(2000),
		instances: fewInstances, quiet: []time.Duration{10 * time.Second}, changes: 5, reads: "tributary_dubbo_reads_total",
	}
	node := func(n, provider, weight int) string {
		name := fmt.Sprintf("com.acme.shop%d.Service%04d", n%20, n)
		return "/dubbo/" + name + "/providers/" + url.QueryEscape(fmt.Sprintf(
			"dubbo://10.%d.%d.%d:20880/%s?anyhost=true&application=app-%d&deprecated=false&dubbo=2.0.2&dynamic=true&generic=false&interface=%s&"+
				"methods=add,greet&release=3.3.6&side=provider&timestamp=1795246404074&version=1.0.0&weight=%d",
			provider, n/250, n%250+1, name, n%100, name, weight))
	}
	var nodes []string
	for n := range r.services {
		for p := range fewInstances {
			nodes = append(nodes, node(n, p, 100))
		}
	}
	admin.PutEphemerals(t, nodes)
	r.change = func(n int) {
		more := node(n*(r.services/5-1), fewInstances, 50)
		admin.PutEphemerals(t, []string{more})
		nodes = append(nodes, more)
	}
	r.revive = func() {
		admin.Close()
		zookeeper.Wipe(t)
		admin = zookeeper.Client(t)
		time.Sleep(3 * time.Second) // It may or may not have been seen empty.
	}
	r.fill = func() { admin.PutEphemerals(t, nodes) }
	r.check = func(measured, *fixture.Tributary) { t.Logf("watches: %s", zookeeper.Watches(t)) }
	return r
}

func largeEureka(t *testing.T) registry {
	t.Helper()
	e := fixture.NewEureka(t, fixture.FreePort(t))
	e.AwaitServing(t)
	r := registry{
		server: e.Process, source: fixture.EurekaSource("eureka", e), services: servicesOr(1000), instances: fewInstances,
		// For three minutes all are among its changes, and until something changes after that.
		quiet:   []time.Duration{20 * time.Second, 175 * time.Second, 20 * time.Second},
		changes: 5, reads: "tributary_eureka_full_reads_total",
	}
	register := func(app, n int) {
		fixture.EurekaInstance{
			App: fmt.Sprintf("APP%04d", app), IP: fmt.Sprintf("10.%d.%d.%d", n, app/250, app%250+1), Port: 8080, Beats: time.Hour,
			Metadata: map[string]string{"version": "v1", "zone": "z1"},
		}.Register(t, e)
	}
	all := func() {
		var workers sync.WaitGroup
		for worker := range 4 {
			workers.Go(func() {
				for app := worker; app < r.services; app += 4 {
					for n := range fewInstances {
						register(app, n)
					}
				}
			})
		}
		workers.Wait()
	}
	all()
	time.Sleep(3 * time.Second) // so that its cache has them
	r.change = func(n int) { register(n*(r.services/5-1), fewInstances) }
	r.revive = func() {
		e.Restart(t)
		e.AwaitServing(t)
		time.Sleep(10 * time.Second) // so that it was seen empty
	}
	r.fill = func() {
		all()
		for n := range r.changes {
			r.change(n)
		}
	}
	return r
}

func largeNacos(t *testing.T, version string) registry {
	t.Helper()
	n := fixture.StartNacos(t, version)
	r := registry{
		server: n.Process, source: n.Source("nacos", "kind=services"), services: servicesOr(1000), instances: fewInstances,
		quiet: []time.Duration{20 * time.Second}, changes: 5,
	}
	start := func(i fixture.NacosInstance) { fixture.AwaitReady(t, i.Start(t, n)) }
	for i := range fewInstances {
		start(fixture.NacosInstance{Service: "svc", IP: fmt.Sprintf("10.0.0.%d", i+1), Port: 8080, Count: r.services})
	}
	time.Sleep(2 * time.Second) // so that its work for them is done
	r.change = func(i int) {
		start(fixture.NacosInstance{Service: fmt.Sprint("svc", i*r.services/10), IP: "10.0.1.1", Port: 8080})
	}
	return r
}

func largeKube(t *testing.T) registry {
	t.Helper()
	k := fixture.StartKube(t, "istio")
	k.Grant(t, "", readIstio)
	k.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	r := registry{
		server: k.API, source: k.Source("cluster").With("services", map[string]any{}), services: servicesOr(10_000),
		instances: manyInstances, changes: 5,
	}
	// The slice of a Service. net begins the address of its last endpoint.
	slice := func(i int, net string) string {
		var endpoints []string
		for n := range manyInstances {
			first := fmt.Sprint("10.", 100+n)
			if n == manyInstances-1 {
				first = net
			}
			endpoints = append(endpoints, fmt.Sprintf(`{"addresses":["%s.%d.%d"],"zone":"a","nodeName":"n%d",`+
				`"conditions":{"ready":true,"serving":true,"terminating":false}}`, first, i/250, i%250+1, n))
		}
		return fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s%[1]d","namespace":"shop",`+
			`"labels":{"kubernetes.io/service-name":"s%[1]d"}},"addressType":"IPv4","ports":[{"name":"http","port":8080}],"endpoints":[%[2]s]}`,
			i, strings.Join(endpoints, ","))
	}
	k.CreateMany(t, "v1", "Service", "shop", r.services, func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s%d"},"spec":{"clusterIP":"None",`+
			`"ports":[{"name":"http","port":80}]}}`, i)
	})
	k.CreateMany(t, "discovery.k8s.io/v1", "EndpointSlice", "shop", r.services, func(i int) string { return slice(i, "10.1") })
	k.CreateMany(t, "networking.istio.io/v1", "VirtualService", "shop", r.services, func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"r%[1]d"},"spec":{"hosts":`+
			`["s%[1]d.shop.svc.cluster.local"],"http":[{"route":[{"destination":{"host":"s%[1]d.shop.svc.cluster.local"}}]}]}}`, i)
	})
	r.change = func(n int) { k.Apply(t, slice(n*r.services/100, "10.2")) }
	r.check = func(_ measured, tributary *fixture.Tributary) {
		t.Logf("tributary, with a client: %s", memoryOf(t, tributary.Process, tributary.URL("")))
		untyped, typed := informers(t, k.Kubeconfig)
		t.Logf("informers of client-go: without types %d MiB, typed %d MiB", untyped>>20, typed>>20)

		// An istiod that reads the cluster itself, without pods and without clients.
		k.Grant(t, "", `[{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]`)
		began := time.Now()
		istiod := fixture.NewIstiodWith(t, "", "--registries=Kubernetes", "--kubeconfig="+k.Kubeconfig)
		istiod.WaitFor(t, 3*time.Minute, func() error { return istiod.Synced(t.Context()) })
		t.Logf("istiod, without a client: synced after %v, CPU %v, read %d kB, %s", time.Since(began), istiod.Usage(t).CPU,
			istiod.Read(t)>>10, memoryOf(t, istiod.Process, "http://"+istiod.HTTP))
	}
	return r
}
