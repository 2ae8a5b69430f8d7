package envoy

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/model"
)

// Complete routes that are encoded for their findings only are freed at once.
func TestOnDemand_KeepsNoCompleteRoutes(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: ns}
spec: {hosts: [one.internal], addresses: [240.0.0.1], resolution: NONE, ports: [{number: 80, name: p, protocol: HTTP}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: two, namespace: ns}
spec: {hosts: [two.internal], addresses: [240.0.0.1], resolution: NONE, ports: [{number: 80, name: p, protocol: HTTP}]}
`), nil)
	catalog := catalogOfTable(&table)
	profile := model.ProfileOf(demandingNode("ns"))
	require.True(t, profile.OnDemand)
	workloadView := catalog.newScope(profile)
	require.Equal(t, 1, workloadView.shared["80"].duplicates)
	key := resource.Key{Kind: resource.ServiceEntry, Namespace: "ns", Name: "two"}
	table.Apply(nil, []resource.Key{key})
	catalog.apply([]resource.Key{key}, table.Snapshot(), true)
	require.Zero(t, workloadView.shared["80"].duplicates)
	require.False(t, workloadView.shared["80"].inFull)
	require.Eventually(t, func() bool {
		runtime.GC()
		return sizeOf(&catalog.bodies.routes) == 0
	}, 5*time.Second, 10*time.Millisecond)
	runtime.KeepAlive(workloadView)
}
