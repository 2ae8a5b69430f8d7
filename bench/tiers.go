package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tributary/bench/engine"
	"tributary/bench/process"
	"tributary/bench/report"
	"tributary/bench/role"
)

// tiersFlags select the measurement of a change that crosses tributaries that read from each other, on its way to many
// clients of the last.
type tiersFlags struct {
	on          bool
	depth       int
	objects     int
	clients     int
	returning   int
	sotw        bool
	compression string
}

func (f *tiersFlags) register(flags *flag.FlagSet) {
	flags.BoolVar(&f.on, "tiers", false, "measure tributaries that read from each other, the first from files, with many clients of the "+
		"last; needs Linux")
	flags.IntVar(&f.depth, "depth", 3, "how many, for -tiers")
	flags.IntVar(&f.objects, "objects", 100_000, "how many ServiceEntries, for -tiers")
	flags.IntVar(&f.clients, "clients", 500, "how many clients the last one has, for -tiers")
	flags.IntVar(&f.returning, "returning", 200, "how many of them there are when clients come back with their versions, for -tiers; each "+
		"sends the names of all objects")
	flags.StringVar(&f.compression, "compression", "gzip", "how the tiers send, gzip or none, for -tiers")
	flags.BoolVar(&f.sotw, "sotw", false, "the clients follow the state of the world, as istiods do, for -tiers")
}

// The steps of a measurement. The starts of the tiers have their numbers instead.
const (
	stepRead   = "clients read everything"
	stepChange = "one change"
	stepResume = "clients come back, one change behind"
)

// tierFigures are the costs of a step on one tier, over its repetitions.
type tierFigures struct {
	step    string
	tier    int // from 1
	readers int // streams to it, without the one that looks when changes arrive
	runs    []figures
}

// tiersRunner drives the chain.
type tiersRunner struct {
	tiersFlags
	settings
	dir     string
	step    func(string)
	tiers   []*tier
	reading *child // the clients of the last tier
	changes int
}

// runTiers measures the chain and writes the tables.
func runTiers(binary string, flags tiersFlags, s settings, out io.Writer) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p := newProgress(os.Stderr, 1)
	p.name = fmt.Sprintf("%d tiers, %d objects, %d clients", flags.depth, flags.objects, flags.clients)
	defer p.end()
	r := &tiersRunner{tiersFlags: flags, settings: s, dir: dir, step: p.line}
	load := []string{process.Load()}
	results, err := r.run(binary)
	if err != nil {
		return err
	}
	load = append(load, process.Load())
	mode := modeDelta
	if flags.sotw {
		mode = modeSotW
	}
	_, err = fmt.Fprintf(out, "%d tiers, %d ServiceEntries, clients: %s; load of the machine, over 1, 5 and 15 minutes: %s before, %s "+
		"after\n\n",
		flags.depth, flags.objects, mode, load[0], load[1])
	if err != nil {
		return err
	}
	return writeTiers(out, results)
}

func (r *tiersRunner) run(binary string) (results []tierFigures, err error) {
	defer func() {
		for _, t := range r.tiers {
			t.stop()
		}
		if r.reading != nil {
			r.reading.stop()
		}
	}()
	r.step("write files")
	rules, err := writeObjects(r.dir, r.objects)
	if err != nil {
		return nil, err
	}
	add := func(step string, runs ...[]figures) {
		for i := range r.tiers {
			f := tierFigures{step: step, tier: i + 1, readers: r.readers(i)}
			for _, run := range runs {
				f.runs = append(f.runs, run[i])
			}
			results = append(results, f)
		}
	}
	source := "fs://" + rules
	for i := range r.depth {
		name := fmt.Sprintf("tier %d starts", i+1)
		r.step(name)
		run, err := r.start(binary, source)
		if err != nil {
			return nil, err
		}
		source = "xds://" + r.tiers[i].xds
		add(name, run)
	}
	if err := r.watchEach(); err != nil {
		return nil, err
	}

	if r.reading, err = startChild(role.RoleClient); err != nil {
		return nil, err
	}
	r.step(stepRead)
	run, err := r.connect(r.openArgs(r.clients))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", stepRead, err)
	}
	add(stepRead, run)

	runs, err := r.repeat(stepChange, r.change)
	if err != nil {
		return nil, err
	}
	add(stepChange, runs...)
	if r.sotw {
		return results, nil // They send no versions.
	}

	r.clients = r.returning
	runs, err = r.resume()
	if err != nil {
		return nil, err
	}
	add(stepResume, runs...)
	return results, nil
}

// repeat runs a step as often as is asked for, and once before, to warm up.
func (r *tiersRunner) repeat(name string, step func() ([]figures, error)) (runs [][]figures, err error) {
	for i := range r.Repeat + 1 {
		r.step(fmt.Sprintf("%s, %d/%d", name, i, r.Repeat))
		run, err := step()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if i > 0 {
			runs = append(runs, run)
		}
	}
	return runs, nil
}

// start starts one tier more, and measures until it has read everything.
func (r *tiersRunner) start(binary, source string) ([]figures, error) {
	before, err := r.begin()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	t, err := startTier(binary, r.dir, len(r.tiers)+1, source, r.compression)
	if err != nil {
		return nil, err
	}
	r.tiers = append(r.tiers, t)
	if err := t.awaitReady(began.Add(r.patience())); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := r.end()
	if err != nil {
		return nil, err
	}
	run := r.assemble(append(before, tierUse{}), after)
	run[len(run)-1].Last = took
	return run, nil
}

// watchEach opens a stream to each tier but the last, which looks when changes arrive there.
func (r *tiersRunner) watchEach() error {
	for i, t := range r.tiers[:len(r.tiers)-1] {
		r.step(fmt.Sprintf("watch tier %d", i+1))
		var err error
		if t.watcher, err = startChild(role.RoleClient); err != nil {
			return err
		}
		args := r.openArgs(1)
		args.Address, args.Delta = t.xds, true
		if err := t.watcher.call(2*r.patience(), "Open", args, new(role.Opened)); err != nil {
			return fmt.Errorf("tier %d: %w", i+1, err)
		}
	}
	return nil
}

func (r *tiersRunner) openArgs(streams int) role.OpenArgs {
	return role.OpenArgs{
		Address:   r.tiers[len(r.tiers)-1].xds,
		Streams:   streams,
		Node:      engine.NodeID,
		Delta:     !r.sotw,
		TypeURLs:  kinds,
		Resources: r.objects,
		Timeout:   r.patience(),
	}
}

// connect opens the streams of the clients, and measures until each has its resources.
func (r *tiersRunner) connect(args role.OpenArgs) ([]figures, error) {
	if err := r.reading.call(r.Timeout, "Collect", struct{}{}, nil); err != nil {
		return nil, err
	}
	before, err := r.begin()
	if err != nil {
		return nil, err
	}
	var opened role.Opened
	if err := r.reading.call(2*r.patience(), "Open", args, &opened); err != nil {
		return nil, err
	}
	after, err := r.end()
	if err != nil {
		return nil, err
	}
	run := r.assemble(before, after)
	run[len(run)-1].arrive(opened.Arrivals, opened.Start)
	return run, nil
}

// change changes one file and measures until every client of the last tier has its content.
func (r *tiersRunner) change() ([]figures, error) {
	looking := append(r.watchers(), r.reading)
	for _, c := range looking {
		if err := c.call(r.Timeout, "Collect", struct{}{}, nil); err != nil {
			return nil, err
		}
	}
	before, err := r.begin()
	if err != nil {
		return nil, err
	}
	r.changes++
	for _, c := range looking {
		if err := c.call(r.Timeout, "Arm", role.ArmArgs{Marker: engine.Marker(r.changes)}, nil); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	if err := writeChanging(r.dir, r.changes); err != nil {
		return nil, err
	}
	arrivals := make([]role.Arrivals, len(looking))
	for i, c := range slices.Backward(looking) {
		if err := c.call(2*r.Timeout, "Await", r.Timeout, &arrivals[i]); err != nil {
			return nil, fmt.Errorf("tier %d: %w", i+1, err)
		}
	}
	after, err := r.end()
	if err != nil {
		return nil, err
	}
	run := r.assemble(before, after)
	for i := range run {
		run[i].arrive(arrivals[i], began)
	}
	return run, nil
}

// resume has clients come back that know all but one change.
func (r *tiersRunner) resume() ([][]figures, error) {
	r.step("learn versions")
	if err := r.reading.call(r.Timeout, "Close", struct{}{}, nil); err != nil {
		return nil, err
	}
	args := r.openArgs(r.returning)
	if err := r.reading.call(r.patience(), "Learn", args, nil); err != nil {
		return nil, err
	}
	r.changes++
	args.Marker, args.Resume = engine.Marker(r.changes), true
	if err := writeChanging(r.dir, r.changes); err != nil {
		return nil, err
	}
	return r.repeat(stepResume, func() ([]figures, error) {
		if err := r.reading.call(r.Timeout, "Close", struct{}{}, nil); err != nil {
			return nil, err
		}
		return r.connect(args)
	})
}

func (r *tiersRunner) watchers() (children []*child) {
	for _, t := range r.tiers[:len(r.tiers)-1] {
		children = append(children, t.watcher)
	}
	return children
}

// readers is how many streams there are to a tier that count.
func (r *tiersRunner) readers(i int) int {
	switch {
	case i < len(r.tiers)-1:
		return 1
	case r.reading == nil:
		return 0
	}
	return r.clients
}

// patience is how long a step may take that moves everything.
func (r *tiersRunner) patience() time.Duration { return 10 * r.Timeout }

// writeTiers writes the one change as it moves, and everything else.
func writeTiers(w io.Writer, results []tierFigures) error {
	change := report.Table{Left: 2, Header: []string{
		"tier", "readers", "CPU ms", "least–most", "CPU ms a reader", "half have it, ms", "last has it, ms", "messages", "bytes",
		"bytes a reader",
	}}
	rest := report.Table{Left: 2, Header: []string{
		"step", "tier", "readers", "CPU s", "done after s", "messages", "MB sent", "in use after MB", "peak RSS MB",
	}}
	for _, f := range results {
		r := summarize(benchCase{}, f.step, f.runs)
		if f.step != stepChange {
			rest.Add(f.step, fmt.Sprint(f.tier), fmt.Sprint(f.readers), seconds(r.CPU), seconds(r.Last),
				count(r.Messages), mega(r.Bytes), mega(r.RSS), mega(r.PeakRSS))
			continue
		}
		readers := uint64(f.readers)
		change.Add(fmt.Sprint(f.tier), fmt.Sprint(readers), millis(r.CPU), spread(r), millis(r.CPU/time.Duration(readers)),
			millis(r.P50), millis(r.Last), count(r.Messages), count(r.Bytes), count(r.Bytes/readers))
	}
	if _, err := change.WriteTo(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	_, err := rest.WriteTo(w)
	return err
}

func seconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", d.Seconds())
}
