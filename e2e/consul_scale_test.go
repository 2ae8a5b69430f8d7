package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// The size of the catalog, and the length of the measurement without changes. E2E_SERVICES is the number of services.
var scaleServices = int(number("E2E_SERVICES", 1000))

const (
	scaleInstances = 10
	scaleQuiet     = time.Minute
	scaleFlips     = 7
	scaleRound     = 15 * time.Second // of the loop
)

// costs are the costs of one way to read a catalog.
type costs struct {
	firstSync             time.Duration
	firstTheirs, firstOwn time.Duration // CPU
	memory                int           // bytes
	connections           int
	quietTheirs, quietOwn time.Duration // CPU, in scaleQuiet
	reads                 []int         // for each flip
	flips                 []time.Duration
	limited               int // answers 429

	restart                   time.Duration // until everything was read again after a restart
	restartReads              int
	restartTheirs, restartOwn time.Duration // CPU for it; its own with that of its start
}

// TestConsulScale measures the costs of a large catalog and of one check that flips; then those of a loop that reads
// everything every 15 s, as Traefik does by default. It prints a table.
func TestConsulScale(t *testing.T) {
	nightly(t, "takes 8 minutes")
	consul := fixture.StartConsul(t, fixture.ConsulOptions{TLS: true})
	fillCatalog(t, consul)
	theirs := consul.Usage(t).CPU
	time.Sleep(scaleQuiet) // The test measures a period of time.
	idle := consul.Usage(t).CPU - theirs

	readers := []struct {
		name string
		costs
	}{
		{"http", measureTributary(t, consul, consul.Source("consul"))},
		{"https", measureTributary(t, consul, consul.SecureSource("consul"))},
		{"read all, every 15 s", measureLoop(t, consul)},
	}
	var table strings.Builder
	fmt.Fprintf(&table, "%d services of %d instances; by itself Consul uses %s of a processor.\n\n", scaleServices, scaleInstances,
		share(idle))
	row := func(title string, value func(costs) string) {
		fmt.Fprintf(&table, "| %s |", title)
		for _, c := range readers {
			fmt.Fprintf(&table, " %s |", value(c.costs))
		}
		table.WriteString("\n")
	}
	table.WriteString("| |")
	for _, c := range readers {
		fmt.Fprintf(&table, " %s |", c.name)
	}
	table.WriteString("\n| --- | --- | --- | --- |\n")
	row("first sync", func(c costs) string { return seconds(c.firstSync) })
	row("CPU for it: Consul", func(c costs) string { return seconds(c.firstTheirs) })
	row("CPU for it: reader", func(c costs) string { return seconds(c.firstOwn) })
	row("connections", func(c costs) string { return fmt.Sprint(c.connections) })
	row("no changes: processor, Consul", func(c costs) string { return share(c.quietTheirs) })
	row("no changes: processor, reader", func(c costs) string { return share(c.quietOwn) })
	row("memory of the reader", func(c costs) string {
		if c.memory == 0 {
			return "–"
		}
		return fmt.Sprintf("%d MiB", c.memory>>20)
	})
	row("one check flips: reads of services", func(c costs) string { return strings.Trim(fmt.Sprint(c.reads), "[]") })
	row("one check flips: time until it is seen", func(c costs) string {
		var times []string
		for _, d := range c.flips {
			times = append(times, seconds(d))
		}
		return strings.Join(times, ", ")
	})
	row("answers 429", func(c costs) string { return fmt.Sprint(c.limited) })
	restarted := func(value func(costs) string) func(costs) string {
		return func(c costs) string {
			if c.restartReads == 0 {
				return "–"
			}
			return value(c)
		}
	}
	row("restart: until all was read", restarted(func(c costs) string { return seconds(c.restart) }))
	row("restart: reads of services", restarted(func(c costs) string { return fmt.Sprint(c.restartReads) }))
	row("restart: CPU, Consul", restarted(func(c costs) string { return seconds(c.restartTheirs) }))
	row("restart: CPU, reader", restarted(func(c costs) string { return seconds(c.restartOwn) }))
	fmt.Println(table.String())

	for _, c := range readers {
		require.Zero(t, c.limited, c.name)
	}
	// Three more queries exist for the costs and the delay of more services than watch slots.
	require.LessOrEqual(t, median(readers[0].flips), 2*time.Second, "over plain HTTP")
	require.LessOrEqual(t, readers[0].quietTheirs.Seconds(), 0.02*scaleQuiet.Seconds(), "CPU of Consul without changes")
	for _, n := range readers[1].reads {
		require.Equal(t, 1, n, "reads for one check that flips, where every service is watched")
	}
}

func median(durations []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[len(sorted)/2]
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func share(d time.Duration) string {
	return fmt.Sprintf("%.1f %%", 100*d.Seconds()/scaleQuiet.Seconds())
}

func scaleService(n int) string { return fmt.Sprintf("svc-%04d", n) }

// fillCatalog registers the services, on a node for each tenth of the instances.
func fillCatalog(t *testing.T, consul *fixture.Consul) {
	t.Helper()
	for i := range scaleInstances {
		node := fmt.Sprintf("node-%d", i)
		_, err := consul.API().Catalog().Register(&api.CatalogRegistration{Node: node, Address: fmt.Sprintf("127.1.0.%d", i+1)}, nil)
		require.NoError(t, err)
		var ops api.TxnOps
		commit := func() {
			if len(ops) == 0 {
				return
			}
			ok, res, _, err := consul.API().Txn().Txn(ops, nil)
			require.NoError(t, err)
			require.True(t, ok, "%v", res)
			ops = nil
		}
		for n := range scaleServices {
			id := fmt.Sprintf("%s-%d", scaleService(n), i)
			ops = append(ops, &api.TxnOp{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: node, Service: api.AgentService{
				ID: id, Service: scaleService(n), Port: 10000 + n, Meta: map[string]string{"protocol": "http"}, Tags: []string{"version=v1"},
			}}}, &api.TxnOp{Check: &api.CheckTxnOp{Verb: api.CheckSet, Check: api.HealthCheck{
				Node: node, CheckID: "check:" + id, Name: "e2e", ServiceID: id, Status: api.HealthPassing,
			}}})
			if len(ops) == 128 { // Consul's limit
				commit()
			}
		}
		commit()
	}
}

// flipped is the service with the nth flip of a check: from one end of the names to the other, since the last ones may
// have no watch slot.
func flipped(n int) int { return n * (scaleServices - 1) / (scaleFlips - 1) }

// flipCheck sets the check of an instance of a service, as the agent of its node would.
func flipCheck(t *testing.T, consul *fixture.Consul, n int, status string) {
	t.Helper()
	id := scaleService(n) + "-0"
	_, err := consul.API().Catalog().Register(&api.CatalogRegistration{
		Node: "node-0", Address: "127.1.0.1", SkipNodeUpdate: true,
		Check: &api.AgentCheck{
			Node: "node-0", CheckID: "check:" + id, Name: "e2e", ServiceID: id, Status: status,
		},
	}, nil)
	require.NoError(t, err)
}

// measureTributary measures a tributary that starts without any state, up to a subscriber that is not istiod.
func measureTributary(t *testing.T, consul *fixture.Consul, from fixture.ConfigSource) (c costs) {
	t.Helper()
	theirs, began := consul.Usage(t).CPU, time.Now()
	tributary := fixture.StartTributary(t, from)
	tributary.WaitFor(t, 3*time.Minute, func() error {
		if s := source(t, tributary, "consul"); !s.Synced {
			return fmt.Errorf("the source is %v", s)
		}
		return nil
	})
	c.firstSync, c.firstTheirs, c.firstOwn = time.Since(began), consul.Usage(t).CPU-theirs, tributary.Usage(t).CPU

	theirs, ownCPU := consul.Usage(t).CPU, tributary.Usage(t).CPU
	time.Sleep(scaleQuiet) // The test measures a period of time.
	c.quietTheirs, c.quietOwn = consul.Usage(t).CPU-theirs, tributary.Usage(t).CPU-ownCPU
	c.memory = tributary.Usage(t).Memory
	c.connections = fixture.Connections(t, strings.TrimPrefix(strings.TrimPrefix(from.Address, "consul://"), "consul+https://"))

	// A subscriber of changes, since those of the state of the world are paced.
	stream := fixture.OpenDelta(t, tributary.XDS, "e2e-client", "networking.istio.io/v1/ServiceEntry")
	for n := 0; n < scaleServices; {
		n += len(stream.NextWithin(t, time.Minute).GetResources())
	}
	for i := range scaleFlips {
		reads, changedAt := tributary.Metric(t, "tributary_consul_reads_total", ""), time.Now()
		flipCheck(t, consul, flipped(i), api.HealthCritical)
		require.Len(t, stream.NextWithin(t, time.Minute).GetResources(), 1)
		c.flips = append(c.flips, time.Since(changedAt))
		// The read that returned the change was counted at its start; the cost of the change is the read that follows.
		c.reads = append(c.reads, awaitRead(t, tributary, reads)-reads)
		flipCheck(t, consul, flipped(i), api.HealthPassing)
		require.Len(t, stream.NextWithin(t, time.Minute).GetResources(), 1)
	}
	c.limited = tributary.Metric(t, "tributary_consul_rate_limited_total", "")
	measureRestart(t, consul, tributary, &c)
	tributary.Terminate(t, 20*time.Second)
	return c
}

// measureRestart measures a start with the saved state of an earlier run.
func measureRestart(t *testing.T, consul *fixture.Consul, tributary *fixture.Tributary, c *costs) {
	t.Helper()
	tributary.Terminate(t, 20*time.Second)
	theirs, began := consul.Usage(t).CPU, time.Now()
	tributary.Restart(t)
	tributary.WaitFor(t, time.Minute, func() error {
		_, _, err := fixture.Get(t.Context(), tributary.URL("/-/ready"))
		return err
	})
	tributary.WaitFor(t, 3*time.Minute, func() error {
		c.restartReads = tributary.Metric(t, "tributary_consul_reads_total", "")
		if s := source(t, tributary, "consul"); s.State != "healthy" || s.Stale || c.restartReads < scaleServices {
			return fmt.Errorf("%d reads, the source is %v", c.restartReads, s)
		}
		return nil
	})
	c.restart, c.restartTheirs, c.restartOwn = time.Since(began), consul.Usage(t).CPU-theirs, tributary.Usage(t).CPU
}

// awaitRead waits until tributary has made another read, and returns how many it has made a moment later.
func awaitRead(t *testing.T, tributary *fixture.Tributary, after int) (n int) {
	t.Helper()
	count := func() int { return tributary.Metric(t, "tributary_consul_reads_total", "") }
	tributary.WaitFor(t, 30*time.Second, func() error {
		if n = count(); n == after {
			return fmt.Errorf("still %d reads", n)
		}
		return nil
	})
	time.Sleep(time.Second) // For those that would be too many.
	return count()
}

// measureLoop measures a loop in this process.
func measureLoop(t *testing.T, consul *fixture.Consul) (c costs) {
	t.Helper()
	ownCPU := func() time.Duration { return fixture.UsageOf(t, os.Getpid()).CPU }
	l := &loop{client: consul.API(), passing: map[string]int{}}
	theirs, ours, began := consul.Usage(t).CPU, ownCPU(), time.Now()
	require.NoError(t, l.readAll(t.Context()))
	c.firstSync, c.firstTheirs, c.firstOwn = time.Since(began), consul.Usage(t).CPU-theirs, ownCPU()-ours

	ctx, cancel := context.WithCancel(t.Context())
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for tick := time.NewTicker(scaleRound); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = l.readAll(ctx) // A round that fails is made up for by the next one.
			}
		}
	}()
	defer func() { cancel(); <-finished }()
	theirs, ours = consul.Usage(t).CPU, ownCPU()
	time.Sleep(scaleQuiet) // The test measures a period of time.
	c.quietTheirs, c.quietOwn = consul.Usage(t).CPU-theirs, ownCPU()-ours
	c.connections = fixture.Connections(t, consul.HTTP)
	for i := range scaleFlips {
		time.Sleep(scaleRound * time.Duration(i) / scaleFlips) // So that flips are spread evenly over a round.
		changedAt := time.Now()
		flipCheck(t, consul, flipped(i), api.HealthCritical)
		fixture.WaitFor(t, time.Minute, func() error {
			if n := l.instances(scaleService(flipped(i))); n == scaleInstances {
				return fmt.Errorf("%d instances of %s pass", n, scaleService(flipped(i)))
			}
			return nil
		})
		c.flips = append(c.flips, time.Since(changedAt))
		c.reads = append(c.reads, scaleServices)
	}
	return c
}

// loop reads all names and then each service, one after the other, as simple integrations do.
type loop struct {
	client *api.Client

	mu      sync.Mutex
	passing map[string]int
}

func (l *loop) readAll(ctx context.Context) error {
	q := (&api.QueryOptions{AllowStale: true}).WithContext(ctx)
	names, _, err := l.client.Catalog().Services(q)
	if err != nil {
		return err
	}
	for name := range names {
		entries, _, err := l.client.Health().Service(name, "", false, q)
		if err != nil {
			return err
		}
		n := 0
		for _, e := range entries {
			if e.Checks.AggregatedStatus() == api.HealthPassing {
				n++
			}
		}
		l.mu.Lock()
		l.passing[name] = n
		l.mu.Unlock()
	}
	return nil
}

func (l *loop) instances(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.passing[name]
}
