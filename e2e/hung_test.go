package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// hungRegistry is a registry whose process stops, while the kernel goes on to accept connections.
type hungRegistry struct {
	*fixture.Process

	sources      []fixture.ConfigSource
	awaitServing func(t testing.TB)
	register     func(number int) (served []string) // adds services; parts of the text of servedText with them
}

func hungRegistries() map[string]func(t *testing.T) hungRegistry {
	return map[string]func(t *testing.T) hungRegistry{
		"Nacos 2.3.2": func(t *testing.T) hungRegistry { return hungNacos(t, "2.3.2") },
		"Nacos 3.1.0": func(t *testing.T) hungRegistry { return hungNacos(t, "3.1.0") },
		"Eureka": func(t *testing.T) hungRegistry {
			e := fixture.NewEureka(t, fixture.FreePort(t))
			e.AwaitServing(t)
			source := fixture.EurekaSource("eureka", e)
			return hungRegistry{e.Process, []fixture.ConfigSource{source}, e.AwaitServing, func(i int) []string {
				fixture.EurekaInstance{App: fmt.Sprint("S", i), IP: "10.0.1.1", Port: 8080 + i}.Start(t, e)
				return []string{fmt.Sprintf("10.0.1.1:%d", 8080+i)}
			}}
		},
		"ZooKeeper": func(t *testing.T) hungRegistry {
			z := fixture.StartZooKeeper(t)
			source := fixture.ConfigSource{Name: "dubbo", Address: "zookeeper://" + z.Addr} // with the default session
			return hungRegistry{z.Process, []fixture.ConfigSource{source}, z.AwaitServing, func(i int) []string {
				return []string{startGreeter(t, fixture.DubboGo{App: fmt.Sprint("app", i), Mode: "all", Registry: z.Addr})}
			}}
		},
		"kube-apiserver": func(t *testing.T) hungRegistry {
			k := fixture.StartKube(t, "istio")
			source := fixture.ConfigSource{Name: "kube", Address: "k8s://" + k.AdminConfig} // without its gate
			return hungRegistry{k.API, []fixture.ConfigSource{source}, k.AwaitReady, func(i int) []string {
				k.Apply(t, serviceEntry(fmt.Sprint("s", i), 80))
				return []string{fmt.Sprintf("shop/s%d ", i)}
			}}
		},
		"istiod": func(t *testing.T) hungRegistry {
			dir := t.TempDir()
			i := fixture.StartIstiod(t, "fs://"+dir)
			return hungUpstream(t, dir, i.Process, i.GRPC, i.AwaitSynced)
		},
		"tributary": func(t *testing.T) hungRegistry {
			dir := t.TempDir()
			upstream := fixture.StartTributary(t, fixture.Files("rules", dir).With("partialStart", true))
			return hungUpstream(t, dir, upstream.Process, upstream.XDS, upstream.AwaitReady)
		},
	}
}

func hungNacos(t *testing.T, version string) hungRegistry {
	n := fixture.StartNacos(t, version)
	sources := []fixture.ConfigSource{n.Source("plain", "kind=services"), n.Source("dubbo")}
	return hungRegistry{n.Process, sources, n.AwaitServing, func(i int) []string {
		n.AwaitServing(t)
		fixture.NacosInstance{Service: fmt.Sprint("s", i), IP: "10.0.1.1", Port: 8080 + i}.Beat(t, n)
		provider := startGreeter(t, fixture.DubboGo{App: fmt.Sprint("app", i), Mode: "interface", Nacos: n})
		return []string{fmt.Sprintf("10.0.1.1:%d", 8080+i), provider}
	}}
}

func hungUpstream(t *testing.T, dir string, p *fixture.Process, address string, serving func(testing.TB)) hungRegistry {
	return hungRegistry{p, []fixture.ConfigSource{fixture.Upstream("up", address)}, serving, func(i int) []string {
		write(t, dir, fmt.Sprintf("s%d.yaml", i), serviceEntry(fmt.Sprint("s", i), 80))
		return []string{fmt.Sprintf("shop/s%d ", i)}
	}}
}

// startGreeter starts a provider, again when it ends since its registry is not ready, and returns its address.
func startGreeter(t *testing.T, d fixture.DubboGo) string {
	d.Protocol, d.Port = "tri", fixture.FreePort(t)
	p := d.Start(t)
	fixture.WaitFor(t, time.Minute, func() error {
		if p.Ended() {
			p.Restart(t)
		}
		if !strings.Contains(p.Output(), "registering service=ReflectionServer") {
			return fmt.Errorf("it is not registered: %s", p.Output())
		}
		return nil
	})
	return fixture.Loopback(d.Port)
}

// servedText has the names and endpoints of the ServiceEntries that a tributary serves.
func servedText(ctx context.Context, tributary *fixture.Tributary) (string, error) {
	entries, err := servedEntries(ctx, tributary)
	if err != nil {
		return "", fmt.Errorf("%w: %w", fixture.ErrNoAnswer, err)
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		fmt.Fprintf(&text, "%s \n", name)
		for _, endpoint := range entries[name].Endpoints {
			for _, port := range endpoint.Ports {
				fmt.Fprintf(&text, "%s:%d\n", endpoint.Address, port)
			}
		}
	}
	return text.String(), nil
}

// serves returns an error if a part is not served.
func serves(ctx context.Context, tributary *fixture.Tributary, parts []string) error {
	text, err := servedText(ctx, tributary)
	for _, part := range parts {
		if err == nil && !strings.Contains(text, part) {
			err = fmt.Errorf("lacks %s: %s", part, text)
		}
	}
	return err
}

// TestHungRegistry, in the nightly run, stops the process of each registry for a minute and lets it go on, and then
// stops it again, kills it and starts it. It logs the table of docs/failing-safely.md.
func TestHungRegistry(t *testing.T) {
	nightly(t, "takes 5 minutes")
	t.Parallel()
	for name, start := range hungRegistries() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hang(t, name, start(t))
		})
	}
}

func hang(t *testing.T, name string, registry hungRegistry) {
	const hangs, back = time.Minute, 30 * time.Second
	tributary, restarted := fixture.StartTributary(t, registry.sources...), fixture.StartTributary(t, registry.sources...)
	both := []*fixture.Tributary{tributary, restarted}
	parts := append(registry.register(1), registry.register(2)...)
	type condition = func(*fixture.Tributary) error
	await := func(step string, timeout time.Duration, readers []*fixture.Tributary, reached condition) time.Duration {
		t.Helper()
		begun := time.Now()
		for _, tr := range readers {
			fixture.WaitFor(t, timeout, func() error { return reached(tr) })
		}
		t.Logf("%s after %v", step, time.Since(begun))
		return time.Since(begun).Round(100 * time.Millisecond)
	}
	isServed := func(tr *fixture.Tributary) error { return serves(t.Context(), tr, parts) }
	is := func(states ...string) condition {
		return func(tr *fixture.Tributary) error {
			for _, s := range registry.sources {
				if now := source(t, tr, s.Name); !slices.Contains(states, now.State) {
					return fmt.Errorf("the source is %v", now)
				}
			}
			return nil
		}
	}
	await("services are served", time.Minute, both, isServed)
	time.Sleep(2 * time.Second) // for the disk, ten times what it takes
	open, first := tributary.Descriptors(t), slices.Clone(parts)
	stop := watching(t, 500*time.Millisecond, func(ctx context.Context) error { return serves(ctx, tributary, first) })
	registry.Signal(t, syscall.SIGSTOP)
	stopped := time.Now()
	restarted.Crash(t)
	await("restarted, last good is served", 10*time.Second, both[1:], isServed)
	await("unreachable", hangs, both[:1], is("unreachable"))
	unreachable := time.Since(stopped).Round(100 * time.Millisecond)
	await("restarted, also unreachable", hangs, both[1:], is("unreachable"))
	time.Sleep(time.Until(stopped.Add(hangs))) // the test is about a registry that hangs for so long
	t.Logf("%d descriptors, %d before: %s", tributary.Descriptors(t), open, tributary.Ask(t, "status"))
	require.LessOrEqual(t, tributary.Descriptors(t), open+20)
	registry.Signal(t, syscall.SIGCONT)
	goesOn := await("back", back, both, is("healthy", "degraded"))
	parts = append(parts, registry.register(3)...)
	await("a new service is served", back, both, isServed)
	await("healthy again", 4*time.Minute, both, is("healthy")) // after the hold of what has not registered again

	registry.Signal(t, syscall.SIGSTOP)
	await("unreachable again", hangs, both, is("unreachable"))
	registry.Crash(t)
	registry.awaitServing(t)
	restart := await("back after a restart", back, both, is("healthy", "degraded"))
	parts = append(parts, registry.register(4)...)
	await("a new service is served", back, both, isServed)
	_, lost := stop()
	require.NoError(t, lost)
	t.Logf("| %s | %v | %v | %v |", name, unreachable, goesOn, restart)
}
