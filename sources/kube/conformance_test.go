package kube

import (
	"net/http"
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

func istio() map[string]string {
	return map[string]string{entries: "networking.istio.io/v1/ServiceEntry", virtuals: "networking.istio.io/v1beta1/VirtualService"}
}

func TestConformance(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Harness { return &harness{t: t, server: kubetest.Start(t, istio())} })
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
	s, err := New("k8s://"+server.Host(), settings)
	require.NoError(t, err)
	s.newBackOff = func() backoff.BackOff { return backoff.NewConstantBackOff(5 * time.Millisecond) }
	s.lookEvery, s.settle, s.delay, s.pageSize = 20*time.Millisecond, 50*time.Millisecond, time.Millisecond, 2
	s.watchFor = 2 * time.Second
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
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: name}
}

func (h *harness) Put(name string, revision int) { put(h.server, "shop", name, revision) }

// put makes a ServiceEntry whose content is its revision.
func put(server *kubetest.Server, namespace, name string, revision int) {
	server.Put(entries, namespace, name, nil, map[string]any{"spec": map[string]any{
		"hosts": []string{name + ".example"}, "resolution": "STATIC", "ports": []any{map[string]any{"number": 80 + revision, "name": "http"}},
		"endpoints": []any{map[string]any{"address": "10.0.0.1"}},
	}})
}

func (h *harness) Break(name string) {
	h.server.Put(entries, "shop", name, nil, map[string]any{"spec": map[string]any{"hosts": 7}})
}

func (h *harness) Delete(name string) { h.server.Delete(entries, "shop", name) }

func (h *harness) Unreachable() { h.server.Down(true) }

func (h *harness) Deny() {
	h.server.Fault(entries, kubetest.Fault{Status: http.StatusForbidden})
	h.server.Fault(virtuals, kubetest.Fault{Status: http.StatusForbidden})
}

func (h *harness) Restore() {
	h.server.Down(false)
	h.server.Fault(entries, kubetest.Fault{})
	h.server.Fault(virtuals, kubetest.Fault{})
}
