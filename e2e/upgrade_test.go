package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"tributary/e2e/fixture"
)

// follower is a client that comes back whenever its stream ends, and has what it was last sent.
type follower struct {
	addr  string
	delta bool
	id    string

	ended  atomic.Int32 // how often its stream ended
	failed atomic.Pointer[error]
	last   atomic.Pointer[string] // version of the object that it looks at
}

const followed = "networking.istio.io/v1/ServiceEntry"

// follow follows until ctx ends. A server that cannot be reached, or does not answer a new stream, is a failure.
func (f *follower) follow(ctx context.Context) {
	for ctx.Err() == nil {
		answered, err := f.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if !answered {
			f.failed.CompareAndSwap(nil, &err)
			return
		}
		f.ended.Add(1)
	}
}

func (f *follower) stream(ctx context.Context) (answered bool, err error) {
	conn, err := grpc.NewClient(f.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return false, err
	}
	defer conn.Close() //nolint:errcheck // nothing is written
	client, node := discovery.NewAggregatedDiscoveryServiceClient(conn), &core.Node{Id: f.id}
	note := func(version string) {
		if version != "" {
			f.last.Store(&version)
		}
		answered = true
	}
	if f.delta {
		s, err := client.DeltaAggregatedResources(ctx)
		if err == nil {
			err = s.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: followed})
		}
		for err == nil {
			var r *discovery.DeltaDiscoveryResponse
			if r, err = s.Recv(); err == nil {
				for _, one := range r.GetResources() {
					if one.GetName() == "shop/counter" {
						note(one.GetVersion())
					}
				}
				err = s.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: followed, ResponseNonce: r.GetNonce()})
			}
		}
		return answered, err
	}
	s, err := client.StreamAggregatedResources(ctx)
	if err == nil {
		err = s.Send(&discovery.DiscoveryRequest{Node: node, TypeUrl: followed})
	}
	for err == nil {
		var r *discovery.DiscoveryResponse
		if r, err = s.Recv(); err == nil {
			note(r.GetVersionInfo())
			err = s.Send(&discovery.DiscoveryRequest{TypeUrl: followed, ResponseNonce: r.GetNonce(), VersionInfo: r.GetVersionInfo()})
		}
	}
	return answered, err
}

// installed copies the program to where another one can be put in its place.
func installed(t *testing.T) (path string, install func(content []byte)) {
	path = filepath.Join(t.TempDir(), "tributary")
	install = func(content []byte) {
		require.NoError(t, os.WriteFile(path+".new", content, 0o755)) //nolint:gosec // it is a program
		require.NoError(t, os.Rename(path+".new", path))
	}
	return path, install
}

// An upgrade under 200 streams, a real istiod and changes: no stream ends before the successor answers, nobody is refused, and nothing is
// lost. A program that does not start, a configuration that is not right, and a successor that fails when it is half way change nothing for
// clients.
func TestUpgradeUnderStreams(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile(fixture.TributaryBinary(t))
	require.NoError(t, err)
	path, install := installed(t)
	install(program)
	rules := t.TempDir()
	for i := range 20 {
		name := fmt.Sprintf("steady-%d", i)
		write(t, rules, name+".yaml", serviceEntry(name, 80))
	}
	write(t, rules, "counter.yaml", serviceEntry("counter", 1))
	tributary := fixture.StartTributaryAt(t, path, fixture.Files("rules", rules))
	tributary.AwaitReady(t)
	istiod := fixture.StartIstiod(t, "xds://"+tributary.XDS)
	istiod.AwaitSynced(t)
	has := func() int {
		all, err := istiod.Configs(t.Context())
		require.NoError(t, err)
		n := 0
		for key := range all {
			if strings.Contains(fmt.Sprint(key), "steady-") {
				n++
			}
		}
		return n
	}
	istiod.WaitFor(t, 10*time.Second, func() error {
		if n := has(); n != 20 {
			return fmt.Errorf("istiod has %d", n)
		}
		return nil
	})

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	all := make([]*follower, 200)
	for i := range all {
		all[i] = &follower{addr: tributary.XDS, delta: i%2 == 0, id: fmt.Sprint("follower-", i)}
		running.Go(func() { all[i].follow(ctx) })
	}
	eachHas := func(what string, ok func(*follower) bool) {
		fixture.WaitFor(t, 30*time.Second, func() error {
			for _, f := range all {
				if err := f.failed.Load(); err != nil {
					t.Fatalf("%s: %s: %v", what, f.id, *err)
				}
				if !ok(f) {
					return errors.New(what)
				}
			}
			return nil
		})
	}
	eachHas("an answer", func(f *follower) bool { return f.last.Load() != nil })

	// Somebody changes an object all the time, and somebody looks whether the istiod loses any.
	port, lost := 1, atomic.Int32{}
	busy, rest := context.WithCancel(ctx)
	var changing sync.WaitGroup
	changing.Go(func() {
		for ; busy.Err() == nil; port++ {
			write(t, rules, "counter.yaml", serviceEntry("counter", 1+port%60000))
			time.Sleep(100 * time.Millisecond)
		}
	})
	changing.Go(func() {
		for busy.Err() == nil {
			if has() != 20 {
				lost.Add(1)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	upgrade := func() (string, int) {
		cmd := exec.CommandContext(t.Context(), fixture.TributaryBinary(t), "upgrade", "--admin", tributary.Admin)
		said, _ := cmd.CombinedOutput() // the exit code says it
		return string(said), cmd.ProcessState.ExitCode()
	}

	// Programs and configurations that are not right.
	install([]byte("#!/bin/sh\nexit 3\n"))
	out, code := upgrade()
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "does not take over: it has ended; process")
	install([]byte("#!/bin/sh\nexec " + fixture.TributaryBinary(t) + ` "$@" --admin nonsense` + "\n"))
	out, code = upgrade()
	require.Equal(t, 1, code, out)
	require.Contains(t, out, `"nonsense"`)
	for _, f := range all {
		require.Zero(t, f.ended.Load(), "nobody notices")
	}

	// One that fails half way: the process before goes on.
	install([]byte("#!/bin/sh\nexec " + fixture.TributaryBinary(t) + ` "$@" --state-dir /proc/nowhere` + "\n"))
	out, code = upgrade()
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "goes on as before")
	for _, f := range all {
		require.Zero(t, f.ended.Load(), "nobody notices")
	}

	install(program)
	out, code = upgrade()
	require.Zero(t, code, out)
	require.Regexp(t, `^process \d+ serves in place of process \d+, which hands over 20\d streams\n$`, out)
	eachHas("a second stream", func(f *follower) bool { return f.ended.Load() == 1 })

	rest()
	changing.Wait()
	require.Zero(t, lost.Load(), "the istiod lost objects")
	before := *all[0].last.Load()
	write(t, rules, "counter.yaml", serviceEntry("counter", 65000))
	istiod.WaitFor(t, 20*time.Second, func() error {
		configs, err := istiod.Configs(t.Context())
		if counter := configs[fixture.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "counter"}]; err == nil &&
			(counter == nil || !strings.Contains(string(counter.Spec), "65000")) {
			err = errors.New("the last change is not with istiod")
		}
		return err
	})
	eachHas("the last change", func(f *follower) bool {
		return *f.last.Load() == *all[map[bool]int{true: 0, false: 1}[f.delta]].last.Load()
	})
	require.NotEqual(t, before, *all[0].last.Load())
	require.NotContains(t, tributary.Output(), "panic")
}
