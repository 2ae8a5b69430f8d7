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

// TestDubboConsul shows what istiod holds of providers that register in a Consul, at each step of their life and of its: real ones of Dubbo
// for Java
// 2.7.23, and what dubbo-go 1.5 registers, which is the last one with a registry for it.
func TestDubboConsul(t *testing.T) {
	t.Parallel()
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	tributary := fixture.StartTributary(t, fixture.ConfigSource{Name: "dubbo", Address: "consul://" + consul.HTTP + "?kind=dubbo"})
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)
	holds := func(what string, want map[string][]string) {
		t.Helper()
		const within = 60 * time.Second // Consul's source reads a service that changes all the time every 15 s
		istiod.WaitFor(t, within, func() error {
			err := sameGreeters(t.Context(), istiod, what, want)
			if err != nil {
				err = fmt.Errorf("%w, and Consul has %s", err, checksOf(consul, "demo.GreetService"))
			}
			return err
		})
	}
	require.NoError(t, consul.API().Agent().ServiceRegister(&api.AgentServiceRegistration{
		ID: "plain", Name: "demo.GreetService.Plain",
		Port: 80,
	}), "what is not Dubbo's")

	provider := func(app, group, weight string) (*fixture.Process, string) {
		d := fixture.DubboJava{
			Version: "2.7.23", App: app, Consul: consul, Group: group, Weight: weight,
			Ports: []string{fmt.Sprint(fixture.FreePort(t))},
		}
		return d.Start(t), d.Ports[0]
	}
	one, port1 := provider("one", "", "")
	two, port2 := provider("two", "", "30")
	_, port3 := provider("three", "g1", "")
	at1, at2 := ":"+port1+" 100 one", ":"+port2+" 30 two"
	both := []string{at1, at2}
	if at2 < at1 {
		both = []string{at2, at1}
	}
	with := func(plain ...string) map[string][]string {
		if plain == nil {
			plain = []string{}
		}
		return map[string][]string{"demo-greetservice": plain, "demo-greetservice-g1": {":" + port3 + " 100 three"}}
	}
	holds("three providers", with(both...))

	held := func() error {
		return unlessExpired(sameGreeters(t.Context(), istiod, "Consul is killed", with(both...)), consul, "demo.GreetService",
			port1, port2, port3)
	}
	stays(t, held, func() {
		consul.Kill()
		time.Sleep(awayFor()) // longer than what a provider may be silent for
		consul.Restart(t)
		consul.AwaitLeader(t)
		time.Sleep(10 * time.Second)
	})

	two.Kill()
	holds("one is killed", with(at1))
	two.Restart(t)
	holds("it is back", with(both...))
	two.Terminate(t, 20*time.Second)
	holds("one stops", with(at1))
	one.Terminate(t, 20*time.Second)
	holds("the last one stops", with())

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
	want := with()
	want["com-ikurento-user-userprovider-a-b"] = []string{":20000 100 BDTService"}
	holds("a provider of dubbo-go 1.5", want)
}

// TestDubbo3Consul shows the same of Dubbo 3, which registers with an extension of its own, by default at both levels: the interfaces are
// read.
func TestDubbo3Consul(t *testing.T) {
	t.Parallel()
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	tributary := fixture.StartTributary(t, fixture.ConfigSource{Name: "dubbo", Address: "consul://" + consul.HTTP + "?kind=dubbo"})
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)
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
	const within = 60 * time.Second // as in TestDubboConsul
	awaitGreeters(t, istiod, "providers that start", within, want)
	services, _, err := consul.API().Catalog().Services(nil)
	require.NoError(t, err)
	require.Contains(t, services, "all-dubbo", "the application, which is not read")
	running[0].Kill()
	want["demo-greetservice-v32"] = []string{}
	awaitGreeters(t, istiod, "one is killed", within, want)
	running[1].Terminate(t, 20*time.Second)
	want["demo-greetservice-v33-1-0-0.tri"] = []string{}
	awaitGreeters(t, istiod, "one stops", within, want)
}

// TestDubbo3ConsulApplications shows the same of providers that register as applications only, and keep their metadata themselves, which is
// Dubbo's default: two of one application, which change one after the other, and what happens when Consul or one of them is killed.
func TestDubbo3ConsulApplications(t *testing.T) {
	t.Parallel()
	consul := fixture.StartConsul(t, fixture.ConsulOptions{})
	tributary := fixture.StartTributary(t, fixture.ConfigSource{Name: "dubbo", Address: "consul://" + consul.HTTP + "?kind=dubbo"})
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)
	provider := func(d fixture.DubboJava) (*fixture.Process, string) {
		d.Consul, d.Mode, d.Ports = consul, "instance", []string{fmt.Sprint(fixture.FreePort(t))}
		p := d.Start(t)
		awaitAlive(t, consul, p, d.Ports[0])
		return p, ":" + d.Ports[0] + " 100 " + d.App
	}
	restart := func(p *fixture.Process, at string) {
		p.Restart(t)
		awaitAlive(t, consul, p, portOf(at))
	}
	const within = 60 * time.Second // as in TestDubboConsul
	one, at1 := provider(fixture.DubboJava{Version: "3.3.6", App: "shop", Protocol: "tri", Group: "g1", Service: "1.0.0"})
	stock, other := provider(fixture.DubboJava{Version: "3.2.19", App: "stock", Protocol: "dubbo"})
	shop := "demo-greetservice-g1-1-0-0.tri"
	with := func(all ...string) map[string][]string {
		slices.Sort(all)
		return map[string][]string{shop: append([]string{}, all...), "demo-greetservice": {other}}
	}
	awaitGreeters(t, istiod, "one instance of each", within, with(at1))
	services, _, err := consul.API().Catalog().Services(nil)
	require.NoError(t, err)
	require.NotContains(t, services, "demo.GreetService", "nothing is registered by interface")

	two, at2 := provider(fixture.DubboJava{Version: "3.3.6", App: "shop", Protocol: "tri", Group: "g1", Service: "1.0.0"})
	awaitGreeters(t, istiod, "one more", within, with(at1, at2))
	require.Contains(t, tributary.Ask(t, "status"), "shop by ", "it says how it is known what applications serve")

	two.Kill()
	awaitGreeters(t, istiod, "one is killed", within, with(at1))
	restart(two, at2)
	awaitGreeters(t, istiod, "it is back", within, with(at1, at2))
	two.Terminate(t, 20*time.Second)
	awaitGreeters(t, istiod, "one stops", within, with(at1))
	one.Terminate(t, 20*time.Second)
	awaitGreeters(t, istiod, "the last one stops", within, with())
	restart(one, at1)
	awaitGreeters(t, istiod, "there is one again", within, with(at1))
	// They do not say again that they live, so their TTL is over 4 s after the restart.
	held := func() error {
		err := sameGreeters(t.Context(), istiod, "Consul is killed", with(at1))
		return unlessExpired(unlessExpired(err, consul, "shop", portOf(at1)), consul, "stock", portOf(other))
	}
	stays(t, held, func() {
		consul.Kill()
		time.Sleep(awayFor())
		consul.Restart(t)
		consul.AwaitLeader(t)
		time.Sleep(10 * time.Second)
	})
	// One that could not say once that it lives does not say so again: Consul forgets it after a minute. It has to be started anew.
	for at, p := range map[string]*fixture.Process{at1: one, other: stock} {
		p.Kill()
		fixture.WaitFor(t, within, func() error {
			if alive, _ := aliveAt(consul, portOf(at)); alive {
				return fmt.Errorf("Consul does not know yet that the provider %s was killed", at)
			}
			return nil
		})
		restart(p, at)
	}
	awaitGreeters(t, istiod, "they register anew", within, with(at1))
	restart(two, at2)
	awaitGreeters(t, istiod, "one more comes", within, with(at1, at2))
}

// portOf is the port of what istiod holds of a provider.
func portOf(at string) string {
	port, _, _ := strings.Cut(strings.TrimPrefix(at, ":"), " ")
	return port
}

// unlessExpired returns err, unless the catalog knows that the TTL of an instance of a service at one of these ports is over. A restarted
// agent begins with the whole TTL. A provider that does not say again that it lives, or too late on a busy machine, is lost then, which the
// catalog learns at once if it had not heard of the check since the restart, and minutes later if it had.
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

// aliveAt reports whether Consul is told of each service that was registered at a port that it lives, and which registrations there are. A
// start registers anew: what an earlier one registered stays for a minute.
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

// awaitAlive waits until Consul is told that a provider lives that was just started. On a busy machine the extension's first word that it
// does may come before its registration; it is refused then, and the last one (docs/peers.md): such a provider is started again.
func awaitAlive(t *testing.T, consul *fixture.Consul, p *fixture.Process, port string) {
	t.Helper()
	const tries, silent = 5, 15 * time.Second // three times as long as it may be silent for
	for range tries {
		_, before := aliveAt(consul, port)
		var since time.Time
		for end := time.Now().Add(90 * time.Second); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			alive, now := aliveAt(consul, port)
			if alive {
				return
			}
			registered := slices.ContainsFunc(now, func(id string) bool { return !slices.Contains(before, id) })
			if !registered {
				since = time.Time{}
			} else if since.IsZero() {
				since = time.Now()
			} else if time.Since(since) > silent {
				break
			}
		}
		t.Logf("the provider at %s registered and does not say that it lives: it is started again", port)
		p.Kill()
		p.Restart(t)
	}
	t.Fatalf("the provider at %s does not say in Consul that it lives, tried %d times", port, tries)
}

// checksOf says what Consul has of the instances of a service, for messages.
func checksOf(consul *fixture.Consul, service string) string {
	all, _, err := consul.API().Health().Service(service, "", false, nil)
	if err != nil {
		return err.Error()
	}
	text := ""
	for _, e := range all {
		for _, c := range e.Checks {
			if c.ServiceID != "" {
				text += fmt.Sprintf("[:%d %s %q]", e.Service.Port, c.Status, c.Output)
			}
		}
	}
	return text
}
