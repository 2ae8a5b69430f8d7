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

// attacksFlags ask what honest clients notice while others mean harm.
type attacksFlags struct {
	on      bool
	size    float64
	honest  int
	changes int
	least   time.Duration
	rounds  int
	only    string
	servers string
}

func (f *attacksFlags) register(flags *flag.FlagSet) {
	flags.BoolVar(&f.on, "attacks", false, "attack the tributary binary, go-control-plane's server and istiod, each as it comes, on loopback, and look what honest clients notice; needs Linux")
	flags.Float64Var(&f.size, "attack-size", 1, "the share of the full size of each attack, for -attacks")
	flags.IntVar(&f.honest, "honest", 100, "how many honest clients there are, for -attacks")
	flags.IntVar(&f.changes, "attack-changes", 20, "how many changes are timed in a spell of peace, and at the least in one of attack, for -attacks")
	flags.DurationVar(&f.least, "attack-time", 3*time.Second, "how long an attack lasts at the least, for -attacks")
	flags.IntVar(&f.rounds, "attack-rounds", 3, "how often peace and attack take turns, for -attacks")
	flags.StringVar(&f.only, "attack", "", "only attacks whose names contain this, for -attacks")
	flags.StringVar(&f.servers, "attacked", "tributary,go-control-plane,istiod", "which servers, for -attacks")
}

// spell is what is measured of a server for a while.
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
	peace, under   spell
	counts         attack.Counts
	err            error
}

// runAttacks runs each attack on each server, anew each time, and writes the table.
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
		}
	}
	if _, err := fmt.Fprintf(out, "%d honest clients, size of attacks %g; load of the machine before: %s, after: %s\n\n", flags.honest, flags.size, load, process.Load()); err != nil {
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
	args := role.AttackArgs{Name: r.attack, Target: attack.Target{
		Address: v.address, TypeURL: v.ask.TypeURLs[0], Node: wire.Node(v.ask.Node, v.ask.Metadata), Size: flags.size,
	}}
	for i := range flags.rounds { // in turns, since the machine may have more to do at one time than at another
		if i > 0 {
			time.Sleep(2 * time.Second) // what the attack left behind is no peace
		}
		if err := v.measure(&r.peace, flags.changes, 0); err != nil {
			return err
		}
		if err := r.attackOnce(v, args, flags, s); err != nil || r.under.late {
			return err
		}
	}
	return nil
}

func (r *attackResult) attackOnce(v *victim, args role.AttackArgs, flags attacksFlags, s settings) error {
	attacker, err := startChild(role.RoleAttacker)
	if err != nil {
		return err
	}
	defer attacker.stop()
	if err := attacker.call(s.Timeout, "Begin", args, nil); err != nil {
		return err
	}
	if err := v.measure(&r.under, flags.changes, flags.least); err != nil {
		return err
	}
	var counts attack.Counts
	if err := attacker.call(s.Timeout, "End", struct{}{}, &counts); err != nil {
		return err
	}
	r.counts.Dials += counts.Dials
	r.counts.Refused += counts.Refused
	r.counts.Sent += counts.Sent
	return nil
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

// at returns what time it took for a share of all clients and changes.
func (q *spell) at(share float64) time.Duration {
	if len(q.took) == 0 {
		return 0
	}
	slices.Sort(q.took)
	return q.took[min(int(share*float64(len(q.took))), len(q.took)-1)]
}

func (q *spell) cores() string { return fmt.Sprintf("%.2f", q.cpu.Seconds()/q.lasted.Seconds()) }

func writeAttacks(out io.Writer, results []attackResult) error {
	t := report.Table{Left: 2, Header: []string{
		"attack", "server", "p50 in peace", "under attack", "p99 in peace", "under attack", "ratio", "cores in peace", "under attack", "peak MB in peace", "under attack", "dials", "thrown out", "sent",
	}}
	for _, r := range results {
		if r.err != nil {
			t.Add(r.attack, r.server, r.err.Error(), "", "", "", "", "", "", "", "", "", "", "")
			continue
		}
		before, under := r.peace.at(0.99), r.under.at(0.99)
		p99, ratio := inMillis(under), fmt.Sprintf("%.1f ×", float64(under)/float64(before))
		if r.under.late {
			p99, ratio = "over "+lateAfter.String(), "–"
		}
		t.Add(r.attack, r.server, inMillis(r.peace.at(0.5)), inMillis(r.under.at(0.5)), inMillis(before), p99, ratio, r.peace.cores(), r.under.cores(),
			fmt.Sprint(r.peace.peak>>20), fmt.Sprint(r.under.peak>>20), fmt.Sprint(r.counts.Dials), fmt.Sprint(r.counts.Refused), fmt.Sprint(r.counts.Sent))
	}
	_, err := t.WriteTo(out)
	return err
}

func inMillis(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
