package dubbo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/dubbo/registry"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// TestEmptyRegistry_ExplainedByStatus has registries without a provider to serve, as after a wrong group in the address or
// a slip in a setting.
func TestEmptyRegistry_ExplainedByStatus(t *testing.T) {
	says := func(s *zktest.Server, settings Settings, message string) {
		t.Helper()
		b := start(t, s, settings)
		b.AwaitSync()
		b.Await("it says "+message, func() bool { return b.Status().State == sources.Healthy && b.Status().Message == message })
		require.Empty(t, b.show())
	}
	says(zktest.New(), patiently(), "no Dubbo provider in zookeeper /dubbo/")

	s := zktest.New()
	register(s, "com.acme.Demo 10.0.0.1", "com.acme.Other 10.0.0.1")
	unselecting := patiently()
	unselecting.Interfaces = []string{"com.nothing.*"}
	says(s, unselecting, "nothing is served: none of 2 interfaces and 0 applications has a provider that the settings select")

	s = zktest.New()
	applicationOf(s, "app", "10.0.0.1:20880", "r1", "a")
	says(s, unselecting, "nothing is served: none of 0 interfaces and 1 applications has a provider that the settings select; "+
		"app by the metadata report")

	s = zktest.New()
	s.Put("/services/orders/1", `{"name":"orders","address":"10.0.0.9","port":8080,"payload":{"metadata":{"instance_status":"UP"}}}`)
	says(s, patiently(), "no Dubbo provider in zookeeper /dubbo/, but 1 other services")
}

// TestLeftOut_NamesInstances has providers that are not to be called, and some that cannot be.
func TestLeftOut_NamesInstances(t *testing.T) {
	server := zktest.New()
	register(server, "com.acme.Demo 10.0.0.1", "com.acme.Demo 10.0.0.2 weight=0&version=1.0.0")
	register(server, "com.acme.Demo 10.0.0.3 disabled=TRUE", "com.acme.Demo 0.0.0.0 group=g", "com.acme.Demo 10.0.0.4:99999")
	rig := start(t, server, patiently())
	rig.AwaitSync()
	var texts []string
	rig.Await("they are named", func() bool {
		texts = nil
		for _, l := range rig.Status().LeftOut {
			texts = append(texts, l.String())
		}
		return len(texts) == 4
	})
	require.ElementsMatch(t, []string{
		"10.0.0.2:20880 of com.acme.Demo:1.0.0 (weight 0)", "10.0.0.3:20880 of com.acme.Demo (disabled)",
		"0.0.0.0:20880 of g/com.acme.Demo (no address that can be called)",
		`a provider of com.acme.Demo ("dubbo://10.0.0.4:99999/com.acme.Demo?application=app&interface=com.acme.Demo&timestamp=` +
			`1700000000001": "99999" is no port)`,
	}, texts)
}

// TestHealth_BeginsWithoutFailure expects the state Starting before the first connection.
func TestHealth_BeginsWithoutFailure(t *testing.T) {
	r := &run{connection: registry.Connection{Message: notConnected}}
	require.Equal(t, sources.Health{State: sources.Starting, Message: "not connected yet"}, r.health(time.Now()))
	r.connection.Message = "connection refused"
	require.Equal(t, sources.Unreachable, r.health(time.Now()).State)
}
