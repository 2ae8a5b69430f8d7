package envoy

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// Profiles with equal routes for a port share the encoded bytes; unused bytes are freed.
func TestProfiles_ShareEqualBodies(t *testing.T) {
	const services, profiles = 500, 20
	var text strings.Builder
	for i := range services {
		fmt.Fprintf(&text, "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: s%d, namespace: n%d}\n"+
			"spec: {hosts: [s%[1]d.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: "+
			"10.0.0.1}]}\n---\n", i, i%profiles)
	}
	catalog := catalogOf(t, text.String())
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // it is not that much
	}
	var scopes []*workloadView
	var first int64
	for i := range profiles {
		p := model.ProfileOf(node(fmt.Sprint("n", i), "", ""))
		catalog.selectProfile(&p, nil, nil)
		scopes = append(scopes, catalog.newScope(p))
		if i == 0 {
			first = heap()
		}
	}
	t.Logf("%d bytes for each profile more, of %d services", (heap()-first)/(profiles-1), services)
	require.Len(t, catalog.following, profiles)
	for _, s := range scopes[1:] {
		for _, url := range []string{xds.ClusterURL, xds.EndpointURL, xds.ListenerURL, xds.RouteURL} {
			n := 0
			for entry := range scopes[0].collection(url).All() {
				if url == xds.ClusterURL && !strings.HasPrefix(entry.Name, "outbound") {
					continue
				}
				require.Same(t, entry, s.collection(url).Get(entry.Name), entry.Name)
				n++
			}
			require.NotZero(t, n)
		}
	}
	require.NotZero(t, sizeOf(&catalog.bodies.entries))
	require.Equal(t, 1, sizeOf(&catalog.bodies.routes), "routes of the same hosts are encoded once")
	for _, s := range scopes {
		catalog.dropScope(s.scope)
	}
	clear(scopes)
	require.Eventually(t, func() bool {
		runtime.GC()
		return sizeOf(&catalog.bodies.entries)+sizeOf(&catalog.bodies.routes) == 0
	}, 20*time.Second, 10*time.Millisecond)
}

// requireNoTranslations waits until a catalog without scopes has no translations.
func requireNoTranslations(t *testing.T, catalog *Catalog) {
	t.Helper()
	require.Eventually(t, func() bool {
		runtime.GC()
		return sizeOf(&catalog.bodies.translations) == 0
	}, 20*time.Second, 10*time.Millisecond)
}

func sizeOf[K comparable, V any](m *weakMap[K, V]) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.values)
}
