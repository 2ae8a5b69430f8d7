package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"
	mcp "istio.io/api/mcp/v1alpha1"

	"tributary/adsc"
	"tributary/config"
	"tributary/internal/testutil"
	"tributary/resource"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("XDG_STATE_HOME", os.DevNull) // no test reads the state of another test
	goleak.VerifyTestMain(m)
}

// patience limits the time that a test waits.
const patience = 60 * time.Second

// eventually waits until look returns no error.
func eventually(t *testing.T, look func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if err = look(); err == nil {
			return
		}
	}
	require.NoError(t, err, "still after %s", patience)
}

// await waits until a condition holds.
func await(t *testing.T, condition func() bool) {
	t.Helper()
	eventually(t, func() error {
		if condition() {
			return nil
		}
		return errors.New("the condition does not hold")
	})
}

// rig is a relay that runs in this process.
type rig struct {
	*Relay
	dir  string
	stop func() // ends it, once
	log  *testutil.Buffer
}

// configured writes the configuration: sources, each a mapping without braces, after the other settings. Changes of
// files are read soon.
func configured(t *testing.T, dir string, sources ...string) {
	t.Helper()
	text := "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: state\nconfigSources:\n"
	for _, source := range sources {
		if strings.Contains(source, "'fs://") && !strings.Contains(source, "quietDelay") {
			source += ", quietDelay: 1ms, rescanInterval: 100ms"
		}
		text += "- {" + source + "}\n"
	}
	write(t, dir+"/tributary.yaml", text)
}

// write writes a file, at once as far as readers can see.
func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o644))
	require.NoError(t, os.Rename(path+".new", path))
}

// entry is a ServiceEntry.
func entry(namespace, name string, port int) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %s, namespace: %s}
spec: {hosts: [%s.example], ports: [{number: %d, name: http, protocol: HTTP}], resolution: NONE}
---
`, name, namespace, name, port)
}

// entries returns n ServiceEntries with numbered names.
func entries(namespace, prefix string, n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(entry(namespace, fmt.Sprintf("%s%02d", prefix, i), 80))
	}
	return text.String()
}

// fill writes files of ServiceEntries, each as "FILE: NAMESPACE/NAME:PORT...". Port 80 may be left out, and NAME*N
// stands for N entries.
func fill(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, file := range files {
		name, objects, _ := strings.Cut(file, ": ")
		text := ""
		for object := range strings.FieldsSeq(objects) {
			namespace, object, _ := strings.Cut(object, "/")
			object, port, _ := strings.Cut(object, ":")
			number, _ := strconv.Atoi(port)
			if prefix, n, ok := strings.Cut(object, "*"); ok {
				count, err := strconv.Atoi(n)
				require.NoError(t, err)
				text += entries(namespace, prefix, count)
				continue
			}
			text += entry(namespace, object, cmp.Or(number, 80))
		}
		write(t, dir+"/"+name, text)
	}
}

// dial connects to a server without TLS.
func dial(t *testing.T, address net.Addr) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// serve writes files, as fill does, and runs a relay with these sources until the test ends.
func serve(t *testing.T, files []string, sources ...string) *rig {
	t.Helper()
	dir := t.TempDir()
	fill(t, dir, files...)
	configured(t, dir, sources...)
	return start(t, dir)
}

// start runs a relay with the configuration in dir until the test ends.
func start(t *testing.T, dir string) *rig { return startAt(t, dir, "127.0.0.1:0") }

// startReady runs a relay, and waits until it is ready.
func startReady(t *testing.T, dir string) *rig {
	t.Helper()
	r := start(t, dir)
	r.awaitReady(t)
	return r
}

func startAt(t *testing.T, dir, xds string) *rig { return startWith(t, dir, xds, nil) }

func startWith(t *testing.T, dir, xds string, sockets map[string]net.Listener) *rig {
	t.Helper()
	load := func() (*config.Config, error) {
		cfg, err := config.Load(dir + "/tributary.yaml")
		if err == nil {
			cfg.Listen.XDS = xds
		}
		return cfg, err
	}
	cfg, err := load()
	require.NoError(t, err)
	r := &rig{dir: dir, log: new(testutil.Buffer)}
	log := slog.New(slog.NewTextHandler(r.log, nil))
	r.Relay, err = Open(t.Context(), cfg, Options{
		Version: "test", Origin: Origin{File: dir + "/tributary.yaml", Load: load}, Log: log,
		Sockets: sockets,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// reload puts sources in force.
func (r *rig) reload(t *testing.T, sources ...string) {
	t.Helper()
	configured(t, r.dir, sources...)
	r.reloadFile(t)
}

// reloadFile puts the configuration file in force.
func (r *rig) reloadFile(t *testing.T) {
	t.Helper()
	_, err := r.reloader.Reload(t.Context(), "the test")
	require.NoError(t, err)
}

// get returns the response of the admin server.
func (r *rig) get(t *testing.T, path string) (status int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.Admin().String()+path, nil)
	require.NoError(t, err)
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, string(body)
}

// page returns the text of a page of the admin server.
func (r *rig) page(t *testing.T, path string) string {
	t.Helper()
	_, text := r.get(t, path)
	return text
}

// ready returns the status of /-/ready.
func (r *rig) ready(t *testing.T) int {
	t.Helper()
	status, _ := r.get(t, "/-/ready")
	return status
}

func (r *rig) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		if status := r.ready(t); status != http.StatusOK {
			return fmt.Errorf("status %d: %s", status, r.log)
		}
		return nil
	})
}

// contents is the content that a reader sees: from "kind namespace/name" to content.
type contents map[string]string

func (c contents) names() string { return strings.Join(slices.Sorted(maps.Keys(c)), " ") }

// client stays connected to a relay by one variant of the protocol, also across its restarts.
type client struct {
	name  string
	check func(reader string, now contents)

	mu        sync.Mutex
	resources map[string]contents // by type URL
}

// typeURLs are the types that clients subscribe to.
var typeURLs = []string{"networking.istio.io/v1/ServiceEntry", "networking.istio.io/v1/Gateway"}

// startClient starts a client that ends with the test. check, if there is one, is called with whatever it has after each answer.
func startClient(t *testing.T, address string, mode adsc.Mode, check func(reader string, now contents)) *client {
	t.Helper()
	c := &client{name: map[adsc.Mode]string{adsc.SotW: "sotw", adsc.Delta: "delta"}[mode], check: check, resources: map[string]contents{}}
	cfg := adsc.Config{
		Addresses: []string{address}, Mode: mode, Log: slog.New(slog.DiscardHandler),
		Node: &corev3.Node{Id: "looker", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"GENERATOR": structpb.NewStringValue("api"),
		}}},
		Backoff: func() backoff.BackOff { return backoff.NewConstantBackOff(10 * time.Millisecond) },
	}
	for _, url := range typeURLs {
		cfg.Subscriptions = append(cfg.Subscriptions, adsc.Subscription{TypeURL: url, Handler: func(_ context.Context, r *adsc.Response) error {
			return c.take(r)
		}})
	}
	ads, err := adsc.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = ads.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return c
}

func (c *client) take(response *adsc.Response) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	resources := c.resources[response.TypeURL]
	if response.Complete || resources == nil {
		resources = contents{}
	} else {
		resources = maps.Clone(resources)
	}
	for _, res := range response.Resources {
		var m mcp.Resource
		if err := res.Body.UnmarshalTo(&m); err != nil {
			return err
		}
		name := m.GetMetadata().GetName()
		resources[name] = contentOf(m.GetMetadata().GetLabels(), m.GetBody().GetValue())
	}
	for _, name := range response.Removed {
		delete(resources, name)
	}
	c.resources[response.TypeURL] = resources
	if c.check != nil {
		c.check(c.name, c.all())
	}
	return nil
}

// all returns the content of the client. The caller holds mu.
func (c *client) all() contents {
	all := contents{}
	for url, resources := range c.resources {
		for name, content := range resources {
			all[url[strings.LastIndex(url, "/")+1:]+" "+name] = content
		}
	}
	return all
}

func (c *client) now() contents {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all()
}

// awaitObjects waits until the client has the objects called names, and no others.
func (c *client) awaitObjects(t *testing.T, names ...string) {
	t.Helper()
	want := strings.Join(slices.Sorted(slices.Values(names)), " ")
	eventually(t, func() error {
		if got := c.now().names(); got != want {
			return fmt.Errorf("%s sees %s, want %s", c.name, got, want)
		}
		return nil
	})
}

// neverMissing is a check that some objects are never missing, once all of them were there.
func neverMissing(t *testing.T, missing ...string) func(reader string, now contents) {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(reader string, now contents) {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range missing {
			_, exists := now[name]
			if seen[reader] && !exists {
				t.Errorf("%s: %s is missing: %s", reader, name, now.names())
			}
		}
		seen[reader] = seen[reader] || !slices.ContainsFunc(missing, func(name string) bool { _, exists := now[name]; return !exists })
	}
}

// down returns an address without a listener, which no other process gets until the end of the test: a socket is bound
// to it that does not listen.
func down(t *testing.T) string {
	t.Helper()
	socket, err := bind(t, netip.MustParseAddrPort("127.0.0.1:0"), true)
	require.NoError(t, err)
	name, err := syscall.Getsockname(socket)
	require.NoError(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
}

// bind binds a socket to an address until the end of the test. A shared address may be listened on, as by net.Listen.
func bind(t *testing.T, address netip.AddrPort, shared bool) (socket int, err error) {
	socket, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return socket, err
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	if shared {
		if err := syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
			return socket, err
		}
	}
	return socket, syscall.Bind(socket, &syscall.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()})
}

// TestDown_KeepsAddress: the address of down is refused to others, and listeners may come and go.
func TestDown_KeepsAddress(t *testing.T) {
	t.Parallel()
	address := down(t)
	_, err := bind(t, netip.MustParseAddrPort(address), false)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	for range 3 {
		_, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		require.NoError(t, err)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		require.NoError(t, listener.Close())
	}
}

// keyOf returns the name that a client uses for an object.
func keyOf(r *resource.Resource) string { return string(r.Key().Kind) + " " + r.Key().FullName() }
