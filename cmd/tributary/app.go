package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"tributary/aggregate"
	"tributary/config"
	"tributary/server/admin"
	"tributary/server/mcp"
	"tributary/server/xds"
	"tributary/sources"
	"tributary/sources/consul"
	"tributary/sources/consulkv"
	"tributary/sources/file"
	"tributary/sources/lastgood"
	"tributary/sources/vip"
	upstream "tributary/sources/xds"
)

// The times of the shutdown, which is to be over within 5 seconds: streams are ended in slices over drainOver, and what
// lingers after that, such as those who watch our health, is cut off.
const (
	drainOver = 2 * time.Second
	linger    = time.Second
)

// app is a running tributary: sources → view → collections → streams, and the admin server beside it.
type app struct {
	log        *slog.Logger
	supervisor *sources.Supervisor
	view       *aggregate.View
	feeds      *feeds
	reloader   *reloader
	catalog    *mcp.Catalog
	engine     *xds.Server
	grpc       *grpc.Server
	health     *health.Server
	admin      *admin.Server
	vips       vips

	xdsListener, adminListener net.Listener
}

// serve runs what cfg says until ctx ends. It can be read again from where it came from.
func serve(ctx context.Context, cfg *config.Config, from origin, log *slog.Logger) error {
	state, err := openState(cfg, from, log)
	if err != nil {
		return err
	}
	if state != nil {
		defer state.Close() //nolint:errcheck // it is only locked
	}
	a, err := assemble(cfg, from, state, log)
	if err != nil {
		return err
	}
	if err := a.listen(ctx, cfg.Listen); err != nil {
		return err
	}
	return a.run(ctx)
}

// assemble makes the parts and connects them. Nothing runs yet.
func assemble(cfg *config.Config, from origin, state *lastgood.Dir, log *slog.Logger) (*app, error) {
	version := thisBuild().Version
	registry := admin.NewRegistry(version)
	a := &app{log: log, health: health.NewServer()}

	a.supervisor = sources.NewSupervisor(sources.Options{Log: log, Metrics: registry})
	a.view = aggregate.New()
	hops := mcp.NewHops(instance())
	var err error
	if a.vips, err = openVIPs(cfg, state, log); err != nil {
		return nil, err
	}
	a.feeds = &feeds{supervisor: a.supervisor, view: a.view, state: state, hops: hops, metrics: registry, vips: a.vips.table}
	if _, err := a.feeds.configure(cfg.ConfigSources); err != nil {
		return nil, &failure{exitConfig, err}
	}
	a.reloader = newReloader(cfg, from, a.feeds, log, registry)
	a.catalog = mcp.New(a.view, mcp.Options{Debounce: debounce(cfg.Debounce), Hops: hops, Log: log})
	a.engine = xds.NewServer(a.catalog, xds.Options{Identifier: identifier(version), Log: log, Registerer: registry, Limits: limits(cfg.Limits)})
	a.grpc = newGRPC(a.engine, a.health)
	a.admin = admin.New(admin.Options{
		Version: version, View: a.view, Sources: a.supervisor, Clients: a.engine, Config: a.reloader,
		Visible: mcp.Visible, Registry: registry, Log: log,
	})
	return a, nil
}

// newSource makes a source of its configuration. hops are those of this program, metrics takes those of the source, and
// addresses gives services addresses, or is nil.
func newSource(s config.Source, hops *mcp.Hops, metrics prometheus.Registerer, addresses *vip.Table) (sources.Source, error) {
	switch scheme, _, _ := strings.Cut(s.Address, "://"); scheme {
	case file.Scheme:
		return file.New(s.Address, s.Settings())
	case upstream.Scheme:
		settings := s.XDS()
		settings.Instance, settings.Readers = hops.Instance(), hops
		return upstream.New(s.Address, settings)
	case consulkv.Scheme, consulkv.SecureScheme:
		return consulkv.New(s.Address, s.ConsulKV())
	case consul.Scheme, consul.SecureScheme:
		settings := s.Consul()
		settings.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"source": s.Name}, metrics)
		if addresses != nil {
			settings.VIPs = addresses
		}
		return consul.New(s.Address, settings)
	default: // config lets no other one through
		return nil, fmt.Errorf("address %q: unknown scheme", s.Address)
	}
}

// newGRPC makes the gRPC server. Besides xDS it has what grpcurl, grpcdebug and load balancers look for.
func newGRPC(engine *xds.Server, h *health.Server) *grpc.Server {
	s := grpc.NewServer(append(xds.ServerOptions(),
		grpc.MaxConcurrentStreams(math.MaxUint32),
		// istiod pings every 30 s, also while it is idle; gRPC's defaults would end its connection for that.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
	)...)
	engine.Register(s)
	healthpb.RegisterHealthServer(s, h)
	h.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	channelz.RegisterChannelzServiceToServer(s)
	reflection.Register(s) // both v1 and v1alpha
	return s
}

// listen opens both ports, before anything runs: a port that is taken is known at once.
func (a *app) listen(ctx context.Context, l config.Listen) (err error) {
	if a.xdsListener, err = listenOn(ctx, "listen.xds", l.XDS); err != nil {
		return err
	}
	if a.adminListener, err = listenOn(ctx, "listen.admin", l.Admin); err != nil {
		return errors.Join(err, a.xdsListener.Close())
	}
	return nil
}

func listenOn(ctx context.Context, key, address string) (net.Listener, error) {
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s: %s is in use by another program", key, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return lis, nil
}

// run runs all parts until ctx ends or one of them fails, and then ends them in order: first the streams, so that clients
// go elsewhere, then what feeds them.
func (a *app) run(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, failed := errgroup.WithContext(work)
	for name, part := range map[string]func(context.Context) error{
		"sources": a.supervisor.Run,
		"view":    a.view.Run,
		"catalog": a.catalog.Run,
		"admin":   func(ctx context.Context) error { return a.admin.Serve(ctx, a.adminListener) },
		"grpc":    a.serveGRPC,
		"health":  a.followHealth,
		"startup": a.startFast,
		"reload":  a.reloader.run,
		"vips":    a.vips.run,
	} {
		parts.Go(func() error {
			if err := part(failed); err != nil && failed.Err() == nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	a.log.Info("listening", "xds", a.xdsListener.Addr().String(), "admin", a.adminListener.Addr().String())

	select {
	case <-ctx.Done():
		a.log.Info("shutting down")
	case <-failed.Done():
	}
	a.drain()
	stop()
	err := parts.Wait()
	if err == nil {
		a.log.Info("stopped")
	}
	return err
}

// serveGRPC serves until drain stops the server, which may be before this.
func (a *app) serveGRPC(context.Context) error {
	if err := a.grpc.Serve(a.xdsListener); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// followHealth has the gRPC health service say SERVING once everything was read once.
func (a *app) followHealth(ctx context.Context) error {
	if a.awaitSync(ctx) {
		a.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	}
	return nil
}

// drain ends the streams: it says that it is not ready, refuses new streams and connections, tells clients to go away,
// and ends the streams there are one slice after another.
func (a *app) drain() {
	a.admin.Drain()
	a.health.Shutdown()

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.grpc.GracefulStop() // sends GOAWAY, and waits for the streams
	}()
	a.engine.Drain(context.Background(), drainOver)
	select {
	case <-ended:
	case <-time.After(linger):
		a.grpc.Stop()
		<-ended
	}
	a.engine.Close()
}
