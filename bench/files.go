package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"tributary/bench/engine"
	"tributary/bench/process"
	"tributary/bench/role"
)

// filesFlags ask for the end-to-end comparison: whole programs that read a directory and serve it as MCP over xDS.
type filesFlags struct {
	on          bool
	tributary   string
	istiod      string
	files       int
	subscribers int
}

func (f *filesFlags) register(flags *flag.FlagSet) {
	flags.BoolVar(&f.on, "end-to-end", false,
		"compare the tributary binary with istiod, both serving the same directory of files; needs Linux")
	flags.StringVar(&f.tributary, "tributary", "../bin/tributary", "the tributary binary, for -end-to-end and -tiers")
	flags.StringVar(&f.istiod, "istiod", "../e2e/.peers/pilot-discovery",
		"istiod's pilot-discovery binary, for -end-to-end; left out if it is not there")
	flags.IntVar(&f.files, "files", 10_000, "how many files, for -end-to-end")
	flags.IntVar(&f.subscribers, "subscribers", 50, "how many streams, for -end-to-end")
}

// kinds are the type URLs that an istiod asks its config source for, with the one that is measured first.
var kinds = []string{
	"networking.istio.io/v1/ServiceEntry",
	"core/v1alpha1/MeshConfig",
	"security.istio.io/v1/AuthorizationPolicy",
	"security.istio.io/v1/PeerAuthentication",
	"security.istio.io/v1/RequestAuthentication",
	"networking.istio.io/v1/DestinationRule",
	"networking.istio.io/v1/Gateway",
	"networking.istio.io/v1/Sidecar",
	"networking.istio.io/v1/VirtualService",
	"networking.istio.io/v1/WorkloadEntry",
	"networking.istio.io/v1/WorkloadGroup",
	"networking.istio.io/v1alpha3/EnvoyFilter",
	"networking.istio.io/v1beta1/ProxyConfig",
	"telemetry.istio.io/v1/Telemetry",
	"extensions.istio.io/v1alpha1/WasmPlugin",
}

// runFiles measures each program by itself, with a directory and clients of its own.
func runFiles(flags filesFlags, s settings, out io.Writer) error {
	programs, err := flags.programs()
	if err != nil {
		return err
	}
	o := outcome{columns: s.Columns}
	p := newProgress(os.Stderr, len(programs))
	for i, program := range programs {
		c := benchCase{Server: program.name, group: group{modeSotW, flags.files, flags.subscribers}}
		p.begin(i, c)
		results := runProgram(program, c, s, p.step)
		p.finish(results)
		o.results = append(o.results, results...)
	}
	p.end()
	if err := errors.Join(o.writeTable(out), o.writeErrors(out)); err != nil {
		return err
	}
	if o.failed() {
		return errors.New("not everything could be measured")
	}
	return nil
}

// fileRunner measures one program.
type fileRunner struct {
	benchCase
	settings
	rules string
	*running
	client  *child
	changes int
}

func runProgram(p *program, c benchCase, s settings, step func(string)) (results []result) {
	fail := func(scenario string, err error) []result {
		return append(results, result{benchCase: c, Scenario: scenario, Err: err})
	}
	step("write files")
	work, err := os.MkdirTemp("", "bench")
	if err != nil {
		return fail("start", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	r := &fileRunner{benchCase: c, settings: s, rules: filepath.Join(work, "rules")}
	if err := os.Mkdir(r.rules, 0o755); err != nil {
		return fail("start", err)
	}
	for i := range c.Resources {
		if err := r.write(i, 0); err != nil {
			return fail("start", err)
		}
	}

	step("start")
	if r.running, err = p.launch(work, r.rules); err != nil {
		return fail("start", err)
	}
	defer r.stop()
	if r.client, err = startChild(role.RoleClient); err != nil {
		return fail("start", err)
	}
	defer r.client.stop()

	step("first sync")
	f, err := r.open()
	if err != nil {
		return fail("start and first sync", r.blame(err))
	}
	results = append(results, summarize(c, initialSync, []figures{f}))

	var runs []figures
	for i := range s.Repeat + 1 {
		step(fmt.Sprintf("change %d/%d", i, s.Repeat))
		f, err := r.change()
		if err != nil {
			return fail(oneChange, r.blame(err))
		}
		if i > 0 { // the first one warms up
			runs = append(runs, f)
		}
	}
	return append(results, summarize(c, oneChange, runs))
}

// open opens the streams of the subscribers and waits until each has every file's resource. It measures from the start of
// the program: the reading of all files is part of it.
func (r *fileRunner) open() (figures, error) {
	if err := awaitListener(r.address, r.started.Add(r.Timeout)); err != nil {
		return figures{}, err
	}
	args := role.OpenArgs{
		Address:     r.address,
		Streams:     r.Streams,
		Connections: r.Connections,
		Node:        "sidecar~127.0.0.1~bench.bench~bench.svc.cluster.local", // istiod insists on the form
		TypeURLs:    kinds,
		Metadata:    map[string]string{"GENERATOR": "api"},
		Resources:   r.Resources,
		Timeout:     r.Timeout,
	}
	var opened role.Opened
	if err := r.client.call(2*r.Timeout, "Open", args, &opened); err != nil {
		return figures{}, err
	}
	return r.assemble(0, role.Traffic{}, r.started, opened.Arrivals)
}

// change changes one file and waits until every subscriber has its content.
func (r *fileRunner) change() (figures, error) {
	if err := r.client.call(r.Timeout, "Collect", struct{}{}, nil); err != nil {
		return figures{}, err
	}
	before, err := r.rest(r.Timeout)
	if err != nil {
		return figures{}, err
	}
	var traffic role.Traffic
	if err := r.client.call(r.Timeout, "Traffic", struct{}{}, &traffic); err != nil {
		return figures{}, err
	}
	process.ResetPeak(r.pid())
	r.changes++
	if err := r.client.call(r.Timeout, "Arm", role.ArmArgs{Marker: engine.Marker(r.changes)}, nil); err != nil {
		return figures{}, err
	}
	start := time.Now()
	if err := r.write(r.changes%r.Resources, r.changes); err != nil {
		return figures{}, err
	}
	var arrivals role.Arrivals
	if err := r.client.call(2*r.Timeout, "Await", r.Timeout, &arrivals); err != nil {
		return figures{}, err
	}
	return r.assemble(before, traffic, start, arrivals)
}

func (r *fileRunner) assemble(before time.Duration, sent role.Traffic, start time.Time, arrivals role.Arrivals) (figures, error) {
	after, err := r.rest(r.Timeout)
	if err != nil {
		return figures{}, err
	}
	var now role.Traffic
	if err := r.client.call(r.Timeout, "Traffic", struct{}{}, &now); err != nil {
		return figures{}, err
	}
	use := role.Usage{CPU: after}
	use.RSS, use.PeakRSS = process.Memory(r.pid())
	f := assemble(role.Usage{CPU: before}, use, sent, now, start, arrivals)
	f.RSS = use.RSS
	return f, nil
}

var serviceEntry = template.Must(template.New("").Parse(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: se-{{printf "%06d" .Index}}
  namespace: bench
  labels:
    app: se-{{printf "%06d" .Index}}
spec:
  hosts:
  - se-{{printf "%06d" .Index}}.{{.Marker}}.mesh.internal
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - number: 8080
    name: http
    protocol: HTTP
  endpoints:
  - address: 10.0.0.1
    locality: region-1/zone-a
    labels: {version: v1}
  - address: 10.0.0.2
    locality: region-1/zone-b
    labels: {version: v2}
`))

// write writes the i-th file as of a change, in one step as editors and deployments do.
func (r *fileRunner) write(i, change int) error {
	var b bytes.Buffer
	err := serviceEntry.Execute(&b, struct {
		Index  int
		Marker string
	}{i, engine.Marker(change)})
	if err != nil {
		return err
	}
	name := filepath.Join(r.rules, fmt.Sprintf("se-%06d.yaml", i))
	temporary := r.rules + ".new"
	if err := os.WriteFile(temporary, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, name)
}
