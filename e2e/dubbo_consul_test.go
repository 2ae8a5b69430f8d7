package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

func dubboInConsul(t *testing.T) (*fixture.Consul, *fixture.Tributary, *fixture.Istiod) {
	t.Helper()
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	tributary := fixture.StartTributary(t, fixture.ConfigSource{Name: "dubbo", Address: "consul://" + consul.HTTP + "?kind=dubbo"})
	return consul, tributary, tributary.StartIstiod(t)
}

// TestDubboConsul shows the endpoints that istiod has of providers in a Consul, at each step of their life and of its:
// real ones of Dubbo for Java 2.7.23, and the registrations of dubbo-go 1.5, the last version with a registry for it.
func TestDubboConsul(t *testing.T) {
	t.Parallel()
	consul, _, istiod := dubboInConsul(t)
	holds := func(step string, want map[string][]string) {
		t.Helper()
		const timeout = 60 * time.Second // Consul's source reads a service that changes all the time every 15 s
		istiod.WaitFor(t, timeout, func() error {
			err := sameGreeters(t.Context(), istiod, step, want)()
			if err != nil {
				err = fmt.Errorf("%w, and Consul has %s", err, checksOf(consul, "demo.GreetService"))
			}
			return err
		})
	}
	require.NoError(t, consul.API().Agent().ServiceRegister(&api.AgentServiceRegistration{
		ID: "plain", Name: "demo.GreetService.Plain",
		Port: 80,
	}), "a service that is not a Dubbo provider")

	provider := func(app, group, weight string) (*fixture.Process, string) {
		d := fixture.DubboJava{
			Version: "2.7.23", App: app, Consul: consul, Group: group, Weight: weight,
			Ports: []string{fmt.Sprint(fixture.FreePort(t))},
		}
		return d.Start(t), d.Ports[0]
	}
	providerOne, port1 := provider("one", "", "")
	providerTwo, port2 := provider("two", "", "30")
	_, port3 := provider("three", "g1", "")
	at1, at2 := ":"+port1+" 100 one", ":"+port2+" 30 two"
	endpoints := []string{at1, at2}
	if at2 < at1 {
		endpoints = []string{at2, at1}
	}
	entriesWith := func(plain ...string) map[string][]string {
		if plain == nil {
			plain = []string{}
		}
		return map[string][]string{"demo-greetservice": plain, "demo-greetservice-g1": {":" + port3 + " 100 three"}}
	}
	holds("three providers", entriesWith(endpoints...))

	held := func() error {
		return unlessExpired(sameGreeters(t.Context(), istiod, "Consul is killed", entriesWith(endpoints...))(), consul, "demo.GreetService",
			port1, port2, port3)
	}
	stays(t, held, func() {
		consul.Kill()
		time.Sleep(awayFor()) // longer than a provider may be silent
		consul.Restart(t)
		consul.AwaitLeader(t)
		time.Sleep(10 * time.Second)
	})

	providerTwo.Kill()
	holds("one is killed", entriesWith(at1))
	providerTwo.Restart(t)
	holds("it is back", entriesWith(endpoints...))
	providerTwo.Terminate(t, 20*time.Second)
	holds("one stops", entriesWith(at1))
	providerOne.Terminate(t, 20*time.Second)
	holds("the last one stops", entriesWith())

	// As registry/consul of dubbo-go 1.5.6 does, which no version that runs today has any more.
	require.NoError(t, consul.API().Agent().ServiceRegister(&api.AgentServiceRegistration{
		ID: "0cc175b9c0f1b6a831c399e269772661", Name: "com.ikurento.user.UserProvider", Address: "10.0.0.7", Port: 20000,
		Tags: []string{
			"application=BDTService", "group=a&b", "interface=com.ikurento.user.UserProvider", "methods=GetUser,GetUsers",
			"release=dubbo-golang-1.5.6", "side=provider", "timestamp=1795335081", "dubbo",
		},
		Meta: map[string]string{"url": "dubbo://10.0.0.7:20000/com.ikurento.user.UserProvider?application=BDTService&group=a%26b&interface=" +
			"com.ikurento.user.UserProvider&methods=GetUser%2CGetUsers&release=dubbo-golang-1.5.6&side=provider&timestamp=1795335081"},
	}))
	want := entriesWith()
	want["com-ikurento-user-userprovider-a-b"] = []string{":20000 100 BDTService"}
	holds("a provider of dubbo-go 1.5", want)
}

// TestDubbo3Consul shows the same of Dubbo 3, which registers with an extension of its own, by default at both levels:
// the interfaces are read.
func TestDubbo3Consul(t *testing.T) {
	t.Parallel()
	consul, _, istiod := dubboInConsul(t)
	want := map[string][]string{}
	var running []*fixture.Process
	for _, d := range []fixture.DubboJava{
		{Version: "3.2.19", App: "all-dubbo", Mode: "all", Protocol: "dubbo", Group: "v32", Weight: "30"},
		{Version: "3.3.6", App: "all-tri", Mode: "all", Protocol: "tri", Group: "v33", Service: "1.0.0"},
		{Version: "3.3.6", App: "interface-dubbo", Mode: "interface", Protocol: "dubbo"},
	} {
		d.Consul, d.Ports = consul, []string{fmt.Sprint(fixture.FreePort(t))}
		running = append(running, d.Start(t))
		awaitAlive(t, consul, running[len(running)-1], d.Ports[0])
		entry := "demo-greetservice"
		if d.Group != "" {
			entry += "-" + d.Group
		}
		if d.Service != "" {
			entry += "-" + strings.ReplaceAll(d.Service, ".", "-")
		}
		if d.Protocol != "dubbo" {
			entry += "." + d.Protocol
		}
		want[entry] = []string{":" + d.Ports[0] + " " + cmp.Or(d.Weight, "100") + " " + d.App}
	}
	const timeout = 60 * time.Second // as in TestDubboConsul
	awaitGreeters(t, istiod, "providers that start", timeout, want)
	services, _, err := consul.API().Catalog().Services(nil)
	require.NoError(t, err)
	require.Contains(t, services, "all-dubbo", "the application, which is not read")
	running[0].Kill()
	want["demo-greetservice-v32"] = []string{}
	awaitGreeters(t, istiod, "one is killed", timeout, want)
	running[1].Terminate(t, 20*time.Second)
	want["demo-greetservice-v33-1-0-0.tri"] = []string{}
	awaitGreeters(t, istiod, "one stops", timeout, want)
}

// TestDubbo3ConsulApplications shows the same of providers that register as applications only, and keep their metadata
// themselves, which is Dubbo's default: two of one application, which change one after the other, and the effect of
// killing Consul or one of them.
func TestDubbo3ConsulApplications(t *testing.T) {
	t.Parallel()
	consul, tributary, istiod := dubboInConsul(t)
	provider := func(d fixture.DubboJava) (*fixture.Process, string) {
		d.Consul, d.Mode, d.Ports = consul, "instance", []string{fmt.Sprint(fixture.FreePort(t))}
		p := d.Start(t)
		awaitAlive(t, consul, p, d.Ports[0])
		return p, ":" + d.Ports[0] + " 100 " + d.App
	}
	restart := func(p *fixture.Process, endpoint string) {
		p.Restart(t)
		awaitAlive(t, consul, p, portOf(endpoint))
	}
	const timeout = 60 * time.Second // as in TestDubboConsul
	providerOne, at1 := provider(fixture.DubboJava{Version: "3.3.6", App: "shop", Protocol: "tri", Group: "g1", Service: "1.0.0"})
	stock, stockEndpoint := provider(fixture.DubboJava{Version: "3.2.19", App: "stock", Protocol: "dubbo"})
	shop := "demo-greetservice-g1-1-0-0.tri"
	entriesWith := func(endpoints ...string) map[string][]string {
		slices.Sort(endpoints)
		return map[string][]string{shop: append([]string{}, endpoints...), "demo-greetservice": {stockEndpoint}}
	}
	awaitGreeters(t, istiod, "one instance of each", timeout, entriesWith(at1))
	services, _, err := consul.API().Catalog().Services(nil)
	require.NoError(t, err)
	require.NotContains(t, services, "demo.GreetService", "no provider registers by interface")

	providerTwo, at2 := provider(fixture.DubboJava{Version: "3.3.6", App: "shop", Protocol: "tri", Group: "g1", Service: "1.0.0"})
	awaitGreeters(t, istiod, "one more", timeout, entriesWith(at1, at2))
	require.Contains(t, tributary.Ask(t, "status"), "shop by ", "it names the origin of the services of an application")

	providerTwo.Kill()
	awaitGreeters(t, istiod, "one is killed", timeout, entriesWith(at1))
	restart(providerTwo, at2)
	awaitGreeters(t, istiod, "it is back", timeout, entriesWith(at1, at2))
	providerTwo.Terminate(t, 20*time.Second)
	awaitGreeters(t, istiod, "one stops", timeout, entriesWith(at1))
	providerOne.Terminate(t, 20*time.Second)
	awaitGreeters(t, istiod, "the last one stops", timeout, entriesWith())
	restart(providerOne, at1)
	awaitGreeters(t, istiod, "there is one again", timeout, entriesWith(at1))
	// They do not say again that they live, so their TTL is over 4 s after the restart.
	held := func() error {
		err := sameGreeters(t.Context(), istiod, "Consul is killed", entriesWith(at1))()
		return unlessExpired(unlessExpired(err, consul, "shop", portOf(at1)), consul, "stock", portOf(stockEndpoint))
	}
	stays(t, held, func() {
		consul.Kill()
		time.Sleep(awayFor())
		consul.Restart(t)
		consul.AwaitLeader(t)
		time.Sleep(10 * time.Second)
	})
	// A provider that failed to renew its check once does not try again: Consul removes it after a minute. It needs a
	// restart.
	for endpoint, p := range map[string]*fixture.Process{at1: providerOne, stockEndpoint: stock} {
		p.Kill()
		fixture.WaitFor(t, timeout, func() error {
			if alive, _ := aliveAt(consul, portOf(endpoint)); alive {
				return fmt.Errorf("Consul does not know yet that the provider %s was killed", endpoint)
			}
			return nil
		})
		restart(p, endpoint)
	}
	awaitGreeters(t, istiod, "they register again", timeout, entriesWith(at1))
	restart(providerTwo, at2)
	awaitGreeters(t, istiod, "one more comes", timeout, entriesWith(at1, at2))
}

// portOf is the port of an endpoint in istiod.
func portOf(endpoint string) string {
	port, _, _ := strings.Cut(strings.TrimPrefix(endpoint, ":"), " ")
	return port
}

// unlessExpired returns err, unless the catalog knows that the TTL of an instance of a service at one of these ports is
// over. A restarted agent begins with the whole TTL. A provider that does not say again that it lives, or too late on a
// busy machine, is lost then, which the catalog learns at once if it had not heard of the check since the restart, and
// minutes later if it had.
func unlessExpired(err error, consul *fixture.Consul, service string, ports ...string) error {
	if err == nil {
		return nil
	}
	instances, _, failed := consul.API().Health().Service(service, "", false, nil)
	for _, e := range instances {
		expired := func(c *api.HealthCheck) bool { return strings.HasPrefix(c.Output, "TTL expired") }
		if failed == nil && slices.Contains(ports, fmt.Sprint(e.Service.Port)) && slices.ContainsFunc(e.Checks, expired) {
			return nil
		}
	}
	return err
}

// aliveAt reports whether Consul has a passing check for each service that was registered at a port, and the
// registrations. A start registers again: earlier registrations stay for a minute.
func aliveAt(consul *fixture.Consul, port string) (alive bool, registrations []string) {
	services, err := consul.API().Agent().Services()
	if err != nil {
		return false, nil
	}
	checks, err := consul.API().Agent().Checks()
	if err != nil {
		return false, nil
	}
	living := map[string]bool{} // by service
	for _, c := range checks {
		if s := services[c.ServiceID]; s != nil && fmt.Sprint(s.Port) == port {
			living[s.Service] = living[s.Service] || c.Status == api.HealthPassing
			registrations = append(registrations, c.ServiceID)
		}
	}
	alive = len(living) > 0
	for _, lives := range living {
		alive = alive && lives
	}
	return alive, registrations
}

// awaitAlive waits until Consul has a passing check of a provider that was just started. On a busy machine the
// extension may renew its check before its registration; Consul refuses that, and the extension does not repeat it
// (docs/peers.md): such a provider is started again.
func awaitAlive(t *testing.T, consul *fixture.Consul, p *fixture.Process, port string) {
	t.Helper()
	const tries, silent = 5, 15 * time.Second // three times as long as it may be silent for
	for range tries {
		_, before := aliveAt(consul, port)
		var registeredAt time.Time
		for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			alive, now := aliveAt(consul, port)
			if alive {
				return
			}
			registered := slices.ContainsFunc(now, func(id string) bool { return !slices.Contains(before, id) })
			if !registered {
				registeredAt = time.Time{}
			} else if registeredAt.IsZero() {
				registeredAt = time.Now()
			} else if time.Since(registeredAt) > silent {
				break
			}
		}
		t.Logf("the provider at %s registered and does not say that it lives: it is started again", port)
		p.Crash(t)
	}
	t.Fatalf("the provider at %s does not say in Consul that it lives, tried %d times", port, tries)
}

// checksOf describes Consul's checks of the instances of a service, for messages.
func checksOf(consul *fixture.Consul, service string) string {
	entries, _, err := consul.API().Health().Service(service, "", false, nil)
	if err != nil {
		return err.Error()
	}
	text := ""
	for _, e := range entries {
		for _, c := range e.Checks {
			if c.ServiceID != "" {
				text += fmt.Sprintf("[:%d %s %q]", e.Service.Port, c.Status, c.Output)
			}
		}
	}
	return text
}
