package envoy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// withAddresses is a node that says these addresses of its instance.
func withAddresses(addresses string, n *corev3.Node) *corev3.Node {
	n.Metadata.Fields["INSTANCE_IPS"] = structpb.NewStringValue(addresses)
	return n
}

// The oldest service decides the protocol of a port, also if the services are of different addresses of the client, and
// when their ages change.
func TestPortProtocol_FollowsOldestService(t *testing.T) {
	service := func(name, protocol, address string, day int) string {
		text := strings.Replace(serviceAt(name, 80, "{address: "+address+"}"), "protocol: HTTP", "protocol: "+protocol, 1)
		return strings.Replace(text, "namespace: shop}", fmt.Sprintf("namespace: shop, creationTimestamp: '2026-01-%02dT00:00:00Z'}", day), 1)
	}
	steps := newSteps(Options{}, decoded(t, service("one", "HTTP", "10.0.0.1", 1)+service("two", "TCP", "fd00::1", 2))...)
	n := withAddresses("10.0.0.1,fd00::1", node("shop", "REDIRECT", ""))
	inbound := func(reviewer *countingReviewer) string {
		p := model.ProfileOf(n)
		leave := steps.c.selectProfile(&p, n, reviewer)
		t.Cleanup(leave)
		return p.Inbound
	}
	stays := &countingReviewer{}
	before := inbound(stays)
	steps.apply(decoded(t, service("one", "HTTP", "10.0.0.1", 3)))
	require.NotEqual(t, before, inbound(&countingReviewer{}), "the other one is the oldest")
	require.Positive(t, stays.n)
}

// The addresses in a node have a size limit: the zone of an address could have any length.
func TestAddressesOf_IgnoresZonedAddresses(t *testing.T) {
	n := withAddresses("2001:db8::1%"+strings.Repeat("z", 1<<20), node("shop", "REDIRECT", ""))
	require.Empty(t, model.AddressesOf(n))
	n = node("shop", "REDIRECT", "")
	require.Empty(t, model.AddressesOf(nodeAt("2001:db8::1%zone", n)))
}

// A rule for the name of an ingress listener that no service has comes and goes.
func TestIngressWithoutService_FollowsRule(t *testing.T) {
	steps := newSteps(Options{}, decoded(t, `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: in, namespace: shop}
spec: {ingress: [{port: {number: 9080, protocol: HTTP, name: a}, bind: 127.0.0.1, defaultEndpoint: "127.0.0.1:8080"}]}
`)...)
	n := nodeAt("10.0.0.1", node("shop", "NONE", ""))
	coll, release, err := steps.c.Collection(t.Context(), n, xds.ClusterURL)
	require.NoError(t, err)
	defer release()
	steps.apply(decoded(t, `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: d, namespace: shop}
spec: {host: "*", trafficPolicy: {connectionPool: {tcp: {maxConnections: 5}}}}
`))
	fresh := catalogOfTable(&steps.table)
	want, got := dump(t, fresh, n), dumpOf(t, map[string]*xds.Collection{xds.ClusterURL: coll})
	name := xds.ClusterURL + "/inbound|9080||"
	require.True(t, proto.Equal(want[name], got[name]), "%v\n%v", want[name], got[name])
}

// An ingress listener that begins to depend on the address of the workload is not away meanwhile.
func TestIngress_AddressDependencyKeepsListener(t *testing.T) {
	sidecar := func(to string) string {
		return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: in, namespace: shop}
spec: {ingress: [{port: {number: 9080, protocol: HTTP, name: a}, bind: 127.0.0.1, defaultEndpoint: "%s:8080"}]}
`, to)
	}
	steps := newSteps(Options{}, decoded(t, sidecar("127.0.0.1"))...)
	n := nodeAt("10.0.0.1", node("shop", "NONE", ""))
	seen := see(t, steps.c, []*corev3.Node{n})
	first := seen.collections[0][xds.ListenerURL]
	require.NotNil(t, first.Get("127.0.0.1_9080"))
	steps.apply(decoded(t, sidecar("0.0.0.0"))) // the sight checks that its client is moved to equal resources
	require.NotSame(t, first, seen.collections[0][xds.ListenerURL])
	require.NotNil(t, seen.collections[0][xds.ListenerURL].Get("127.0.0.1_9080"))
}

// Clients with addresses that they make up do not hold up changes for longer than one of them takes.
func TestManyAddresses_DelayNoChanges(t *testing.T) {
	service := func(name, address string, day int) *resource.Resource {
		text := serviceAt(name, 80, "{address: "+address+"}")
		created := fmt.Sprintf("namespace: shop, creationTimestamp: '2026-01-%02dT00:00:00Z'}", day)
		return decoded(t, strings.Replace(text, "namespace: shop}", created, 1))[0]
	}
	var first []*resource.Resource
	for i := range 2000 {
		first = append(first, service(fmt.Sprint("s", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250), 1))
	}
	s := newSteps(Options{}, first...)
	come := func(i int) {
		text := ""
		for j := range model.MaxAddresses {
			text += fmt.Sprintf(",2001:db8::%x:%x", i, j)
		}
		_, release, err := s.c.Collection(context.Background(), withAddresses(text, node("shop", "REDIRECT", "")), xds.ListenerURL)
		if err == nil {
			release()
		}
	}
	come(0)
	begin, finished := time.Now(), 0
	var mu sync.Mutex
	var clients sync.WaitGroup
	for i := range 400 {
		clients.Go(func() {
			come(i)
			mu.Lock()
			defer mu.Unlock()
			finished++
		})
	}
	for before := 0; before < 10; time.Sleep(time.Millisecond) {
		mu.Lock()
		before = finished
		mu.Unlock()
	}
	s.apply([]*resource.Resource{service("s0", "10.0.0.1", 2)})
	mu.Lock()
	before := finished
	mu.Unlock()
	took := time.Since(begin)
	clients.Wait()
	require.Less(t, before, 280, "%v of %v", took, time.Since(begin))
}
