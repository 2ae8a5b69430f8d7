package e2e

import (
	"context"
	"testing"
	"time"

	"tributary/e2e/fixture"
)

// eurekaTime is within which a change in a Eureka shows in istiod that answers from a cache of a second. It takes three
// seconds on an idle machine.
const eurekaTime = 15 * time.Second

// eurekaHold is the hold of suspect instances in these tests.
const eurekaHold = 15 * time.Second

// eurekaMesh is an istiod behind a tributary that reads a Eureka.
type eurekaMesh struct {
	t         *testing.T
	tributary *fixture.Tributary
	istiod    *fixture.Istiod
	want      map[string][]string
}

func startEurekaMesh(t *testing.T, servers ...*fixture.Eureka) *eurekaMesh {
	tributary := fixture.StartTributary(t, fixture.EurekaSource("eureka", servers...).With("interval", "1s").With("hold", eurekaHold.String()))
	return &eurekaMesh{t, tributary, tributary.StartIstiod(t), map[string][]string{}}
}

func (m *eurekaMesh) same(ctx context.Context, step string) error {
	return sameHeld(ctx, m.istiod, "eureka", step, m.want)
}

// holds waits until istiod has the wanted endpoints, and logs the time that took.
func (m *eurekaMesh) holds(step string, timeout time.Duration) {
	m.t.Helper()
	start := time.Now()
	m.istiod.WaitFor(m.t, timeout, func() error { return m.same(m.t.Context(), step) })
	m.t.Logf("%s: after %v", step, time.Since(start).Round(100*time.Millisecond))
}

// keeps fails the test if istiod holds anything else at some moment while f runs.
func (m *eurekaMesh) keeps(step string, f func()) {
	m.t.Helper()
	stays(m.t, func() error { return m.same(m.t.Context(), step) }, f)
}

// TestEureka shows that istiod has the right endpoints at each step of the life of instances in a real Eureka, and
// loses none while Eureka is down and after it comes back empty.
func TestEureka(t *testing.T) {
	t.Parallel()
	e := fixture.NewEureka(t, fixture.FreePort(t))
	e.AwaitServing(t)
	m := startEurekaMesh(t, e)

	spring := fixture.StartEurekaClient(t, e, "orders", "10.0.0.1")
	orders := fixture.EurekaInstance{App: "ORDERS", IP: "10.0.0.2", Port: 8081}
	stopOrders := orders.Start(t, e)
	secure := fixture.EurekaInstance{App: "PAY_ME", IP: "10.0.0.3", Port: 8080, SecurePort: 8443}
	stopSecure := secure.Start(t, e)
	slow := fixture.EurekaInstance{App: "SLOW", IP: "10.0.0.4", Port: 8080, Beats: 7 * time.Second}
	slow.Start(t, e)
	m.want["orders"] = []string{"10.0.0.1:8080 0", "10.0.0.2:8081 0"}
	m.want["pay-me"], m.want["pay-me.secure"] = []string{"10.0.0.3:8080 0"}, []string{"10.0.0.3:8443 0"}
	m.want["slow"] = []string{"10.0.0.4:8080 0"}
	m.holds("instances that start", time.Minute)

	endpoints := m.want["orders"]
	orders.Override(t, e, "OUT_OF_SERVICE")
	m.want["orders"] = endpoints[:1]
	m.holds("one is set out of service", eurekaTime)
	orders.Override(t, e, "")
	m.want["orders"] = endpoints
	m.holds("that is taken back", eurekaTime)
	down := orders
	down.Status = "DOWN"
	down.Register(t, e)
	m.want["orders"] = endpoints[:1]
	m.holds("it says that it is down", eurekaTime)
	orders.Register(t, e)
	m.want["orders"] = endpoints
	m.holds("it says that it is up", eurekaTime)

	stopSecure()
	secure.Deregister(t, e)
	m.want["pay-me"], m.want["pay-me.secure"] = []string{}, []string{}
	m.holds("the last one of a service deregisters", eurekaTime)
	stopSecure = secure.Start(t, e)
	m.want["pay-me"], m.want["pay-me.secure"] = []string{"10.0.0.3:8080 0"}, []string{"10.0.0.3:8443 0"}
	m.holds("it is back", eurekaTime)

	stopOrders()
	m.want["orders"] = endpoints[:1]
	m.holds("one is killed, and its lease expires", 2*eurekaTime)
	stopOrders = orders.Start(t, e)
	m.want["orders"] = endpoints
	m.holds("it is back", eurekaTime)
	spring.Terminate(t, 30*time.Second)
	m.want["orders"] = endpoints[1:]
	m.holds("the one of Spring Cloud ends", eurekaTime)
	spring.Restart(t)
	m.want["orders"] = endpoints
	m.holds("it is back", time.Minute)

	m.keeps("the server is killed, and comes back empty, and tributary is killed meanwhile", func() {
		e.Kill()
		time.Sleep(awayFor())
		stopSecure() // Eureka is down and cannot see that
		e.Restart(t)
		e.AwaitServing(t)
		m.tributary.Crash(t)
		m.tributary.AwaitReady(t)
		time.Sleep(eurekaHold - 5*time.Second) // of that since it was seen empty
	})
	m.want["pay-me"], m.want["pay-me.secure"] = []string{}, []string{}
	m.holds("the one that was killed meanwhile is held no longer", eurekaTime)
	stopOrders()
	orders.Deregister(t, e)
	m.want["orders"] = endpoints[:1]
	m.holds("one deregisters", eurekaTime)
}

// TestEurekaPeers, in the nightly run, has two servers that replicate each other. One is killed, and comes back empty
// while the other one is killed.
func TestEurekaPeers(t *testing.T) {
	nightly(t, "takes 2 minutes")
	t.Parallel()
	ports := []int{fixture.FreePort(t), fixture.FreePort(t)}
	serverOne, serverTwo := fixture.NewEureka(t, ports[0], ports[1]), fixture.NewEureka(t, ports[1], ports[0])
	serverOne.AwaitServing(t)
	serverTwo.AwaitServing(t)
	m := startEurekaMesh(t, serverOne, serverTwo)
	orders := []fixture.EurekaInstance{
		{App: "ORDERS", IP: "10.0.0.1", Port: 8080},
		{App: "ORDERS", IP: "10.0.0.2", Port: 8080},
		{App: "ORDERS", IP: "10.0.0.3", Port: 8080},
	}
	orders[0].Start(t, serverOne, serverTwo)
	stopTwo := orders[1].Start(t, serverTwo, serverOne)
	stopThree := orders[2].Start(t, serverOne, serverTwo)
	endpoints := []string{"10.0.0.1:8080 0", "10.0.0.2:8080 0", "10.0.0.3:8080 0"}
	m.want["orders"] = endpoints
	m.holds("instances at both", 2*eurekaTime)

	m.keeps("the one that is followed is killed", func() {
		serverOne.Kill()
		time.Sleep(awayFor())
	})
	stopTwo()
	orders[1].Deregister(t, serverTwo)
	m.want["orders"] = []string{endpoints[0], endpoints[2]}
	m.holds("one deregisters at the other", eurekaTime)

	m.keeps("the first is started, and the other one killed at once", func() {
		serverOne.Restart(t)
		serverOne.AwaitServing(t)
		serverTwo.Kill()
		time.Sleep(awayFor())
	})
	stopThree()
	m.want["orders"] = endpoints[:1]
	m.holds("one is killed, and its lease expires", 2*eurekaTime+eurekaHold)
}
