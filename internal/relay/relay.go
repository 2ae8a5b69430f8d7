// Package relay is the program that `tributary serve` runs: the sources of a configuration, their view, the servers of
// the view, and the reload that replaces the configuration while clients are connected.
//
// relay.go assembles the parts, runs them and shuts them down. reload.go reads the configuration again: changes.go says
// what changed, sourceset.go replaces sources. catalogs.go chooses the collections of a client, restricted.go the views
// of clients with few rights. listeners.go, credentials.go, state.go and serving.go make options of the configuration.
// problems.go and expected.go answer the admin server, manage.go the service manager.
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
	"tributary/sources/vip"
)

// The times of the shutdown, which takes at most 5 seconds. The xDS streams end in slices, distributed over drainTime.
// Other streams, such as health watches, are cut off drainGrace later.
const (
	drainTime  = 2 * time.Second
	drainGrace = time.Second
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
	vips       *vip.Table       // or nil
	history    *history.History // or nil
	endStartup func()           // restores normal garbage collection
	manager    *process.Manager

	listeners listeners
	admission *access.Admission
}

// Options are the dependencies of a relay that the configuration does not have.
type Options struct {
	Version string // of the program, for clients and metrics
	Origin  Origin
	Log     *slog.Logger
	Level   *slog.LevelVar // of Log; nil if it cannot be changed
	// Manager gets the state of the relay; nil without a service manager.
	Manager *process.Manager
	// Sockets are open listeners by name: xds, xdsTLS and admin. They replace the addresses in the configuration.
	Sockets map[string]net.Listener
}

// ConfigError is a configuration that cannot be put in force.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ConfigError) Unwrap() error { return e.Err }

// Open makes the parts of cfg, connects them, locks the state directory and opens the ports, so that a conflict with
// another program is reported at once. It runs no part. The caller must run the relay.
func Open(ctx context.Context, cfg *config.Config, opts Options) (*Relay, error) {
	state, err := openState(cfg, opts.Origin, opts.Log)
	if err != nil {
		return nil, err
	}
	endStartup := relaxGC()
	relay, err := assemble(ctx, cfg, state, opts)
	if err == nil {
		relay.endStartup = endStartup
		err = relay.listeners.open(ctx, cfg, opts.Sockets)
	}
	if err != nil && state != nil {
		err = errors.Join(err, state.Close())
	}
	if err != nil {
		endStartup()
		return nil, err
	}
	return relay, nil
}

// assemble makes the parts and connects them. It runs no part.
func assemble(ctx context.Context, cfg *config.Config, state *lastgood.Dir, opts Options) (*Relay, error) {
	registry := admin.NewRegistry(opts.Version)
	relay := &Relay{
		log: opts.Log, state: state, health: health.NewServer(), manager: cmp.Or(opts.Manager, new(process.Manager)),
	}

	relay.supervisor = sources.NewSupervisor(sources.Options{
		Log: opts.Log, Metrics: registry, Happened: relay.noteEvent, Validate: validation(cfg.Limits.ProductBytes),
		Intake: intakeLimits(cfg.Limits),
	})
	relay.view = aggregate.New()
	hops := mcp.NewHops(rand.Text())
	var err error
	if relay.vips, err = openVIPs(cfg, state); err != nil {
		return nil, err
	}
	relay.sources = newSourceSet(sourceDependencies{
		supervisor: relay.supervisor, view: relay.view, state: state, hops: hops, metrics: registry, vips: relay.vips,
		log: opts.Log,
	})
	if _, err := relay.sources.configure(cfg.ConfigSources); err != nil {
		return nil, &ConfigError{err}
	}
	warn(cfg, opts.Log)
	if relay.listeners, err = newListeners(ctx, cfg, opts.Log, registry); err != nil {
		return nil, err
	}
	if relay.admission, err = newAdmission(cfg, &relay.listeners, opts.Log, registry); err != nil {
		return nil, err
	}
	relay.reloader = newReloader(cfg, opts.Origin, relay.manager, relay.sources, relay.admission, opts.Log, registry)
	relay.reloader.noteEvent = relay.noteEvent
	relay.catalogs = relay.newCatalogs(cfg, hops, opts.Log)
	relay.engine = xds.NewServer(relay.catalogs, xds.Options{
		Identifier: identifier(opts.Version), Namespace: "tributary", Log: opts.Log, Registerer: registry,
		Limits: limits(cfg.Limits),
		Pacing: pacing(cfg.Pacing), Gzip: cfg.Compression == config.CompressionGzip, Identity: access.Identity,
	})
	relay.catalogs.envoy.SetReview(relay.engine.Review)
	relay.catalogs.mcp.ReviewBy(relay.engine)
	relay.limiter = transport.NewLimiter(relay.engine, portLimits(cfg.Limits), opts.Log)
	relay.grpc = newGRPC(relay.engine, relay.limiter, transport.Credentials(relay.listeners.xdsTLS, opts.Log),
		relay.admission, hops, relay.health)
	var adminGRPC http.Handler
	if !config.Off(cfg.Admin.Debug) {
		adminGRPC = newAdminGRPC(relay.limiter, relay.sources.upstreams, relay.health)
	}
	if relay.history, err = openHistory(cfg.History, state, relay.view, opts.Log, registry); err != nil {
		return nil, err
	}
	objects := newObjectCheck(relay, registry)
	relay.admin = admin.New(admin.Options{
		Version: opts.Version, XDS: cfg.Listen.XDSAddress(), View: relay.view, Sources: relay.supervisor,
		Clients: relay.engine,
		Config:  relay.reloader,
		Visible: mcp.Visible, WithoutEffect: relay.catalogs.withoutEffect, Affected: relay.catalogs.affected,
		Unenforced:    relay.catalogs.unenforced,
		WhyUnenforced: relay.whyUnenforced,
		ChangedSince:  relay.catalogs.changedSince, Problems: objects.problems, Kick: relay.engine.Kick, Level: opts.Level,
		Certificates: relay.listeners.status, Expected: relay.expected, History: relay.adminHistory(), GRPC: adminGRPC,
		Authorize: relay.admission.AuthorizeAdmin,
		Dashboard: func(s *admin.Server) admin.Dashboard { return page.New(s, opts.Log) },
		NoDebug:   config.Off(cfg.Admin.Debug), NoProfiles: config.Off(cfg.Admin.Pprof), Registry: registry, Log: opts.Log,
	})
	relay.catalogs.istioctl.SetClients(relay.engine)
	return relay, nil
}

// newCatalogs makes the catalogs of the view, and of the restricted views.
func (r *Relay) newCatalogs(cfg *config.Config, hops *mcp.Hops, log *slog.Logger) catalogs {
	envoys := envoy.Options{
		ProductBytes: cfg.Limits.ProductBytes,
		Debounce:     debounce(cfg.Debounce), Log: log, WarnUnenforced: cfg.Envoy.Unenforced == config.UnenforcedWarn,
		GuardFilters: cfg.Envoy.WeakeningFilters == config.FiltersOfRoot,
	}
	return catalogs{
		mcp:      mcp.New(r.view, mcp.Options{Debounce: debounce(cfg.Debounce), Hops: hops, Log: log}),
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
}

// Run runs all parts until ctx ends or a part fails, and then ends them in order: first the streams, so that clients
// go elsewhere, then the other parts.
func (r *Relay) Run(ctx context.Context) error {
	if r.state != nil {
		defer r.state.Close() //nolint:errcheck // it is only locked
	}
	runContext, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, partsContext := errgroup.WithContext(runContext)
	for name, part := range map[string]func(context.Context) error{
		"sources": r.runSources,
		"reload":  r.reloader.run,
		"write":   r.write,
		"admin":   func(ctx context.Context) error { return r.admin.Serve(ctx, r.listeners.admin) },
		"manager": r.runManager,
		"view":    r.view.Run,
		"mcp":     r.catalogs.mcp.Run,
		"envoy":   r.catalogs.envoy.Run,
		"views":   r.catalogs.restricted.run,
		"access":  r.admission.Run,
		"grpc":    func(context.Context) error { return r.listeners.serve(r.grpc) },
		"tls":     r.listeners.run,
		"health":  r.followHealth,
		"startup": r.awaitStartup,
	} {
		parts.Go(func() error {
			if err := part(partsContext); err != nil && partsContext.Err() == nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	r.log.Info("listening", r.listeners.addresses()...)

	select {
	case <-ctx.Done():
		r.log.Info("shutting down")
	case <-partsContext.Done(): // a part failed
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

// runSources starts the sources after the catalogs have read the restored content: returning clients have that content,
// and get only the changes since.
func (r *Relay) runSources(ctx context.Context) error {
	for _, alive := range []func(context.Context) error{r.view.Alive, r.catalogs.envoy.Alive} {
		if err := alive(ctx); err != nil {
			return err
		}
	}
	return r.supervisor.Run(ctx)
}

// followHealth sets the gRPC health service to SERVING when each source was read.
func (r *Relay) followHealth(ctx context.Context) error {
	if r.awaitSync(ctx) {
		r.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	}
	return nil
}

// drain reports that the server is not ready, refuses new streams and connections, sends GOAWAY, and ends the open
// streams slice by slice.
func (r *Relay) drain() {
	r.admin.Drain()
	r.health.Shutdown()
	// Before streams end: clients that reconnect wait on the socket of the service manager for the next process
	r.listeners.close()

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.grpc.GracefulStop() // sends GOAWAY, and waits for the streams
	}()
	r.limiter.Close()
	r.engine.Drain(context.Background(), drainTime)
	select {
	case <-ended:
	case <-time.After(drainGrace):
		r.grpc.Stop()
		<-ended
	}
	r.engine.Close()
}
