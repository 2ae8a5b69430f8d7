package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tributary/bench/process"
	"tributary/bench/role"
)

// envoysFlags ask for the comparison of whole programs as the control plane of Envoys, of the same files.
type envoysFlags struct {
	on, policies                        bool
	services, endpoints, rules, clients int
}

func (e *envoysFlags) register(flags *flag.FlagSet) {
	flags.BoolVar(&e.on, "envoys", false, "compare the tributary binary with istiod as the control plane of Envoys, both reading the same "+
		"directory of files; needs Linux")
	flags.BoolVar(&e.policies, "policies", false, "have gateways instead of sidecars, and change an AuthorizationPolicy, for -envoys")
	flags.IntVar(&e.services, "services", 10_000, "how many services, for -envoys")
	flags.IntVar(&e.endpoints, "endpoints", 10, "how many endpoints each has, for -envoys")
	flags.IntVar(&e.rules, "rules", 1_000, "how many of them have a VirtualService, for -envoys")
	flags.IntVar(&e.clients, "envoy-clients", 100, "how many clients, for -envoys")
}

// The scenarios of Envoys, in order.
const (
	envoysStart    = "start"
	envoysFirst    = "first client"
	envoysOthers   = "all other clients"
	envoysEndpoint = "one endpoint changed"
	envoysRule     = "one VirtualService changed"
	envoysService  = "one service added"
	envoysPolicy   = "one AuthorizationPolicy changed"
	envoysDemand   = "first client on demand"
	envoysDemands  = "all other clients on demand"
)

// runEnvoys measures each program by itself.
func runEnvoys(f filesFlags, e envoysFlags, s settings, w io.Writer) error {
	programs, err := f.programs()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "%d services of %d endpoints, %d VirtualServices, %d clients; load of the machine %s\n\n", e.services, e.endpoints,
		e.rules, e.clients, process.Load())
	var o outcome
	var memory []string
	p := newProgress(os.Stderr, len(programs))
	for i, program := range programs {
		r := &envoysRunner{
			envoysFlags: e, settings: s, step: p.line,
			benchCase: benchCase{Server: program.name, group: group{modeDelta, e.services, e.clients}},
		}
		p.begin(i, r.benchCase)
		program.plain = true
		err := r.run(program)
		if err != nil {
			r.results = append(r.results, result{benchCase: r.benchCase, Scenario: r.scenario, Err: err})
		}
		p.finish(r.results)
		o.results = append(o.results, r.results...)
		memory = append(memory, r.memory...)
	}
	p.end()
	if err := errors.Join(o.writeTable(w), o.writeErrors(w)); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "\n%s\n", strings.Join(memory, "\n"))
	if o.failed() {
		return errors.New("not everything could be measured")
	}
	return nil
}

// envoysRunner measures one program.
type envoysRunner struct {
	benchCase
	settings
	envoysFlags
	*running
	work, files string // folders
	client      *child
	step        func(string)
	changes     int

	scenario string // the scenario that is being measured
	results  []result
	memory   []string
}

func (r *envoysRunner) run(p *program) (err error) {
	r.scenario = envoysStart
	r.step("write files")
	if r.work, err = os.MkdirTemp("", "bench"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.work) }()
	r.files = filepath.Join(r.work, "rules")
	if err := os.Mkdir(r.files, 0o755); err != nil {
		return err
	}
	if err := r.writeAll(); err != nil {
		return err
	}
	r.step(envoysStart)
	if r.running, err = p.launch(r.work, r.files); err != nil {
		return err
	}
	defer r.stop()
	if r.client, err = startChild(role.RoleEnvoys); err != nil {
		return err
	}
	defer r.client.stop()
	if err := r.measure(); err != nil {
		return r.blame(err)
	}
	return nil
}

func (r *envoysRunner) measure() error {
	if err := awaitListener(r.address, r.started.Add(r.Timeout)); err != nil {
		return err
	}
	f, err := r.figuresSince(role.Usage{}, role.Traffic{}, time.Time{}, role.Arrivals{})
	if err != nil {
		return err
	}
	r.add(envoysStart, f)
	if err := r.remember("started"); err != nil {
		return err
	}
	plain := role.EnvoysArgs{Services: r.services, Metadata: map[string]string{
		"NAMESPACE": "bench", "INTERCEPTION_MODE": "NONE",
		"ISTIO_VERSION": "1.27.9",
	}}
	type scenario struct {
		scenario, typeURL string
		write             func() error
	}
	changes := []scenario{
		{envoysEndpoint, role.Endpoints, r.changeEndpoint}, {envoysRule, role.Routes, r.changeRule}, {envoysService, role.Routes, r.addService},
	}
	if r.policies {
		plain.Gateway, changes = true, []scenario{{envoysPolicy, role.Listeners, r.changePolicy}}
	}
	if err := r.open(envoysFirst, 1, plain); err != nil {
		return err
	}
	if err := r.open(envoysOthers, r.clients-1, plain); err != nil {
		return err
	}
	for _, change := range changes {
		r.begin(change.scenario)
		var runs []figures
		for i := range r.Repeat + 1 {
			r.step(fmt.Sprintf("%s %d/%d", change.scenario, i, r.Repeat))
			f, err := r.change(change.typeURL, change.write)
			if err != nil {
				return err
			}
			if i > 0 { // the first one warms up
				runs = append(runs, f)
			}
		}
		r.add(change.scenario, runs...)
	}
	if err := r.remember("changed"); err != nil || r.Server != programTributary || r.policies {
		return err // istiod has no such feature
	}
	asking := role.EnvoysArgs{Services: used, Metadata: map[string]string{
		"NAMESPACE": "bench", "INTERCEPTION_MODE": "NONE",
		"ON_DEMAND": "true",
	}, Port: servicePort}
	for i := range used {
		asking.Uses = append(asking.Uses, fmt.Sprintf("se-%06d.mesh.internal", i))
	}
	if err := r.open(envoysDemand, 1, asking); err != nil {
		return err
	}
	return r.open(envoysDemands, r.clients-1, asking)
}

// used is how many services a client uses that asks on demand.
const used = 3

// open opens further streams, and waits until each has its resources.
func (r *envoysRunner) open(scenario string, streams int, args role.EnvoysArgs) error {
	r.begin(scenario)
	before, traffic, err := r.ready()
	if err != nil {
		return err
	}
	args.Address, args.Streams, args.Timeout = r.address, streams, r.Timeout
	var opened role.Opened
	if err := r.client.call(2*r.Timeout, "Open", args, &opened); err != nil {
		return err
	}
	f, err := r.figuresSince(before, traffic, opened.Start, opened.Arrivals)
	if err != nil {
		return err
	}
	r.add(scenario, f)
	return r.remember(scenario)
}

func (r *envoysRunner) begin(scenario string) {
	r.scenario = scenario
	r.step(scenario)
}

func (r *envoysRunner) add(scenario string, runs ...figures) {
	r.results = append(r.results, summarize(r.benchCase, scenario, runs))
}

// change writes a file and waits until every client has its content.
func (r *envoysRunner) change(typeURL string, write func() error) (figures, error) {
	before, traffic, err := r.ready()
	if err != nil {
		return figures{}, err
	}
	r.changes++
	marker := r.marker(typeURL)
	if err := r.client.call(r.Timeout, "Arm", role.ArmEnvoysArgs{TypeURL: typeURL, Marker: marker}, nil); err != nil {
		return figures{}, err
	}
	start := time.Now()
	if err := write(); err != nil {
		return figures{}, err
	}
	var arrivals role.Arrivals
	if err := r.client.call(2*r.Timeout, "Await", r.Timeout, &arrivals); err != nil {
		return figures{}, err
	}
	return r.figuresSince(before, traffic, start, arrivals)
}

// ready waits until the program is at rest, and returns its usage until now.
func (r *envoysRunner) ready() (before role.Usage, traffic role.Traffic, err error) {
	if err = r.client.call(r.Timeout, "Collect", struct{}{}, nil); err != nil {
		return before, traffic, err
	}
	if before, err = r.usage(); err != nil {
		return before, traffic, err
	}
	if err = r.client.call(r.Timeout, "Traffic", struct{}{}, &traffic); err != nil {
		return before, traffic, err
	}
	if _, err = r.rest(r.Timeout); err != nil { // after the costs of the queries
		return before, traffic, err
	}
	process.ResetPeak(r.pid())
	before.CPU, err = process.CPUOf(r.pid())
	return before, traffic, err
}

// usage returns the usage of the program once it is at rest. The query costs some CPU afterwards.
func (r *envoysRunner) usage() (u role.Usage, err error) {
	if u.CPU, err = r.rest(r.Timeout); err != nil {
		return u, err
	}
	u.RSS, u.PeakRSS = process.Memory(r.pid())
	page, err := fetch("http://" + r.metrics + "/metrics")
	if err != nil {
		return u, err
	}
	if u.Allocs, err = sum(page, "go_memstats_mallocs_total "); err != nil {
		return u, err
	}
	u.AllocBytes, err = sum(page, "go_memstats_alloc_bytes_total ")
	return u, err
}

// figuresSince returns the figures since a usage.
func (r *envoysRunner) figuresSince(before role.Usage, sent role.Traffic, start time.Time, arrivals role.Arrivals) (figures, error) {
	after, err := r.usage()
	if err != nil {
		return figures{}, err
	}
	var now role.Traffic
	if err := r.client.call(r.Timeout, "Traffic", struct{}{}, &now); err != nil {
		return figures{}, err
	}
	return assemble(before, after, sent, now, start, arrivals), nil
}

// remember notes the memory that the program needs: the heap after a garbage collection, and its memory from the
// system.
func (r *envoysRunner) remember(when string) error {
	_, peak := process.Memory(r.pid())
	for range 2 {
		if _, err := fetch("http://" + r.profiles + "/debug/pprof/heap?gc=1"); err != nil {
			return err
		}
	}
	page, err := fetch("http://" + r.metrics + "/metrics")
	if err != nil {
		return err
	}
	heap, err := sum(page, "go_memstats_heap_alloc_bytes ")
	if err != nil {
		return err
	}
	stacks, err := sum(page, "go_memstats_stack_inuse_bytes ")
	if err != nil {
		return err
	}
	rss, _ := process.Memory(r.pid())
	r.memory = append(r.memory, fmt.Sprintf("memory of %s, %s: in use %s MB, resident %s MB, at most %s MB", r.Server, when, mega(heap+stacks),
		mega(rss), mega(peak)))
	return nil
}

func fetch(url string) (string, error) {
	client := http.Client{Timeout: time.Minute}
	res, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, res.Status)
	}
	return string(body), err
}
