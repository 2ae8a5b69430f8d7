package kube

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources/kube/kubetest"
)

// TestFailingKind_DelaysNoOther: the server cannot read the objects of a kind, as with a conversion webhook that is
// down.
func TestFailingKind_DelaysNoOther(t *testing.T) {
	server := istioServer(t)
	put(server, 1, "a")
	server.Fault(virtuals, kubetest.Fault{Status: http.StatusInternalServerError})
	r := startQuick(t, server, Settings{})
	r.serves("ServiceEntry shop/a")
}

// TestFailingPolicies_DelayAllObjects: the server fails to read policies that deny requests. The source publishes no
// object, since all requests would pass.
func TestFailingPolicies_DelayAllObjects(t *testing.T) {
	const policies = "authorizationpolicies.security.istio.io"
	server := kubetest.Start(t, entries, policies)
	put(server, 1, "a")
	server.Fault(policies, kubetest.Fault{Status: http.StatusInternalServerError})
	rig := startQuick(t, server, Settings{})
	n := 0
	rig.Await("five attempts and more", func() bool {
		for _, path := range server.Requests() {
			if strings.Contains(path, "/authorizationpolicies") {
				n++
			}
		}
		return n > 2*maxFailuresAtStart
	})
	require.Empty(t, slices.Collect(rig.table.Snapshot().All()))
}
