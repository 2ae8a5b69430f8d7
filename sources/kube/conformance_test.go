package kube

import (
	"fmt"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"tributary/adsc"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/kube/kubetest"
	"tributary/sources/sourcetest"
)

const (
	entries  = "serviceentries.networking.istio.io"
	virtuals = "virtualservices.networking.istio.io"
)

func TestConformance(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Harness { return &harness{t: t, server: istioServer(t)} })
}

// harness is a cluster with a ServiceEntry for each object.
type harness struct {
	t      *testing.T
	server *kubetest.Server
	hold   time.Duration // zero for the default
	losses int
}

// quick makes a source with short delays.
func quick(t *testing.T, server *kubetest.Server, settings Settings) *Source {
	settings.TLS = &adsc.TLS{Mode: adsc.TLSDisable}
	return quickAt(t, "k8s://"+server.Host(), settings)
}

// quickAt is quick for an address.
func quickAt(t *testing.T, address string, settings Settings) *Source {
	s, err := New(address, settings)
	require.NoError(t, err)
	s.newBackOff = func() backoff.BackOff { return backoff.NewConstantBackOff(5 * time.Millisecond) }
	s.discoveryInterval, s.settleTime, s.collectTime, s.pageSize = 20*time.Millisecond, 50*time.Millisecond, time.Millisecond, 2
	s.maxWatch = 2 * time.Second
	return s
}

func (h *harness) Source() sources.Source { return quick(h.t, h.server, Settings{Hold: h.hold}) }

// manyVersions is how many resource versions a loss goes back.
const manyVersions = 1000

func (h *harness) SetHold(hold time.Duration) {
	h.hold = hold
	h.server.Renumber(1000 * manyVersions)
}

func (h *harness) Lose(names ...string) {
	h.losses++
	for n, name := range names {
		names[n] = "shop/" + name
	}
	h.server.Renumber((1000-h.losses)*manyVersions, names...)
}

func (h *harness) Key(name string) resource.Key {
	return entryKey("shop", name)
}

func (h *harness) Put(name string, revision int) { put(h.server, revision, name) }

// put makes a ServiceEntry whose content is its revision.
func put(server *kubetest.Server, revision int, names ...string) {
	for _, name := range names {
		server.Put(entries, "shop", name, fmt.Sprintf("spec: {hosts: [%s.example], resolution: STATIC, "+
			"ports: [{number: %d, name: http}], endpoints: [{address: 10.0.0.1}]}", name, 80+revision))
	}
}

// istioServer starts a server that has two kinds of Istio, and other resources.
func istioServer(t *testing.T, others ...string) *kubetest.Server {
	return kubetest.Start(t, append(others, entries, virtuals)...)
}

func deny(server *kubetest.Server, resources ...string) {
	for _, resource := range resources {
		server.Deny(resource)
	}
	server.Cut()
}

// allow gives back all rights, or those to some resources.
func allow(server *kubetest.Server, resources ...string) {
	server.Allow(resources...)
	server.Cut()
}

func entryKey(namespace, name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: namespace, Name: name}
}

func (h *harness) Break(name string) {
	h.server.Put(entries, "shop", name, "spec: {hosts: 7}")
}

func (h *harness) Delete(name string) { h.server.Delete(entries, "shop", name) }

func (h *harness) Unreachable() { h.server.Down(true) }

func (h *harness) Deny() {
	deny(h.server, entries, virtuals)
}

func (h *harness) Restore() {
	h.server.Down(false)
	allow(h.server)
}

// putVirtuals puts some VirtualServices, for later resource versions.
func putVirtuals(server *kubetest.Server, n int) {
	for i := range n {
		server.Put(virtuals, "shop", fmt.Sprint("v", i), virtual("a"))
	}
}
