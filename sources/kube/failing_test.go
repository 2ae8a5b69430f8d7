package kube

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources/kube/kubetest"
)

// TestAKindThatFailsHoldsUpNobody: one whose objects the server cannot read, as with a conversion webhook that is down.
func TestAKindThatFailsHoldsUpNobody(t *testing.T) {
	server := kubetest.Start(t, istio())
	put(server, "shop", "a", 1)
	server.Fault(virtuals, kubetest.Fault{Status: http.StatusInternalServerError})
	r := start(t, server, quick(t, server, Settings{}))
	r.serves("ServiceEntry shop/a")
}

// TestPoliciesAreWaitedFor has the server fail to read what denies: nothing is served, since all would pass.
func TestPoliciesAreWaitedFor(t *testing.T) {
	const policies = "authorizationpolicies.security.istio.io"
	server := kubetest.Start(t, map[string]string{entries: istio()[entries], policies: "security.istio.io/v1/AuthorizationPolicy"})
	put(server, "shop", "a", 1)
	server.Fault(policies, kubetest.Fault{Status: http.StatusInternalServerError})
	r := start(t, server, quick(t, server, Settings{}))
	n := 0
	r.await("five attempts and more", func() bool {
		for _, path := range server.Requests() {
			if strings.Contains(path, "/authorizationpolicies") {
				n++
			}
		}
		return n > 2*patience
	})
	require.Empty(t, slices.Collect(r.table.Snapshot().All()))
}
