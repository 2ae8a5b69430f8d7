package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tributary/bench/engine"
	"tributary/bench/role"
)

// attackedServer is a server that is attacked.
type attackedServer struct {
	name    string
	program *program // nil for go-control-plane's, which is this program in another role
}

// programStock is go-control-plane's own server on its LinearCache, with the gRPC server of its example.
const programStock = "go-control-plane"

func attackedServers(files filesFlags, flags attacksFlags) (servers []*attackedServer, err error) {
	programs, err := files.programs()
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(flags.servers, ",") {
		if name == programStock {
			servers = append(servers, &attackedServer{name: name})
			continue
		}
		for _, p := range programs {
			if p.name == name {
				servers = append(servers, &attackedServer{name, p})
			}
		}
	}
	if len(servers) == 0 {
		return nil, fmt.Errorf("there is none of the servers %q", flags.servers)
	}
	return servers, nil
}

// victim is a server with honest clients.
type victim struct {
	address string
	admin   string // the address of its admin port; empty if there is none
	pid     int
	ask     role.OpenArgs
	changes int
	client  *child
	timeout time.Duration
	// touch makes a change and says which it is, and when it was.
	touch func() (change int, changedAt time.Time, err error)
	stops []func()
}

// lateAfter is the delay after which a change counts as late.
const lateAfter = 10 * time.Second

// start starts the server and its honest clients.
func (s *attackedServer) start(flags attacksFlags, set settings) (v *victim, err error) {
	v = &victim{timeout: set.Timeout}
	defer func() {
		if err != nil {
			v.stop()
		}
	}()
	v.ask = role.OpenArgs{Streams: flags.honest, Delta: s.name != programIstiod, Resources: flags.objects, Timeout: set.Timeout}
	if err := v.startServer(s); err != nil {
		return v, err
	}
	if v.client, err = startChild(role.RoleClient); err != nil {
		return v, err
	}
	v.stops = append(v.stops, v.client.stop)
	v.ask.Address = v.address
	var opened role.Opened
	return v, v.client.call(2*set.Timeout, "Open", v.ask, &opened)
}

func (v *victim) stop() {
	for _, stop := range slices.Backward(v.stops) {
		stop()
	}
}

func (v *victim) startServer(s *attackedServer) error {
	if s.program == nil {
		return v.startStock()
	}
	return v.startProgram(s.program)
}

func (v *victim) startStock() error {
	server, err := startChild(role.RoleServer)
	if err != nil {
		return err
	}
	v.stops = append(v.stops, server.stop)
	v.pid = server.cmd.Process.Pid
	v.ask.Node, v.ask.TypeURLs = engine.NodeID, []string{engine.TypeURL}
	v.touch = func() (int, time.Time, error) {
		var changed role.Changed
		err := server.call(v.timeout, "Touch", struct{}{}, &changed)
		return changed.Change, changed.At, err
	}
	args := role.StartArgs{Engine: engine.Linear, Resources: v.ask.Resources, Window: v.ask.Resources, Stock: true}
	return server.call(v.timeout, "Start", args, &v.address)
}

const credentials = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: credentials, namespace: bench}
spec: {host: credentials.bench, trafficPolicy: {tls: {mode: SIMPLE, credentialName: cert}}}
`

func (v *victim) startProgram(p *program) error {
	work, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	v.stops = append(v.stops, func() { _ = os.RemoveAll(work) })
	rules, err := writeObjects(work, v.ask.Resources)
	if err != nil {
		return err
	}
	// It makes hosts differ for sidecars with another folder of credentials.
	if err := os.WriteFile(filepath.Join(rules, "credentials.yaml"), []byte(credentials), 0o600); err != nil {
		return err
	}
	p.plain, p.quick = true, true // its wait for more changes would hide the delay of clients
	running, err := p.launch(work, rules)
	if err != nil {
		return err
	}
	v.stops = append(v.stops, running.stop)
	v.pid, v.address = running.pid(), running.address
	if p.name == programTributary {
		v.admin = running.metrics
	}
	v.ask.Node, v.ask.TypeURLs = "sidecar~127.0.0.1~bench.bench~bench.svc.cluster.local", kinds[:1]
	v.ask.Metadata = map[string]string{"GENERATOR": "api"}
	changes := 0
	v.touch = func() (int, time.Time, error) {
		changes++
		changedAt := time.Now()
		return changes, changedAt, writeChanging(work, changes)
	}
	return awaitListener(v.address, time.Now().Add(v.timeout))
}

// change makes a change and returns its delay at each honest client, or nil if it took too long.
func (v *victim) change() ([]time.Duration, error) {
	// The number of the change that comes is one more than that of the last.
	next := v.changes + 1
	if err := v.client.call(v.timeout, "Arm", role.ArmArgs{Marker: engine.Marker(next)}, nil); err != nil {
		return nil, err
	}
	change, start, err := v.touch()
	if err != nil {
		return nil, err
	}
	if change != next {
		return nil, fmt.Errorf("change %d, want %d", change, next)
	}
	v.changes = change
	var arrivals role.Arrivals
	if err := v.client.call(v.timeout, "Await", lateAfter, &arrivals); err != nil {
		if strings.Contains(err.Error(), "do not have it after") {
			return nil, nil
		}
		return nil, err
	}
	took := make([]time.Duration, len(arrivals.At))
	for i, arrived := range arrivals.At {
		took[i] = arrived.Sub(start)
	}
	return took, nil
}
