package dubbo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/dubbo/registry"
	"tributary/sources/dubbo/zookeeper/zktest"
)

// TestNothingIsServedWithoutAWord has registries in which there is nothing to serve, as when the address has another group than the
// providers, or a setting has a slip.
func TestNothingIsServedWithoutAWord(t *testing.T) {
	says := func(s *zktest.Server, settings Settings, message string) {
		t.Helper()
		b := start(t, s, settings)
		b.awaitSync()
		b.await("it says "+message, func() bool { return b.status().State == sources.Healthy && b.status().Message == message })
		require.Empty(t, b.show())
	}
	says(zktest.New(), patiently(), "no Dubbo provider in zookeeper /dubbo/")

	s := zktest.New()
	s.Put(node("com.acme.Demo", "10.0.0.1:20880", "", 1), leaf)
	s.Put(node("com.acme.Other", "10.0.0.1:20880", "", 1), leaf)
	none := patiently()
	none.Interfaces = []string{"com.nothing.*"}
	says(s, none, "nothing is served: none of 2 interfaces and 0 applications has a provider that the settings select")

	s = zktest.New()
	instanceOf(s, "app", "10.0.0.1:20880", "r1")
	report(s, "/dubbo/metadata", "app", "r1", "a")
	says(s, none, "nothing is served: none of 0 interfaces and 1 applications has a provider that the settings select; "+
		"app by the metadata report")

	s = zktest.New()
	s.Put("/services/orders/1", `{"name":"orders","address":"10.0.0.9","port":8080,"payload":{"metadata":{"instance_status":"UP"}}}`)
	says(s, patiently(), "no Dubbo provider in zookeeper /dubbo/, but 1 other services")
}

// TestWhatIsLeftOut has providers that are not to be called, and some that cannot be.
func TestWhatIsLeftOut(t *testing.T) {
	s := zktest.New()
	s.Put(node("com.acme.Demo", "10.0.0.1:20880", "", 1), leaf)
	s.Put(node("com.acme.Demo", "10.0.0.2:20880", "weight=0&version=1.0.0", 1), leaf)
	s.Put(node("com.acme.Demo", "10.0.0.3:20880", "disabled=TRUE", 1), leaf)
	s.Put(node("com.acme.Demo", "0.0.0.0:20880", "group=g", 1), leaf)
	s.Put(node("com.acme.Demo", "10.0.0.4:99999", "", 1), leaf)
	b := start(t, s, patiently())
	b.awaitSync()
	var left []string
	b.await("they are named", func() bool {
		left = nil
		for _, l := range b.status().LeftOut {
			left = append(left, l.String())
		}
		return len(left) == 4
	})
	require.ElementsMatch(t, []string{
		"10.0.0.2:20880 of com.acme.Demo:1.0.0 (weight 0)", "10.0.0.3:20880 of com.acme.Demo (disabled)",
		"0.0.0.0:20880 of g/com.acme.Demo (no address that can be called)",
		`a provider of com.acme.Demo ("dubbo://10.0.0.4:99999/com.acme.Demo?application=app&interface=com.acme.Demo&timestamp=` +
			`1700000000001": "99999" is no port)`,
	}, left)
}

// TestAStartIsNoFailure has nobody alarmed by what is said before the registry was asked.
func TestAStartIsNoFailure(t *testing.T) {
	r := &run{connection: registry.Connection{Message: notConnected}}
	require.Equal(t, sources.Health{State: sources.Starting, Message: "not connected yet"}, r.health(time.Now()))
	r.connection.Message = "connection refused"
	require.Equal(t, sources.Unreachable, r.health(time.Now()).State)
}
