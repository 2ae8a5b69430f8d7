package dubbo

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// TestNothingIsServedWithoutAWord has registries in which there is nothing to serve, as when the address has another group than the providers, or a setting has a slip.
func TestNothingIsServedWithoutAWord(t *testing.T) {
	says := func(s *zktest.Server, settings Settings, message string) {
		t.Helper()
		b := start(t, s, settings)
		b.awaitSync()
		b.await("it says "+message, func() bool { return b.status().State == sources.Healthy && b.status().Message == message })
		require.Empty(t, b.show())
	}
	says(zktest.New(), patiently(), "there is no provider of Dubbo in zookeeper /dubbo/")

	s := zktest.New()
	s.Put(node("com.acme.Demo", "10.0.0.1:20880", "", 1), leaf)
	s.Put(node("com.acme.Other", "10.0.0.1:20880", "", 1), leaf)
	none := patiently()
	none.Interfaces = []string{"com.nothing.*"}
	says(s, none, "nothing is served: there are 2 interfaces and 0 applications of Dubbo, and none has a provider that the settings select")

	s = zktest.New()
	instanceOf(s, "app", "10.0.0.1:20880", "r1")
	report(s, "/dubbo/metadata", "app", "r1", "a")
	says(s, none, "nothing is served: there are 0 interfaces and 1 applications of Dubbo, and none has a provider that the settings select; app by the metadata report")

	s = zktest.New()
	s.Put("/services/orders/1", `{"name":"orders","address":"10.0.0.9","port":8080,"payload":{"metadata":{"instance_status":"UP"}}}`)
	says(s, patiently(), "there is no provider of Dubbo in zookeeper /dubbo/, but 1 other services")
}
