package kube

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/kube/kubetest"
)

const policies = "authorizationpolicies.security.istio.io"

// unreadKeys returns the keys that Envoys refuse because they were never read.
func (r *rig) unreadKeys() (keys []string) {
	for _, key := range r.table.Snapshot().Invalid() {
		keys = append(keys, key.String())
	}
	return keys
}

// If policies may not be read the first time, Envoys refuse all requests. The reason names the right. Once it is
// granted, they refuse none.
func TestPolicies_WithoutRightAreRefused(t *testing.T) {
	server := kubetest.Start(t, entries, policies)
	put(server, 1, "a")
	deny(server, policies)
	rig := startQuick(t, server, Settings{Kinds: []string{"ServiceEntry", "AuthorizationPolicy"}})
	rig.serves("ServiceEntry shop/a")
	require.Len(t, rig.unreadKeys(), 1)
	require.Contains(t, rig.unreadKeys()[0], "no right to list and watch "+policies)
	rig.AwaitState(sources.Degraded, "policies were never read, so Envoys refuse all requests: grant the right")
	allow(server, policies)
	rig.Await("nothing is refused", func() bool { return len(rig.unreadKeys()) == 0 })
	rig.AwaitState(sources.Healthy, "")
	deny(server, policies)
	rig.AwaitState(sources.Degraded, "no right to list and watch "+policies)
	require.NotContains(t, rig.Status().Message, "refuse all requests", "they were read once")
}

// Kinds that the settings leave out are no kinds without a right.
func TestPolicies_ExcludedAreNotRefused(t *testing.T) {
	server := kubetest.Start(t, entries, policies)
	put(server, 1, "a")
	deny(server, policies)
	r := startQuick(t, server, Settings{Kinds: []string{"ServiceEntry"}})
	r.serves("ServiceEntry shop/a")
	require.Empty(t, r.unreadKeys())
}

// A server that does not list the group of policies is looked at several times before it counts as one without.
func TestPolicies_MissingAreConfirmed(t *testing.T) {
	server := kubetest.Start(t, entries)
	put(server, 1, "a")
	rig := startQuick(t, server, Settings{Kinds: []string{"ServiceEntry", "AuthorizationPolicy"}})
	rig.Await("a refusal, or its end", func() bool {
		keys := rig.unreadKeys()
		return len(keys) == 1 && strings.Contains(keys[0], "does not list the kind") || server.Looks() > 1
	})
	rig.Await("nothing is refused", func() bool { return rig.table.Synced() && len(rig.unreadKeys()) == 0 })
	require.Greater(t, server.Looks(), 1)
}
