package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/e2e/fixture"
)

// registry is a large registry that tributary reads.
type registry struct {
	server              *fixture.Process
	source              fixture.ConfigSource
	services, instances int
	quiet               []time.Duration // periods without changes
	changes             int
	change              func(n int) // of one service, the nth
	reads               string      // a metric

	revive, fill func() // it is empty after it was killed; all register again

	check func(m measured, tributary *fixture.Tributary)
}

// registries start registries. E2E_SERVICES is the number of their services.
func registries() map[string]func(*testing.T) registry {
	starts := map[string]func(*testing.T) registry{
		"consul":       func(t *testing.T) registry { return largeConsul(t, false) },
		"consul+https": func(t *testing.T) registry { return largeConsul(t, true) },
		"zookeeper":    largeZooKeeper, "eureka": largeEureka, "kubernetes": largeKube,
	}
	for _, version := range nacosVersions {
		starts["nacos-"+version] = func(t *testing.T) registry { return largeNacos(t, version) }
	}
	return starts
}

func servicesOr(standard uint64) int { return int(number("E2E_SERVICES", standard)) } //nolint:gosec // it is less

// costs are those of a reader and of the registry that it reads.
type costs struct{ took, theirs, ours time.Duration }

func (c costs) String() string {
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / c.took.Seconds() }
	return fmt.Sprintf("%v; CPU %v (%.1f %% of a processor), of the registry %v (%.1f %%)", c.took.Round(time.Millisecond), c.ours,
		share(c.ours), c.theirs, share(c.theirs))
}

// meter returns a function that returns the costs since then.
func meter(theirs, ours func() time.Duration) func() costs {
	began, theirsBefore, oursBefore := time.Now(), theirs(), ours()
	return func() costs { return costs{time.Since(began), theirs() - theirsBefore, ours() - oursBefore} }
}

func cpuOf(t *testing.T, p *fixture.Process) func() time.Duration {
	return func() time.Duration { return p.Usage(t).CPU }
}

// measured is a part of the measurements.
type measured struct {
	quiet costs           // in the last period
	seen  []time.Duration // from each change
	reads []int           // for each change
}

func (m measured) median() time.Duration { return slices.Sorted(slices.Values(m.seen))[len(m.seen)/2] }

// TestScale prints the costs of large registries: the first sync, a time without changes, single changes, and a registry
// that comes back empty.
func TestScale(t *testing.T) {
	nightly(t, "takes 20 minutes")
	for name, start := range registries() {
		t.Run(name, func(t *testing.T) { start(t).measure(t) })
	}
	t.Run("consul-loop", readInALoop)
}

func (r registry) measure(t *testing.T) {
	theirs, none := cpuOf(t, r.server), func() time.Duration { return 0 }
	sync := meter(theirs, none)
	tributary := fixture.StartTributary(t, r.source.With("guard", "off"))
	awaitSource(t, tributary, r.source.Name, 3*time.Minute, func(s state) bool { return s.Synced })
	first, ours := sync(), cpuOf(t, tributary.Process)
	first.ours = ours()
	t.Logf("first sync of %d services of %d instances: %v; memory %d MiB, %d kB were read", r.services, r.instances, first,
		tributary.Usage(t).Memory>>20, tributary.Read(t)>>10)

	var m measured
	for _, period := range r.quiet {
		idle := meter(theirs, ours)
		time.Sleep(period) // The test measures a period of time.
		m.quiet = idle()
		t.Logf("no changes: %v; memory %d MiB", m.quiet, tributary.Usage(t).Memory>>20)
	}

	// A subscriber of changes, since those of the state of the world are paced.
	stream := fixture.OpenDelta(t, tributary.XDS, "e2e-client", serviceEntries)
	for n := 0; n < r.services; {
		n += len(stream.NextWithin(t, time.Minute).GetResources())
	}
	for i := range r.changes {
		reads, read, cost := tributary.Metric(t, r.reads, ""), tributary.Read(t), meter(theirs, ours)
		r.change(i)
		require.Len(t, stream.NextWithin(t, time.Minute).GetResources(), 1)
		c := cost()
		time.Sleep(2 * time.Second) // so that the next one comes alone, and for reads that would be too many
		m.seen, m.reads = append(m.seen, c.took), append(m.reads, tributary.Metric(t, r.reads, "")-reads)
		t.Logf("one change: seen after %v; %d reads, %d bytes", c, m.reads[i], tributary.Read(t)-read)
	}
	if r.revive != nil {
		r.comeBackEmpty(t, tributary)
	}
	if r.check != nil {
		r.check(m, tributary)
	}
}

// comeBackEmpty has the registry lose all. No endpoint goes before all of them are back, or after that.
func (r registry) comeBackEmpty(t *testing.T, tributary *fixture.Tributary) {
	t.Helper()
	all := countEndpoints(t, tributary)
	stay := func() { require.Equal(t, all, countEndpoints(t, tributary)) }
	require.Equal(t, r.services*r.instances+r.changes, all)
	r.server.Kill()
	time.Sleep(6 * time.Second)
	stay()
	r.revive()
	stay()
	r.fill()
	back := time.Now()
	// A listing that a Eureka was making when the last ones registered can stay in its cache, for three minutes.
	awaitSource(t, tributary, r.source.Name, 4*time.Minute, func(s state) bool { stay(); return s.State == "healthy" })
	t.Logf("whole again %v after all registered again", time.Since(back).Round(time.Millisecond))
	time.Sleep(16 * time.Second) // the hold ends
	stay()
}

func countEndpoints(t *testing.T, tributary *fixture.Tributary) (n int) {
	t.Helper()
	entries, err := servedEntries(t.Context(), tributary)
	require.NoError(t, err)
	for _, se := range entries {
		n += len(se.Endpoints)
	}
	return n
}

func servedEntries(ctx context.Context, tributary *fixture.Tributary) (map[string]*networking.ServiceEntry, error) {
	served, err := fixture.ReadServed(ctx, tributary.XDS, serviceEntries)
	if err != nil {
		return nil, err
	}
	entries := map[string]*networking.ServiceEntry{}
	for name, s := range served {
		se := &networking.ServiceEntry{}
		if err := proto.Unmarshal([]byte(s.Body), se); err != nil {
			return nil, err
		}
		entries[name] = se
	}
	return entries, nil
}
