package kube

import (
	"net/http"
	"testing"

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
