package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"tributary/e2e/fixture"
)

// readIstio are the rights that a source of Istio's objects needs.
const readIstio = `[{apiGroups: ["*"], resources: ["*"], verbs: [get, list, watch]}]`

// kubeTime is how long a change may take. A source retries after half a minute at most.
const kubeTime = 75 * time.Second

// kubeWorld is an API server with objects that a tributary serves to an istiod.
type kubeWorld struct {
	*fixture.Kube

	tributary *fixture.Tributary
	istiod    *fixture.Istiod
	objects   fixture.Objects // The objects that istiod ought to have.
}

// startCluster has a cluster with a first object, which a source with options reads.
func startCluster(t *testing.T, options map[string]any) *kubeWorld {
	t.Helper()
	c := &kubeWorld{Kube: fixture.StartKube(t, "istio"), objects: fixture.Objects{}}
	c.Grant(t, "", readIstio)
	c.Apply(t, serviceEntry("kept", 80))
	source := c.Source("cluster")
	source.Options = options
	c.tributary = fixture.StartTributary(t, source)
	c.istiod = fixture.NewIstiod(t, "xds://"+c.tributary.XDS)
	c.istiod.AwaitSynced(t)
	c.awaitObjects(t, "at first", serviceEntry("kept", 80))
	return c
}

// awaitObjects waits until istiod has its earlier objects, and these.
func (k *kubeWorld) awaitObjects(t *testing.T, step, objects string) {
	t.Helper()
	began := time.Now()
	maps.Copy(k.objects, fixture.ParseObjects(t, objects))
	k.istiod.WaitFor(t, kubeTime, func() error {
		got, err := k.istiod.Configs(t.Context())
		if err != nil {
			return err
		}
		return k.objects.Diff(got)
	})
	t.Logf("%s: after %v", step, time.Since(began).Round(10*time.Millisecond))
}

// apply makes or changes objects, and waits until istiod has them.
func (k *kubeWorld) apply(t *testing.T, step, objects string) {
	t.Helper()
	k.Apply(t, objects)
	k.awaitObjects(t, step, objects)
}

// delete deletes an object, and waits until istiod does not have it.
func (k *kubeWorld) delete(t *testing.T, step string, key fixture.Key) {
	t.Helper()
	k.Delete(t, k.objects[key].APIVersion, key)
	k.lacks(t, step, key)
}

// lacks waits until istiod has its earlier objects without this one.
func (k *kubeWorld) lacks(t *testing.T, step string, key fixture.Key) {
	t.Helper()
	delete(k.objects, key)
	k.awaitObjects(t, step, "")
}

// during does something, while istiod has at each moment all that it ought to have now.
func (k *kubeWorld) during(t *testing.T, step string, do func()) {
	t.Helper()
	began, w := time.Now(), guard(t, k.istiod, maps.Clone(k.objects))
	do()
	t.Logf("%s: %v, and istiod had everything at %d looks", step, time.Since(began).Round(10*time.Millisecond), w.stop(t))
}

// says waits until the status of tributary matches a pattern.
func (k *kubeWorld) says(t *testing.T, want string) {
	t.Helper()
	began := time.Now()
	k.tributary.WaitFor(t, kubeTime, func() error {
		if status := k.tributary.Ask(t, "status"); !regexp.MustCompile(want).MatchString(status) {
			return fmt.Errorf("no %q in:\n%s", want, status)
		}
		return nil
	})
	t.Logf("status says %q: after %v", want, time.Since(began).Round(10*time.Millisecond))
}

// TestKubeKinds shows that an object of each kind that istiod has reaches it when it comes, changes and goes.
func TestKubeKinds(t *testing.T) {
	t.Parallel()
	c := startCluster(t, map[string]any{"guard": "off"})
	text, err := os.ReadFile(filepath.Join("testdata", "kinds", "kinds.yaml"))
	require.NoError(t, err)
	var kinds []string
	for docs := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc map[string]any
		if err := docs.Decode(&doc); errors.Is(err, io.EOF) {
			break
		}
		kind := doc["kind"].(string)
		kinds = append(kinds, kind)
		created, err := yaml.Marshal(doc)
		require.NoError(t, err)
		c.apply(t, kind+" comes", string(created))
		doc["metadata"].(map[string]any)["labels"] = map[string]any{"changed": "yes"}
		changed, err := yaml.Marshal(doc)
		require.NoError(t, err)
		c.apply(t, kind+" changes", string(changed))
	}
	slices.Sort(kinds)
	require.Equal(t, fixture.Kinds(), kinds)
	for key := range fixture.ParseObjects(t, string(text)) {
		c.delete(t, key.Kind+" goes", key)
	}
}

// TestKubeTroubles shows that istiod has the right objects while rights are missing, the API server is down or loses
// its history, etcd is restored from an older snapshot, and a CRD is deleted and created again.
func TestKubeTroubles(t *testing.T) {
	t.Parallel()
	const hold = 10 * time.Second
	c := startCluster(t, map[string]any{"hold": hold.String()})
	rule := func(name string) fixture.Key {
		return fixture.Key{Kind: "VirtualService", Namespace: "shop", Name: name}
	}
	c.apply(t, "rules come", virtualService("one", "v1.mesh.internal")+"---\n"+virtualService("two", "v1.mesh.internal"))

	// Rights go, but for those of one kind. Watches that run go on; at the restart of the API server they end.
	c.Grant(t, "", `[{apiGroups: [networking.istio.io], resources: [serviceentries], verbs: [get, list, watch]}]`)
	c.apply(t, "a watch goes on without the right", virtualService("two", "v2.mesh.internal"))
	c.during(t, "without rights", func() {
		c.API.Kill()
		c.Restart(t)
		c.says(t, "no right to list and watch [^:;]*virtualservices.networking.istio.io")
		c.Delete(t, "networking.istio.io/v1", rule("two"))
		c.apply(t, "a kind with rights changes", serviceEntry("other", 80))
		time.Sleep(hold) // No change may arrive in this time.
	})
	c.Grant(t, "", readIstio)
	c.lacks(t, "objects deleted without rights go when the rights are back", rule("two"))

	c.during(t, "without an API server", func() {
		c.API.Kill()
		awaitState(t, c.tributary, "cluster", "unreachable", true)
		time.Sleep(awayFor()) // The test is about the length of the outage.
		c.Restart(t)
		awaitState(t, c.tributary, "cluster", "healthy", false)
	})
	c.apply(t, "a change after that", virtualService("two", "v2.mesh.internal"))

	// While tributary is cut off, objects come and go, and the past is compacted.
	c.Gate.Shut()
	c.Delete(t, "networking.istio.io/v1", rule("two"))
	c.Apply(t, virtualService("three", "v1.mesh.internal"))
	c.Compact(t)
	c.Gate.Open()
	delete(c.objects, rule("two"))
	c.awaitObjects(t, "after a compaction", virtualService("three", "v1.mesh.internal"))

	// A snapshot comes back: newer objects are held, deleted objects are there again, and the rest never goes.
	snapshot := c.Snapshot(t)
	c.apply(t, "newer than the snapshot", virtualService("newer", "v1.mesh.internal"))
	c.delete(t, "goes after the snapshot", rule("three"))
	for i := range 30 { // Revisions that the restored etcd will not have for a while.
		c.Apply(t, serviceEntry("other", 81+i))
	}
	c.awaitObjects(t, "changes many times", serviceEntry("other", 110))
	delete(c.objects, fixture.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "other"}) // It will be as it was.
	c.during(t, "restored", func() {
		c.Restore(t, snapshot)
		c.says(t, "went back in time")
	})
	c.awaitObjects(t, "as in the snapshot", serviceEntry("other", 80)+"---\n"+virtualService("three", "v1.mesh.internal"))
	c.lacks(t, "newer objects go after the hold", rule("newer"))

	// With the CRD all objects go, each with an event. The guard holds them. Then one is made again with the CRD.
	c.during(t, "without a CRD", func() {
		c.Delete(t, "apiextensions.k8s.io/v1",
			fixture.Key{Kind: "CustomResourceDefinition", Name: "virtualservices.networking.istio.io"})
		c.says(t, "objects of kind VirtualService would go")
		c.ApplyCRDs(t, "istio")
		c.Apply(t, virtualService("one", "v1.mesh.internal"))
	})
	c.apply(t, "a change after that", virtualService("one", "v2.mesh.internal"))
	c.tributary.Ask(t, "guard", "release", "cluster")
	c.lacks(t, "objects that are not created again go when the hold is released", rule("three"))
}

// TestKubeCRDWithManyObjects deletes a CRD with objects that the server deletes one by one for a second. The guard
// holds them all, not only the half that is left.
func TestKubeCRDWithManyObjects(t *testing.T) {
	t.Parallel()
	const number = 300
	c := fixture.StartKube(t, "istio")
	c.Grant(t, "", readIstio)
	c.Apply(t, virtualService("first", "v1.mesh.internal"))
	c.CreateMany(t, "networking.istio.io/v1", "VirtualService", "shop", number, func(i int) string {
		return fmt.Sprintf(`{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
"metadata": {"name": "many%[1]d", "namespace": "shop"},
"spec": {"hosts": ["many%[1]d.mesh.internal"], "http": [{"directResponse": {"status": 200}}]}}`, i)
	})
	tributary := fixture.StartTributary(t, c.Source("cluster"))
	tributary.AwaitReady(t)
	require.Equal(t, number+1, tributary.Metric(t, "tributary_source_objects", "VirtualService"))
	crd := fixture.Key{Kind: "CustomResourceDefinition", Name: "virtualservices.networking.istio.io"}
	c.Delete(t, "apiextensions.k8s.io/v1", crd)
	tributary.WaitFor(t, kubeTime, func() error {
		if held := tributary.Metric(t, "tributary_guard_held_objects", ""); held != number+1 {
			return fmt.Errorf("the guard holds %d of %d objects", held, number+1)
		}
		return nil
	})
}

// kubeBackend is a backend that answers with its name, at an address of this machine.
func kubeBackend(t *testing.T, name, address string) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	s := &httptest.Server{Listener: l, Config: &http.Server{ //nolint:gosec // a test's
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }),
	}}
	s.Start()
	t.Cleanup(s.Close)
	return l.Addr().(*net.TCPAddr).Port
}

// kubeService is a Service with HTTP on a port.
func kubeService(port int, status string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec: {type: LoadBalancer, ports: [{name: http, port: %d}]}
%s---
`, port, status)
}

// kubeSlice is a slice of that Service with an endpoint.
func kubeSlice(name, address string, port int, conditions string) string {
	return fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s, namespace: shop, labels: {kubernetes.io/service-name: reviews}}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints: [{addresses: [%q], zone: a, conditions: {%s}}]
---
`, name, port, address, conditions)
}

// TestKubeServices shows that the Services of two clusters, one of them by its slices and one by its load balancers,
// are one host for an Envoy that tributary alone serves, and that a rule of a cluster is followed.
func TestKubeServices(t *testing.T) {
	t.Parallel()
	const host = "reviews.shop.svc.cluster.local"
	outside := fixture.Outside(t) // Slices may not have loopback addresses.
	port := fixture.FreePort(t)
	backendOne, backendTwo := kubeBackend(t, "one", outside+":0"), kubeBackend(t, "two", outside+":0")
	kubeBackend(t, "three", fmt.Sprint("127.0.0.2:", port))
	pods, balanced := fixture.StartKube(t, "istio"), fixture.NewKube(t)
	for _, k := range []*fixture.Kube{pods, balanced} {
		k.Grant(t, "shop", readIstio)
	}
	source := func(k *fixture.Kube, name, endpoints string) fixture.ConfigSource {
		return k.Source(name).With("namespaces", []string{"shop"}).With("merge", "endpoints").With("guard", "off").
			With("services", map[string]any{"endpoints": endpoints, "region": "eu"})
	}
	const ready, draining, notReady = "ready: true", "ready: false, serving: true, terminating: true", "ready: false, serving: false"
	pods.Apply(t, kubeService(port, "")+kubeSlice("a", outside, backendOne, ready))
	tributary := fixture.StartTributary(t, source(pods, "pods", "pods"), source(balanced, "balanced", "loadBalancer"))
	tributary.AwaitReady(t)
	envoy := fixture.StartEnvoy(t, tributary.XDS)
	answers := func(step string, names ...string) {
		t.Helper()
		began := time.Now()
		envoy.WaitFor(t, kubeTime, answeredByAll(t, port, host, names))
		t.Logf("%s: after %v", step, time.Since(began).Round(10*time.Millisecond))
	}
	answers("at first", "one")
	pods.Apply(t, kubeSlice("a", outside, backendTwo, ready))
	answers("another endpoint", "two")
	pods.Apply(t, kubeSlice("a", outside, backendTwo, draining))
	pods.Apply(t, kubeSlice("b", outside, backendOne, ready))
	answers("the first endpoint ends, a second slice has another", "one")
	pods.Apply(t, kubeSlice("b", outside, backendOne, notReady))
	answers("the second is not ready, the first still serves", "two")

	balanced.Apply(t, kubeService(port, "status: {loadBalancer: {ingress: [{ip: 127.0.0.2}]}}\n"))
	answers("the other cluster has the Service", "two", "three")
	pods.Delete(t, "v1", fixture.Key{Kind: "Service", Namespace: "shop", Name: "reviews"})
	answers("the first cluster has it no more", "three")
	pods.Apply(t, kubeService(port, ""))
	answers("it is back", "two", "three")
	pods.API.Kill()
	answers("the first cluster is away", "two", "three")
	pods.Restart(t)
	pods.Apply(t, kubeSlice("b", outside, backendOne, ready))
	answers("it is back, with a change", "one", "three")

	pods.Apply(t, fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: shop}
spec: {hosts: [%s], http: [{directResponse: {status: 200, body: {string: rule}}}]}
`, host))
	answers("a rule", "rule")
	pods.Delete(t, "networking.istio.io/v1", fixture.Key{Kind: "VirtualService", Namespace: "shop", Name: "reviews"})
	answers("the rule goes", "one", "three")
}
