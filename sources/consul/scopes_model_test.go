package consul

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
)

// TestModel_Scopes: any of three datacenters is away, or hides services, while the source restarts. An instance that
// was served stays until its agent removes it; a datacenter that can be read is followed, whatever the others do.
func TestModel_Scopes(t *testing.T) {
	t.Parallel()
	seeds, from := modelEnv(t, "CONSUL_MODEL_SEEDS", modelSeeds), modelEnv(t, "CONSUL_MODEL_FROM", 1)
	for seed := from; seed < from+seeds && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { runScopesModel(t, uint64(seed)) })
	}
}

func runScopesModel(t *testing.T, seed uint64) {
	const settled = 2 * time.Minute // after which a change is served
	type instance struct {
		datacenter          int
		registered, removed time.Time
		served              bool
	}
	random, world := rand.New(rand.NewPCG(seed, 7)), newWorld(t, east, west, scope{datacenter: "north"})
	world.wait = time.Minute // a query that waits does not notice new rights
	names, started := []string{"east", "west", "north"}, time.Now()
	readable := []time.Time{started, started, started} // since when each datacenter is; zero if it is not
	instances := map[string]map[string]*instance{}     // by service and ID
	flip := func() {                                   // registers an instance, or removes it
		index, service := random.IntN(3), fmt.Sprint("s", random.IntN(6))
		id := fmt.Sprint(names[index], random.IntN(3))
		if instances[service] == nil {
			instances[service] = map[string]*instance{}
		}
		if current := instances[service][id]; current != nil && current.removed.IsZero() {
			current.removed = time.Now()
		} else {
			instances[service][id] = &instance{datacenter: index, registered: time.Now()}
		}
		world.change(scope{datacenter: names[index]}, func(d *datacenter) {
			d.RemoveService(service)
			for id, instance := range instances[service] {
				if instance.datacenter == index && instance.removed.IsZero() {
					d.SetService(service, slices.Concat(d.Services[service], consultest.Instances(id)))
				}
			}
		})
	}
	check := func() {
		for service, instances := range instances {
			served := world.endpoints(service)
			for id, instance := range instances {
				follows := func(moment time.Time) bool { // this run has read the datacenter for long
					since := readable[instance.datacenter]
					return !since.IsZero() && moment.Sub(since) > settled && moment.Sub(started) > settled
				}
				recent := time.Now().Add(-settled)
				isServed, removed := slices.Contains(served, id), !instance.removed.IsZero()
				isLost := !removed && !isServed && (instance.served || instance.registered.Before(recent) && follows(time.Now()))
				isLeft := removed && isServed && instance.removed.Before(recent) && follows(instance.removed)
				require.False(t, isLost || isLeft, "seed %d: %s %s: %s", seed, service, id, world.health().Message)
				// An earlier registration at the same address may be served until the datacenter is read.
				instance.served = !removed && isServed && (instance.served || follows(time.Now()))
			}
		}
	}
	for range 12 {
		flip()
	}
	world.start(Settings{Datacenters: names})
	pass(settled)
	faults := []func(d *datacenter){
		func(d *datacenter) { d.Fails = errDown }, func(d *datacenter) { d.Fails = errDenied },
		func(d *datacenter) { d.Hides = true }, func(d *datacenter) { d.Shows = map[string]bool{"s1": true} },
		func(d *datacenter) { d.Refusals = map[string]error{"s2": errDenied} },
	}
	for range modelSteps {
		index := random.IntN(3)
		datacenter := world.scopes[scope{datacenter: names[index]}]
		switch op := random.IntN(10); {
		case op < 5:
			flip()
		case op < 7:
			world.stop()
			flip()
			pass(time.Duration(random.IntN(90)) * time.Second)
			world.start()
			started = time.Now()
		case readable[index].IsZero():
			datacenter.Restore()
			readable[index] = time.Now()
		default:
			readable[index] = time.Time{}
			datacenter.Change(func() { faults[random.IntN(len(faults))](datacenter) })
		}
		for range 1 + random.IntN(60) {
			pass(time.Second)
			check()
		}
	}
	for _, datacenter := range world.scopes {
		datacenter.Restore()
	}
	pass(modelHealed)
	for service, instances := range instances {
		for id, instance := range instances {
			require.Equal(t, instance.removed.IsZero(), slices.Contains(world.endpoints(service), id), "seed %d: %s", seed, id)
		}
	}
	world.requireState(sources.Healthy)
}
