package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/e2e/fixture"
)

// nacosVersions are those that are run. Each is a large server, so that one runs at a time.
var nacosVersions = []string{"2.3.2", "3.1.0"}

// nacosTime is within which a change in Nacos shows in istiod. It takes a second on an idle machine, half of it Nacos'
// own.
const nacosTime = 15 * time.Second

// heldIn returns the endpoints that istiod holds of the services of a namespace, by the name of their ServiceEntry.
func heldIn(
	ctx context.Context, istiod *fixture.Istiod, namespace string, format func(e *networking.WorkloadEntry, port uint32) string,
) (map[string][]string, error) {
	configs, err := istiod.Configs(ctx)
	if err != nil {
		return nil, err
	}
	entries := map[string][]string{}
	for key, object := range configs {
		se, ok := object.Message().(*networking.ServiceEntry)
		if !ok || key.Namespace != namespace {
			continue
		}
		endpoints := []string{}
		for _, e := range se.Endpoints {
			for _, port := range e.Ports {
				endpoints = append(endpoints, format(e, port))
			}
		}
		slices.Sort(endpoints)
		entries[key.Name] = endpoints
	}
	return entries, nil
}

// sameHeld compares the endpoints, as "address:port weight".
func sameHeld(ctx context.Context, istiod *fixture.Istiod, namespace, step string, want map[string][]string) error {
	got, err := heldIn(ctx, istiod, namespace, func(e *networking.WorkloadEntry, port uint32) string {
		return fmt.Sprintf("%s:%d %d", e.Address, port, e.Weight)
	})
	return sameEntries(step, got, want, err)
}

func sameEntries(step string, got, want map[string][]string, err error) error {
	if err == nil && fmt.Sprint(got) != fmt.Sprint(want) {
		err = fmt.Errorf("%s: istiod holds\n%v, want\n%v", step, got, want)
	}
	return err
}

// stays fails the test if check returned an error at some moment while f ran. A moment without an answer proves no
// loss, but there must be some moments with one.
func stays(t *testing.T, check func() error, f func()) {
	t.Helper()
	stop := watching(t, 100*time.Millisecond, func(context.Context) error { return check() })
	f()
	answers, err := stop()
	require.NoError(t, err)
	require.Positive(t, answers)
}

// awayFor is how long registries are away: a minute by night.
func awayFor() time.Duration {
	return byNight(10*time.Second, time.Minute)
}

// TestNacosServices shows that istiod has the right endpoints at each step of the life of plain services in a Nacos,
// and loses none while Nacos is down, and empty after its return.
func TestNacosServices(t *testing.T) {
	t.Parallel()
	for _, version := range nacosVersions {
		t.Run(version, func(t *testing.T) { plainServices(t, version) })
	}
}

func plainServices(t *testing.T, version string) {
	const hold = 20 * time.Second
	n := fixture.StartNacos(t, version)
	tributary := fixture.StartTributary(t,
		n.Source("plain", "kind=services").With("hold", hold.String()).With("groups", []string{"DEFAULT_GROUP", "shop"}),
		n.Source("test", "kind=services", "namespace=test", "username=nacos", "password=nacos").With("hold", hold.String()))
	istiod := tributary.StartIstiod(t)
	n.Namespace(t, "test")

	want := map[string][]string{}
	holds := func(step string, timeout time.Duration) {
		t.Helper()
		istiod.WaitFor(t, timeout, func() error { return sameHeld(t.Context(), istiod, "nacos", step, want) })
	}
	instanceOne := fixture.NacosInstance{Service: "orders", IP: "10.0.0.1", Port: 8080, Metadata: `{"protocol":"http","version":"v1"}`}
	instanceTwo := fixture.NacosInstance{Service: "orders", IP: "10.0.0.2", Port: 8081, Weight: 0.5, Cluster: "east"}
	running := []*fixture.Process{
		instanceOne.Start(t, n), instanceTwo.Start(t, n),
		fixture.NacosInstance{Service: "orders", Group: "shop", IP: "10.0.0.3", Port: 8080}.Start(t, n),
		fixture.NacosInstance{Service: "orders", Namespace: "test", IP: "10.0.0.4", Port: 8080}.Start(t, n),
	}
	beating := fixture.NacosInstance{Service: "Beating_One", IP: "10.0.0.5", Port: 9000}
	stop := beating.Beat(t, n)
	want["orders.default-group"] = []string{"10.0.0.1:8080 100", "10.0.0.2:8081 50"}
	want["orders.shop"] = []string{"10.0.0.3:8080 100"}
	want["orders.default-group.test"] = []string{"10.0.0.4:8080 100"}
	want["beating-one.default-group"] = []string{"10.0.0.5:9000 100"}
	holds("services that start", 2*nacosTime)

	running[3].Terminate(t, 10*time.Second)
	want["orders.default-group.test"] = []string{}
	holds("the last one of a namespace stops", nacosTime)
	n.Set(t, instanceOne, false, 1)
	want["orders.default-group"] = want["orders.default-group"][1:]
	holds("one is disabled", nacosTime)
	n.Set(t, instanceOne, true, 3)
	want["orders.default-group"] = []string{"10.0.0.1:8080 300", "10.0.0.2:8081 50"}
	holds("it is enabled again, with another weight", nacosTime)
	running[1].Kill()
	want["orders.default-group"] = []string{"10.0.0.1:8080 300"}
	holds("one is killed", nacosTime)
	running[1].Restart(t)
	want["orders.default-group"] = []string{"10.0.0.1:8080 300", "10.0.0.2:8081 50"}
	holds("it is back", nacosTime)

	stays(t, func() error {
		return sameHeld(t.Context(), istiod, "nacos", "Nacos is killed, and comes back empty", want)
	}, func() {
		n.Kill()
		time.Sleep(awayFor())
		n.Restart(t)
		n.AwaitServing(t)
		time.Sleep(hold + 5*time.Second)
	})

	stop() // which takes Nacos half a minute to find out
	for _, p := range running[:3] {
		p.Terminate(t, 10*time.Second)
	}
	want["orders.default-group"], want["orders.shop"] = []string{}, []string{}
	want["beating-one.default-group"] = []string{}
	holds("the last ones stop, and one that beats is killed", 30*time.Second+nacosTime)
}

// TestNacosLogin shows that tributary reads a Nacos with authentication as a user, and reports wrong users as denied,
// without the password in the message.
func TestNacosLogin(t *testing.T) {
	t.Parallel()
	n := fixture.StartNacosWithLogin(t, "3.1.0", "s3cret-of-e2e")
	fixture.NacosInstance{Service: "orders", IP: "10.0.0.5", Port: 9000}.Beat(t, n)
	address := func(user string) string { return fmt.Sprintf("nacos://%s127.0.0.1:%d?kind=services", user, n.Port) }
	tributary := fixture.StartTributary(t, fixture.ConfigSource{Name: "plain", Address: address(fixture.NacosUser + ":s3cret-of-e2e@")})
	istiod := tributary.StartIstiod(t)
	istiod.WaitFor(t, nacosTime, func() error {
		return sameHeld(t.Context(), istiod, "nacos", "a service", map[string][]string{"orders.default-group": {"10.0.0.5:9000 100"}})
	})
	require.NotContains(t, tributary.Ask(t, "status"), "s3cret")
	for user, message := range map[string]string{"": "", fixture.NacosUser + ":wr0ng@": "log in as nacos"} { // 3.1.0 responds with 500 to it
		unauthorized := fixture.StartTributary(t, fixture.ConfigSource{Name: "plain", Address: address(user)})
		unauthorized.WaitFor(t, nacosTime, func() error {
			status := unauthorized.Ask(t, "status")
			if !strings.Contains(status, "denied") || !strings.Contains(status, message) || strings.Contains(status, "wr0ng") {
				return fmt.Errorf("want denied, %s: %s", message, status)
			}
			return nil
		})
		unauthorized.Kill()
	}
}
