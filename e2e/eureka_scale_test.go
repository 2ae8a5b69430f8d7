package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

const (
	eurekaApps      = 1000
	eurekaInstances = 5
)

// TestEurekaScale prints the costs of a large Eureka: the first sync, a time without changes, one new instance, and a
// server that comes back empty.
func TestEurekaScale(t *testing.T) {
	nightly(t, "takes five minutes")
	e := fixture.NewEureka(t, fixture.FreePort(t))
	e.AwaitServing(t)
	instance := func(app, n int) fixture.EurekaInstance {
		return fixture.EurekaInstance{
			App: fmt.Sprintf("APP%04d", app), IP: fmt.Sprintf("10.%d.%d.%d", n, app/250, app%250+1), Port: 8080, Beats: time.Hour,
			Metadata: map[string]string{"version": "v1", "zone": "z1"},
		}
	}
	registerAll := func() {
		next := make(chan int)
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for app := range next {
					for n := range eurekaInstances {
						instance(app, n).Register(t, e)
					}
				}
			})
		}
		for app := range eurekaApps {
			next <- app
		}
		close(next)
		workers.Wait()
	}
	registerAll()
	registered := time.Now()
	time.Sleep(3 * time.Second) // so that its cache has them

	began, theirs := time.Now(), e.Usage(t).CPU
	tributary := fixture.StartTributary(t, fixture.EurekaSource("eureka", e).With("guard", "off"))
	tributary.WaitFor(t, 3*time.Minute, func() error {
		if s := source(t, tributary, "eureka"); !s.Synced {
			return fmt.Errorf("the source is %v", s)
		}
		return nil
	})
	t.Logf("first sync of %d applications of %d instances: %v, CPU %v, Eureka's %v, memory %d MiB", eurekaApps, eurekaInstances,
		time.Since(began).Round(time.Millisecond), tributary.Usage(t).CPU, e.Usage(t).CPU-theirs, tributary.Usage(t).Memory>>20)
	require.Equal(t, eurekaApps*eurekaInstances, countEndpoints(t, tributary))
	idle := func(state string) {
		ownCPU, theirs := tributary.Usage(t).CPU, e.Usage(t).CPU
		time.Sleep(20 * time.Second) // The test measures a period of time.
		t.Logf("%s: %.1f %% of a processor, and %.1f %% of Eureka", state, 100*(tributary.Usage(t).CPU-ownCPU).Seconds()/20,
			100*(e.Usage(t).CPU-theirs).Seconds()/20)
	}
	idle("all are among its changes, where they are for three minutes, and until something changes after that")
	time.Sleep(time.Until(registered.Add(215 * time.Second)))

	stream := fixture.OpenStream(t, tributary.XDS, "e2e-client")
	stream.Subscribe(t, serviceEntries, "")
	res := stream.NextWithin(t, time.Minute)
	require.Len(t, res.GetResources(), eurekaApps)
	stream.Ack(t, res)
	fullReads := tributary.Metric(t, "tributary_eureka_full_reads_total", "")
	for n := range 5 {
		instance(n*199, eurekaInstances).Register(t, e)
		changedAt := time.Now()
		stream.Ack(t, stream.NextWithin(t, time.Minute))
		t.Logf("one instance more: seen after %v", time.Since(changedAt).Round(time.Millisecond))
	}
	t.Logf("everything was read %d times for that", tributary.Metric(t, "tributary_eureka_full_reads_total", "")-fullReads)
	idle("nothing changes")

	before := countEndpoints(t, tributary)
	e.Kill()
	time.Sleep(6 * time.Second)
	e.Restart(t)
	e.AwaitServing(t)
	time.Sleep(10 * time.Second) // so that it was seen empty
	require.Equal(t, before, countEndpoints(t, tributary))
	began = time.Now()
	registerAll()
	for n := range 5 {
		instance(n*199, eurekaInstances).Register(t, e)
	}
	back := time.Now()
	// A listing that the server was making when the last ones registered can stay in its cache, for three minutes.
	tributary.WaitFor(t, 4*time.Minute, func() error {
		require.Equal(t, before, countEndpoints(t, tributary))
		if s := source(t, tributary, "eureka"); s.State != "healthy" {
			return fmt.Errorf("the source is %v", s)
		}
		return nil
	})
	t.Logf("all registered again %v after that; whole again %v later", back.Sub(began).Round(time.Millisecond),
		time.Since(back).Round(time.Millisecond))
}
