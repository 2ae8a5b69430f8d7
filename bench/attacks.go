package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"tributary/bench/attack"
	"tributary/bench/process"
	"tributary/bench/report"
	"tributary/bench/role"
	"tributary/bench/wire"
)

// attacksFlags select the measurement of honest clients under attacks.
type attacksFlags struct {
	on      bool
	size    float64
	objects int
	honest  int
	changes int
	least   time.Duration
	rounds  int
	control bool
	only    string
	servers string
}

func (f *attacksFlags) register(flags *flag.FlagSet) {
	flags.BoolVar(&f.on, "attacks", false, "attack the tributary binary, go-control-plane's server and istiod, each as it comes, on "+
		"loopback, and measure the delay of honest clients; needs Linux")
	flags.Float64Var(&f.size, "attack-size", 1, "the share of the full size of each attack, for -attacks")
	flags.IntVar(&f.objects, "attack-objects", 1000, "how many objects, or resources, there are, for -attacks")
	flags.IntVar(&f.honest, "honest", 100, "how many honest clients there are, for -attacks")
	flags.IntVar(&f.changes, "attack-changes", 60, "how many changes are timed in a spell, for -attacks")
	flags.DurationVar(&f.least, "attack-time", 3*time.Second, "how long an attack lasts at the least, for -attacks")
	flags.IntVar(&f.rounds, "attack-rounds", 3, "how often peace and attack take turns, for -attacks")
	flags.BoolVar(&f.control, "attack-beside", false, "also attack another server of the same kind without other clients, and measure "+
		"the clients of this one: that is the effect on the machine, for -attacks")
	flags.StringVar(&f.only, "attack", "", "only attacks with this in their names, for -attacks")
	flags.StringVar(&f.servers, "attacked", "tributary,go-control-plane,istiod", "which servers, for -attacks")
}

// spell is the measurement of a server for a while.
type spell struct {
	took   []time.Duration // by change and honest client
	late   bool            // the last change did not come in time
	cpu    time.Duration
	lasted time.Duration
	peak   uint64
}

// attackResult is a row of the table.
type attackResult struct {
	attack, server string
	// control is measured while another server is attacked.
	peace, control, under spell
	counts                attack.Counts
	err                   error
}

// runAttacks runs each attack on each server, each time on a new server, and writes the table.
func runAttacks(files filesFlags, flags attacksFlags, s settings, out io.Writer) error {
	servers, err := attackedServers(files, flags)
	if err != nil {
		return err
	}
	load := process.Load()
	var results []attackResult
	p := newProgress(os.Stderr, 1)
	p.name = "attacks"
	defer p.end()
	for _, name := range attack.Names() {
		if !strings.Contains(name, flags.only) {
			continue
		}
		for _, server := range servers {
			p.line(name + ": " + server.name)
			result := attackResult{attack: name, server: server.name}
			result.err = result.run(server, flags, s)
			results = append(results, result)
			p.line(fmt.Sprintf("%s: %s: 99 %% of clients and changes: %s → %s", name, server.name, inMillis(result.peace.percentile(0.99)),
				inMillis(result.under.percentile(0.99))))
		}
	}
	if _, err := fmt.Fprintf(out, "%d honest clients, size of attacks %g; load of the machine before: %s, after: %s\n\n", flags.honest,
		flags.size, load, process.Load()); err != nil {
		return err
	}
	return writeAttacks(out, results)
}

// run measures the server in peace and then under attack.
func (r *attackResult) run(server *attackedServer, flags attacksFlags, s settings) error {
	v, err := server.start(flags, s)
	if err != nil {
		return err
	}
	defer v.stop()
	for range 5 { // to warm up
		if _, err := v.change(); err != nil {
			return err
		}
	}
	controlVictim := &victim{timeout: s.Timeout, ask: v.ask}
	if flags.control {
		defer controlVictim.stop()
		if err := controlVictim.startServer(server); err != nil {
			return err
		}
	}
	for i := range flags.rounds { // in turns, since the machine may have more to do at one time than at another
		if i > 0 {
			rest()
		}
		if err := v.measure(&r.peace, flags.changes, 0); err != nil {
			return err
		}
		if flags.control {
			if _, err := r.attackOnce(controlVictim, v, &r.control, flags, s); err != nil {
				return err
			}
			rest()
		}
		counts, err := r.attackOnce(v, v, &r.under, flags, s)
		if err != nil || r.under.late {
			return err
		}
		r.counts.Dials += counts.Dials
		r.counts.Refused += counts.Refused
		r.counts.Sent += counts.Sent
	}
	return nil
}

// rest waits until the after-effects of an attack are over.
func rest() { time.Sleep(2 * time.Second) }

// attackOnce attacks one server, and measures the clients of the same or another one.
func (r *attackResult) attackOnce(attacked, v *victim, into *spell, flags attacksFlags, s settings) (counts attack.Counts, err error) {
	attacker, err := startChild(role.RoleAttacker)
	if err != nil {
		return counts, err
	}
	defer attacker.stop()
	args := role.AttackArgs{Name: r.attack, Target: attack.Target{
		Address: attacked.address, Admin: attacked.admin, TypeURL: attacked.ask.TypeURLs[0],
		Node: wire.Node(attacked.ask.Node, attacked.ask.Metadata), Size: flags.size,
	}}
	if err := attacker.call(s.Timeout, "Begin", args, nil); err != nil {
		return counts, err
	}
	if err := v.measure(into, flags.changes, flags.least); err != nil {
		return counts, err
	}
	return counts, attacker.call(s.Timeout, "End", struct{}{}, &counts)
}

// measure times changes for a while more.
func (v *victim) measure(q *spell, changes int, least time.Duration) error {
	const between = 50 * time.Millisecond
	process.ResetPeak(v.pid)
	cpu, err := process.CPUOf(v.pid)
	if err != nil {
		return err
	}
	start := time.Now()
	for n := 0; n < changes || time.Since(start) < least; n++ {
		took, err := v.change()
		if err != nil {
			return err
		}
		q.took = append(q.took, took...)
		if q.late = len(took) == 0; q.late {
			break
		}
		time.Sleep(between)
	}
	after, err := process.CPUOf(v.pid)
	if err != nil {
		return err
	}
	_, peak := process.Memory(v.pid)
	q.peak = max(q.peak, peak)
	q.lasted += time.Since(start)
	q.cpu += after - cpu
	return nil
}

// percentile returns the delay that a share of all clients and changes did not exceed.
func (s *spell) percentile(share float64) time.Duration {
	if len(s.took) == 0 {
		return 0
	}
	slices.Sort(s.took)
	return s.took[min(int(share*float64(len(s.took))), len(s.took)-1)]
}

// inMillis is percentile as text, if anything was measured.
func (s *spell) inMillis(share float64) string {
	if len(s.took) == 0 {
		return "–"
	}
	return inMillis(s.percentile(share))
}

func (s *spell) cores() string { return fmt.Sprintf("%.2f", s.cpu.Seconds()/s.lasted.Seconds()) }

func writeAttacks(out io.Writer, results []attackResult) error {
	t := report.Table{Left: 2, Header: []string{
		"attack", "server", "p50 in peace", "another attacked", "under attack", "p99 in peace", "another attacked", "under attack",
		"cores in peace", "under attack", "peak MB in peace", "under attack", "dials", "thrown out", "sent",
	}}
	for _, r := range results {
		if r.err != nil {
			t.Add(r.attack, r.server, r.err.Error(), "", "", "", "", "", "", "", "", "", "", "", "")
			continue
		}
		p99 := r.under.inMillis(0.99)
		if r.under.late {
			p99 = "over " + lateAfter.String()
		}
		t.Add(r.attack, r.server, r.peace.inMillis(0.5), r.control.inMillis(0.5), r.under.inMillis(0.5),
			r.peace.inMillis(0.99), r.control.inMillis(0.99), p99, r.peace.cores(), r.under.cores(),
			fmt.Sprint(r.peace.peak>>20), fmt.Sprint(r.under.peak>>20), fmt.Sprint(r.counts.Dials), fmt.Sprint(r.counts.Refused),
			fmt.Sprint(r.counts.Sent))
	}
	_, err := t.WriteTo(out)
	return err
}

func inMillis(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
