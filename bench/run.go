package main

import (
	"fmt"
	"time"

	"tributary/bench/engine"
	"tributary/bench/role"
)

// settings hold for all cases of a run.
type settings struct {
	Repeat      int
	Connections int
	StormRate   int
	StormTime   time.Duration
	IdleTime    time.Duration
	Timeout     time.Duration // of one step
	CPUProfile  string
	HeapProfile string
	Columns     []string // of the table; none are all
}

// runner runs the scenarios of one case on a server and a client process.
type runner struct {
	benchCase
	settings
	server, client *child
	address        string
	open           bool
	missed         int          // the change that clients that resume lack
	step           func(string) // shows the current step
}

// runCase runs a case in processes of its own. A scenario that fails ends the case: later ones would measure a server
// in trouble.
func runCase(c benchCase, s settings, step func(string)) []result {
	r := &runner{benchCase: c, settings: s, step: step}
	if err := r.start(); err != nil {
		return []result{{benchCase: c, Scenario: "start", Err: err}}
	}
	defer r.server.stop()
	defer r.client.stop()
	var results []result
	for _, name := range c.Scenarios {
		runs, err := r.run(name)
		if err != nil {
			return append(results, result{benchCase: c, Scenario: name, Err: err})
		}
		results = append(results, summarize(c, name, runs))
	}
	if s.HeapProfile != "" {
		if err := r.onServer("HeapProfile", s.HeapProfile, nil); err != nil {
			return append(results, result{benchCase: c, Scenario: "heap profile", Err: err})
		}
	}
	return results
}

func (r *runner) start() (err error) {
	r.step("start")
	if r.server, err = startChild(role.RoleServer); err != nil {
		return err
	}
	if r.client, err = startChild(role.RoleClient); err != nil {
		r.server.stop()
		return err
	}
	args := role.StartArgs{Engine: r.Server, Resources: r.Resources, Window: min(namedResources, r.Resources)}
	if err := r.onServer("Start", args, &r.address); err != nil {
		r.server.stop()
		r.client.stop()
		return err
	}
	return nil
}

// enough is the maximal time for the repetitions of a scenario. Long scenarios have little noise.
const enough = 30 * time.Second

// run runs a scenario as often as it is to be repeated.
func (r *runner) run(name string) (runs []figures, err error) {
	measure, repeat := r.scenario(name)
	if err := r.prepare(name); err != nil {
		return nil, err
	}
	if r.CPUProfile != "" {
		if err := r.onServer("StartProfile", r.CPUProfile+"."+name, nil); err != nil {
			return nil, err
		}
		defer func() {
			if stopErr := r.onServer("StopProfile", struct{}{}, nil); err == nil {
				err = stopErr
			}
		}()
	}
	for i, start := 0, time.Now(); i < repeat && (i == 0 || time.Since(start) < enough); i++ {
		r.step(fmt.Sprintf("%s %d/%d", name, i+1, repeat))
		f, err := measure()
		if err != nil {
			return nil, err
		}
		runs = append(runs, f)
	}
	return runs, nil
}

// scenario returns the measurement, and the number of repetitions.
func (r *runner) scenario(name string) (measure func() (figures, error), repeat int) {
	switch name {
	case initialSync:
		return r.initialSync, r.Repeat
	case idle:
		return r.idle, 1
	case oneChange:
		return func() (figures, error) { return r.change(1) }, r.Repeat
	case churn:
		return func() (figures, error) { return r.change(r.Resources / 100) }, r.Repeat
	case reconnect:
		return func() (figures, error) { return r.connect(true, false) }, r.Repeat
	case resume:
		return func() (figures, error) { return r.connect(true, true) }, r.Repeat
	case storm:
		return r.storm, 1
	}
	return func() (figures, error) { return figures{}, fmt.Errorf("no scenario is called %q", name) }, 1
}

// prepare brings the processes into the first state of the scenario, and warms them up for it.
func (r *runner) prepare(name string) error {
	if name == initialSync {
		return nil
	}
	if !r.open {
		r.step("connect")
		if _, err := r.connect(false, false); err != nil {
			return err
		}
	}
	r.step("warm up")
	switch name {
	case oneChange, churn, storm:
		_, err := r.change(1)
		return err
	case resume:
		// Clients come back with all versions but that of one change, which the server then sends.
		if err := r.onClient("Learn", r.openArgs(), nil); err != nil {
			return err
		}
		if err := r.onServer("NextChange", struct{}{}, &r.missed); err != nil {
			return err
		}
		_, err := r.change(1)
		return err
	}
	return nil
}

func (r *runner) openArgs() role.OpenArgs {
	args := role.OpenArgs{
		Address:     r.address,
		Streams:     r.Streams,
		Connections: r.Connections,
		Node:        engine.NodeID,
		Delta:       r.Mode != modeSotW,
		TypeURLs:    []string{engine.TypeURL},
		Resources:   r.perStream(),
		Timeout:     r.Timeout,
	}
	if r.Mode == modeNames {
		for i := range r.perStream() {
			args.Names = append(args.Names, engine.Name(i))
		}
	}
	return args
}

// initialSync measures the opening of all streams. Those that were open are closed before, unmeasured.
func (r *runner) initialSync() (figures, error) {
	if r.open {
		r.open = false
		if err := r.onClient("Close", struct{}{}, nil); err != nil {
			return figures{}, err
		}
		if err := r.onServer("AwaitNoStreams", r.Timeout, nil); err != nil {
			return figures{}, err
		}
	}
	return r.connect(false, false)
}

// connect measures the opening of all streams until each has all it asked for.
func (r *runner) connect(reopen, resume bool) (figures, error) {
	args := r.openArgs()
	args.Reopen = reopen
	if resume {
		args.Resume, args.Marker = true, engine.Marker(r.missed)
	}
	before, traffic, err := r.begin()
	if err != nil {
		return figures{}, err
	}
	var opened role.Opened
	if err := r.onClient("Open", args, &opened); err != nil {
		return figures{}, err
	}
	r.open = true
	return r.end(before, traffic, opened.Start, opened.Arrivals)
}

// change measures the replacement of n resources at once.
func (r *runner) change(n int) (figures, error) {
	_, traffic, err := r.begin()
	if err != nil {
		return figures{}, err
	}
	var next int
	if err := r.onServer("NextChange", struct{}{}, &next); err != nil {
		return figures{}, err
	}
	if err := r.onClient("Arm", role.ArmArgs{Marker: engine.Marker(next)}, nil); err != nil {
		return figures{}, err
	}
	var changed role.Changed
	if err := r.onServer("Change", n, &changed); err != nil {
		return figures{}, err
	}
	return r.await(changed, traffic)
}

// storm measures single changes at a rate, from the first one until every stream has the last.
func (r *runner) storm() (figures, error) {
	_, traffic, err := r.begin()
	if err != nil {
		return figures{}, err
	}
	var next int
	if err := r.onServer("NextChange", struct{}{}, &next); err != nil {
		return figures{}, err
	}
	final := next + int(float64(r.StormRate)*r.StormTime.Seconds())
	if err := r.onClient("Arm", role.ArmArgs{Marker: engine.Marker(final)}, nil); err != nil {
		return figures{}, err
	}
	args := role.StormArgs{Rate: r.StormRate, Duration: r.StormTime, Final: final, Rest: r.Timeout}
	var changed role.Changed
	start := time.Now()
	if err := r.onServer("Storm", args, &changed); err != nil {
		return figures{}, err
	}
	f, err := r.await(changed, traffic)
	f.Rate = float64(changed.Applied) / changed.At.Sub(start).Seconds()
	return f, err
}

// idle measures the costs of open streams without changes.
func (r *runner) idle() (figures, error) {
	if err := r.onClient("Collect", struct{}{}, nil); err != nil {
		return figures{}, err
	}
	var changed role.Changed
	if err := r.onServer("Idle", r.IdleTime, &changed); err != nil {
		return figures{}, err
	}
	f := cost(changed.Before, changed.After)
	f.RSS = changed.After.RSS
	return f, nil
}

// begin makes both processes ready for a step.
func (r *runner) begin() (before role.Usage, traffic role.Traffic, err error) {
	if err = r.onClient("Collect", struct{}{}, nil); err != nil {
		return before, traffic, err
	}
	if err = r.onClient("Traffic", struct{}{}, &traffic); err != nil {
		return before, traffic, err
	}
	collect := r.CPUProfile == "" // the profile leaves out the garbage collection for the measurement
	err = r.onServer("Begin", collect, &before)
	return before, traffic, err
}

// await waits until every stream has the server's change. The server was at rest already; without later events, its
// usage by then is the cost of the change.
func (r *runner) await(changed role.Changed, traffic role.Traffic) (figures, error) {
	var arrivals role.Arrivals
	if err := r.onClient("Await", r.Timeout, &arrivals); err != nil {
		return figures{}, err
	}
	var now role.Traffic
	if err := r.onClient("Traffic", struct{}{}, &now); err != nil {
		return figures{}, err
	}
	if now.Sent != changed.After.Received || now.Received != changed.After.Sent {
		return r.end(changed.Before, traffic, changed.At, arrivals)
	}
	return assemble(changed.Before, changed.After, traffic, now, changed.At, arrivals), nil
}

// end waits until the server has processed the last acknowledgement, and adds up.
func (r *runner) end(before role.Usage, traffic role.Traffic, start time.Time, arrivals role.Arrivals) (figures, error) {
	var after role.Usage
	var now, last role.Traffic
	for {
		if err := r.onClient("Traffic", struct{}{}, &now); err != nil {
			return figures{}, err
		}
		if after.Received > 0 && now == last {
			return assemble(before, after, traffic, now, start, arrivals), nil
		}
		last = now
		if err := r.onServer("Rest", role.RestArgs{Received: now.Sent, Timeout: r.Timeout}, &after); err != nil {
			return figures{}, err
		}
	}
}

func assemble(before, after role.Usage, sent, now role.Traffic, start time.Time, arrivals role.Arrivals) figures {
	f := cost(before, after)
	f.P50 = arrivals.Since(start, 0.5)
	f.P99 = arrivals.Since(start, 0.99)
	f.Last = arrivals.Since(start, 1)
	f.Bytes = now.Bytes - sent.Bytes
	f.Messages = now.Received - sent.Received
	return f
}

func cost(before, after role.Usage) figures {
	return figures{
		CPU:        after.CPU - before.CPU,
		RSS:        before.RSS,
		PeakRSS:    after.PeakRSS,
		Allocs:     after.Allocs - before.Allocs,
		AllocBytes: after.AllocBytes - before.AllocBytes,
	}
}

func (r *runner) onServer(method string, args, reply any) error {
	return r.server.call(r.limit(), method, args, reply)
}

func (r *runner) onClient(method string, args, reply any) error {
	return r.client.call(r.limit(), method, args, reply)
}

// limit is more than any step takes that watches its own time.
func (r *runner) limit() time.Duration { return 2*r.Timeout + r.StormTime }
