// Package relay is the program that `tributary serve` runs: the sources that a configuration names, their view, the servers
// that hand it out, and the reload that replaces one configuration by another while clients look.
package relay

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"tributary/aggregate"
	"tributary/config"
	"tributary/internal/history"
	"tributary/internal/process"
	"tributary/memstore"
	"tributary/server/access"
	"tributary/server/admin"
	"tributary/server/debug"
	"tributary/server/envoy"
	"tributary/server/mcp"
	"tributary/server/page"
	"tributary/server/transport"
	"tributary/server/xds"
	"tributary/sources"
	"tributary/sources/lastgood"
)

// The times of the shutdown, which is to be over within 5 seconds: streams are ended in slices over drainOver, and what
// lingers after that, such as those who watch our health, is cut off.
const (
	drainOver = 2 * time.Second
	linger    = time.Second
)

// Relay is a running tributary: sources → view → collections → streams, and the admin server beside it.
type Relay struct {
	log        *slog.Logger
	state      *lastgood.Dir // or nil
	supervisor *sources.Supervisor
	view       *aggregate.View
	sources    *sourceSet
	reloader   *reloader
	catalogs   catalogs
	engine     *xds.Server
	limiter    *transport.Limiter
	grpc       *grpc.Server
	health     *health.Server
	admin      *admin.Server
	vips       vips
	history    *history.History // or nil
	quarantine chan struct{}    // something came into it, or left it
	started    func()           // ends the start
	manager    *process.Manager

	listeners   listeners
	clientGuard *access.Guard
}

// Options are what a relay needs besides its configuration.
type Options struct {
	Version string // of the program, as clients and metrics are told it
	Origin  Origin
	Log     *slog.Logger
	Level   *slog.LevelVar // of Log; nil if it cannot be changed
	// Manager is told how the relay is; nil for nobody.
	Manager *process.Manager
	// Sockets are open already: those of xds, xdsTLS and admin. What the configuration says of their addresses does not count.
	Sockets map[string]net.Listener
}

// ConfigError is a configuration that cannot be put in force.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *ConfigError) Unwrap() error { return e.Err }

// Open makes the parts that cfg asks for, connects them, takes the state directory and opens both ports: what another
// program has is known at once. Nothing runs yet. A relay that was opened has to be run.
func Open(ctx context.Context, cfg *config.Config, opts Options) (*Relay, error) {
	state, err := openState(cfg, opts.Origin, opts.Log)
	if err != nil {
		return nil, err
	}
	started := rarelyCollect()
	r, err := assemble(ctx, cfg, state, opts)
	if err == nil {
		r.started = started
		err = r.listeners.open(ctx, cfg, opts.Sockets)
	}
	if err != nil && state != nil {
		err = errors.Join(err, state.Close())
	}
	if err != nil {
		started()
		return nil, err
	}
	return r, nil
}

// assemble makes the parts and connects them. Nothing runs yet.
func assemble(ctx context.Context, cfg *config.Config, state *lastgood.Dir, opts Options) (*Relay, error) {
	registry := admin.NewRegistry(opts.Version)
	r := &Relay{
		log: opts.Log, state: state, health: health.NewServer(), manager: cmp.Or(opts.Manager, new(process.Manager)),
		quarantine: make(chan struct{}, 1),
	}

	r.supervisor = sources.NewSupervisor(sources.Options{
		Log: opts.Log, Metrics: registry, Happened: r.happened, Validate: validation(cfg.Limits.ProductBytes),
		Intake: intakeLimits(cfg.Limits),
	})
	r.view = aggregate.New()
	hops := mcp.NewHops(rand.Text())
	var err error
	if r.vips, err = openVIPs(cfg, state, opts.Log); err != nil {
		return nil, err
	}
	r.sources = newSourceSet(parts{
		supervisor: r.supervisor, view: r.view, state: state, hops: hops, metrics: registry, vips: r.vips.table, log: opts.Log,
	})
	if _, err := r.sources.configure(cfg.ConfigSources); err != nil {
		return nil, &ConfigError{err}
	}
	warn(cfg, opts.Log)
	if r.listeners, err = newListeners(ctx, cfg, opts.Log, registry); err != nil {
		return nil, err
	}
	if r.clientGuard, err = newGuard(cfg, &r.listeners, opts.Log, registry); err != nil {
		return nil, err
	}
	r.reloader = newReloader(cfg, opts.Origin, r.manager, r.sources, r.clientGuard, opts.Log, registry)
	r.reloader.happened = r.happened
	envoys := envoy.Options{
		ProductBytes: cfg.Limits.ProductBytes,
		Debounce:     debounce(cfg.Debounce), Log: opts.Log, WarnUnenforced: cfg.Envoy.Unenforced == config.UnenforcedWarn,
		GuardFilters: cfg.Envoy.WeakeningFilters == config.FiltersOfRoot, Invalid: r.supervisor.Invalid,
	}
	r.catalogs = catalogs{
		mcp:      mcp.New(r.view, mcp.Options{Debounce: debounce(cfg.Debounce), Hops: hops, Log: opts.Log}),
		envoy:    envoy.New(r.view, envoys),
		istioctl: debug.NewIstioctl(),
		restricted: newRestrictedViews(r.view, func(objects memstore.Reader, rights *access.Rights) *envoy.Catalog {
			limited := envoys
			limited.Sees = rights.AllowsNamespace
			c := envoy.New(objects, limited)
			c.SetReview(r.engine.Review)
			return c
		}),
	}
	r.engine = xds.NewServer(r.catalogs, xds.Options{
		Identifier: identifier(opts.Version), Namespace: "tributary", Log: opts.Log, Registerer: registry, Limits: limits(cfg.Limits),
		Pacing: pacing(cfg.Pacing), Gzip: cfg.Compression == config.CompressionGzip, Identity: access.Identity,
	})
	r.catalogs.envoy.SetReview(r.engine.Review)
	r.catalogs.mcp.ReviewBy(r.engine)
	r.limiter = transport.NewLimiter(r.engine, portLimits(cfg.Limits), opts.Log)
	r.grpc = newGRPC(r.engine, r.limiter, transport.Credentials(r.listeners.xdsTLS, opts.Log), r.clientGuard, hops, r.health)
	var adminGRPC http.Handler
	if !config.Off(cfg.Admin.Debug) {
		adminGRPC = newAdminGRPC(r.limiter, r.sources.upstreams, r.health)
	}
	if r.history, err = openHistory(cfg.History, state, r.view, opts.Log, registry); err != nil {
		return nil, err
	}
	problems := newObjectCheck(r, registry)
	r.admin = admin.New(admin.Options{
		Version: opts.Version, XDS: cfg.Listen.XDSAddress(), View: r.view, Sources: r.supervisor, Clients: r.engine, Config: r.reloader,
		Visible: mcp.Visible, WithoutEffect: r.catalogs.withoutEffect, Affected: r.catalogs.affected, Unenforced: r.catalogs.unenforced,
		WhyUnenforced: r.whyUnenforced,
		ChangedSince:  r.catalogs.changedSince, Problems: problems.problems, Kick: r.engine.Kick, Level: opts.Level,
		Certificates: r.listeners.status, Expected: r.expected, History: r.remembered(), GRPC: adminGRPC,
		Authorize: r.clientGuard.AuthorizeAdmin,
		Page:      func(s *admin.Server) admin.Front { return page.New(s, opts.Log) },
		NoDebug:   config.Off(cfg.Admin.Debug), NoProfiles: config.Off(cfg.Admin.Pprof), Registry: registry, Log: opts.Log,
	})
	r.catalogs.istioctl.SetClients(r.engine)
	return r, nil
}

// Run runs all parts until ctx ends or one of them fails, and then ends them in order: first the streams, so that clients
// go elsewhere, then what feeds them.
func (r *Relay) Run(ctx context.Context) error {
	if r.state != nil {
		defer r.state.Close() //nolint:errcheck // it is only locked
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, failed := errgroup.WithContext(work)
	for name, part := range map[string]func(context.Context) error{
		"sources": r.runSources,
		"reload":  r.reloader.run,
		"write":   r.write,
		"admin":   func(ctx context.Context) error { return r.admin.Serve(ctx, r.listeners.admin) },
		"manager": r.managed,
		"view":    r.view.Run,
		"mcp":     r.catalogs.mcp.Run,
		"envoy":   r.catalogs.envoy.Run,
		"views":   r.catalogs.restricted.run,
		"invalid": r.followInvalid,
		"access":  r.clientGuard.Run,
		"grpc":    func(context.Context) error { return r.listeners.serve(r.grpc) },
		"tls":     r.listeners.run,
		"health":  r.followHealth,
		"startup": r.endStart,
	} {
		parts.Go(func() error {
			if err := part(failed); err != nil && failed.Err() == nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	r.log.Info("listening", r.listeners.addresses()...)

	select {
	case <-ctx.Done():
		r.log.Info("shutting down")
	case <-failed.Done():
	}
	r.manager.Stopping()
	r.drain()
	stop()
	err := parts.Wait()
	if err == nil {
		r.log.Info("stopped")
	}
	return err
}

// runSources starts the sources when the catalogs have seen the content from the disk, which clients have that come
// back.
func (r *Relay) runSources(ctx context.Context) error {
	for _, alive := range []func(context.Context) error{r.view.Alive, r.catalogs.envoy.Alive} {
		if err := alive(ctx); err != nil {
			return err
		}
	}
	return r.supervisor.Run(ctx)
}

// followHealth has the gRPC health service say SERVING once everything was read once.
func (r *Relay) followHealth(ctx context.Context) error {
	if r.awaitSync(ctx) {
		r.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	}
	return nil
}

// drain ends the streams: it says that it is not ready, refuses new streams and connections, tells clients to go away,
// and ends the streams there are one slice after another.
func (r *Relay) drain() {
	r.admin.Drain()
	r.health.Shutdown()
	r.listeners.close() // before streams end: clients that reconnect wait on the socket of the service manager for the next process

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.grpc.GracefulStop() // sends GOAWAY, and waits for the streams
	}()
	r.limiter.Close()
	r.engine.Drain(context.Background(), drainOver)
	select {
	case <-ended:
	case <-time.After(linger):
		r.grpc.Stop()
		<-ended
	}
	r.engine.Close()
}
