package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tributary/e2e/fixture"
)

const (
	kubeServices  = 10_000
	kubeEndpoints = 10 // of each
	kubeRules     = 10_000
)

// TestKubeScale prints the costs of a large cluster: the first sync, a time without changes, and one endpoint that
// changes.
func TestKubeScale(t *testing.T) {
	nightly(t, "takes minutes")
	k := fixture.StartKube(t, "istio")
	k.Grant(t, "", readIstio)
	k.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
	began := time.Now()
	k.CreateMany(t, "v1", "Service", "shop", kubeServices, func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s%d"},"spec":{"clusterIP":"None",`+
			`"ports":[{"name":"http","port":80}]}}`, i)
	})
	k.CreateMany(t, "discovery.k8s.io/v1", "EndpointSlice", "shop", kubeServices, func(i int) string { return kubeScaleSlice(i, "10.1") })
	k.CreateMany(t, "networking.istio.io/v1", "VirtualService", "shop", kubeRules, func(i int) string {
		return fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"VirtualService","metadata":{"name":"r%[1]d"},"spec":{"hosts":`+
			`["s%[1]d.shop.svc.cluster.local"],"http":[{"route":[{"destination":{"host":"s%[1]d.shop.svc.cluster.local"}}]}]}}`, i)
	})
	t.Logf("%d objects were made in %v", 2*kubeServices+kubeRules, time.Since(began).Round(time.Second))

	began, theirs := time.Now(), k.API.Usage(t).CPU
	tributary := fixture.StartTributary(t, k.Source("cluster").With("services", map[string]any{}).With("guard", "off"))
	tributary.WaitFor(t, 3*time.Minute, func() error {
		if s := source(t, tributary, "cluster"); !s.Synced {
			return fmt.Errorf("the source is %v", s)
		}
		return nil
	})
	took, usage := time.Since(began), tributary.Usage(t)
	t.Logf("first sync of %d Services with %d endpoints and %d rules: %v, CPU %v, the API server's %v, memory %d MiB, read %d kB",
		kubeServices, kubeServices*kubeEndpoints, kubeRules, took.Round(time.Millisecond), usage.CPU, k.API.Usage(t).CPU-theirs,
		usage.Memory>>20, tributary.Read(t)>>10)

	stream := fixture.OpenDelta(t, tributary.XDS, "e2e-client", serviceEntries)
	for got := 0; got < kubeServices; {
		got += len(stream.NextWithin(t, time.Minute).GetResources())
	}
	for i := range 5 {
		time.Sleep(2 * time.Second) // so that each comes alone
		cpu, read, changedAt := tributary.Usage(t).CPU, tributary.Read(t), time.Now()
		k.Apply(t, kubeScaleSlice(100*i, "10.2"))
		answered := time.Since(changedAt)
		res := stream.NextWithin(t, time.Minute)
		t.Logf("one endpoint: %d object was sent %v after the API server was asked, which answered after %v; CPU %v, read %d bytes",
			len(res.GetResources()), time.Since(changedAt).Round(time.Millisecond), answered.Round(time.Millisecond),
			tributary.Usage(t).CPU-cpu, tributary.Read(t)-read)
	}
	t.Logf("tributary, with a client: %s", memoryOf(t, tributary.Process, tributary.URL("")))

	untyped, typed := informers(t, k.Kubeconfig)
	t.Logf("informers of client-go: without types %d MiB, typed %d MiB", untyped>>20, typed>>20)

	// An istiod that reads the cluster itself, without pods and without clients.
	k.Grant(t, "", `[{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]`)
	began = time.Now()
	istiod := fixture.NewIstiodWith(t, "", "--registries=Kubernetes", "--kubeconfig="+k.Kubeconfig)
	istiod.WaitFor(t, 3*time.Minute, func() error { return istiod.Synced(t.Context()) })
	theirs = istiod.Usage(t).CPU
	t.Logf("istiod, without a client: synced after %v, CPU %v, read %d kB, %s", time.Since(began).Round(time.Millisecond), theirs,
		istiod.Read(t)>>10, memoryOf(t, istiod.Process, "http://"+istiod.HTTP))
}

// kubeScaleSlice is the slice of a Service. net begins the address of its last endpoint.
func kubeScaleSlice(i int, net string) string {
	var endpoints []string
	for n := range kubeEndpoints {
		address := fmt.Sprintf("10.%d.%d.%d", 100+n, i/250, i%250+1)
		if n == kubeEndpoints-1 {
			address = fmt.Sprintf("%s.%d.%d", net, i/250, i%250+1)
		}
		endpoints = append(endpoints, fmt.Sprintf(`{"addresses":[%q],"zone":"a","nodeName":"n%d",`+
			`"conditions":{"ready":true,"serving":true,"terminating":false}}`, address, n))
	}
	return fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"s%[1]d","namespace":"shop",`+
		`"labels":{"kubernetes.io/service-name":"s%[1]d"}},"addressType":"IPv4","ports":[{"name":"http","port":8080}],"endpoints":[%[2]s]}`,
		i, strings.Join(endpoints, ","))
}
