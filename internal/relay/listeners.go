package relay

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"tributary/config"
	"tributary/internal/process"
	"tributary/server/transport"
)

const (
	// reservedDescriptors are the file descriptors that client connections do not use: for the state, files, connections
	// to registries, and the admin server.
	reservedDescriptors = 128
	// FewDescriptors is the number of file descriptors that a mesh needs at least.
	FewDescriptors = 4096
	// adminConnections bounds the connections of the admin server.
	adminConnections = 32
)

// listeners are the ports of this program, with their certificates.
type listeners struct {
	log         *slog.Logger
	connections *transport.ConnectionLimit
	xdsTLS      *transport.Certificates // or nil
	adminTLS    *transport.Certificates // or nil
	xds         net.Listener            // plaintext; nil if there is only the one with TLS
	xdsSecure   net.Listener            // with TLS, or nil
	admin       net.Listener
}

// newListeners reads the certificates that cfg names. It opens no port.
func newListeners(ctx context.Context, cfg *config.Config, log *slog.Logger,
	metrics prometheus.Registerer,
) (listeners listeners, err error) {
	listeners.log = log
	listeners.connections = transport.NewConnectionLimit(connectionLimit(cfg.Limits, descriptorLimit(), log),
		cmp.Or(cfg.Limits.ConnectionsPerPeer, 5000), log, metrics)
	if l := cfg.Listen.XDSTLS; l != nil {
		if listeners.xdsTLS, err = loadCertificates(ctx, cfg, "listen.xdsTLS", l.ServerTLS, log); err != nil {
			return listeners, err
		}
	}
	if l := cfg.Listen.AdminTLS; l != nil {
		if listeners.adminTLS, err = loadCertificates(ctx, cfg, "listen.adminTLS", *l, log); err != nil {
			return listeners, err
		}
	}
	return listeners, metrics.Register(transport.Metrics(listeners.certificates()))
}

// Certificates returns the status of the certificates of the listeners in cfg.
func Certificates(ctx context.Context, cfg *config.Config, log *slog.Logger) ([]transport.Status, error) {
	listeners, err := newListeners(ctx, cfg, log, prometheus.NewRegistry())
	return listeners.status(), err
}

func loadCertificates(ctx context.Context, cfg *config.Config, key string, settings config.ServerTLS,
	log *slog.Logger,
) (*transport.Certificates, error) {
	certificates, err := transport.Load(ctx, key, transport.Files{
		Certificate: settings.Certificate, Key: settings.Key, ClientCAs: settings.ClientCAs,
		WorkloadAPI: settings.WorkloadAPI,
		Client: map[string]tls.ClientAuthType{
			config.ClientAuthNone: tls.NoClientCert, config.ClientAuthOptional: tls.VerifyClientCertIfGiven,
			config.ClientAuthRequire: tls.RequireAndVerifyClientCert,
		}[settings.ClientAuth],
		MinVersion: map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[settings.MinVersion],
	}, log)
	if err != nil {
		return nil, &ConfigError{cfg.Fault(key, err)}
	}
	return certificates, nil
}

// descriptorLimit returns the number of files and connections that the process may have open; -1 for no limit.
func descriptorLimit() int {
	var limit syscall.Rlimit // Go has raised it to the hard limit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return -1
	}
	return int(limit.Cur) //nolint:gosec,unconvert // it is small; it is signed on some systems
}

// connectionLimit returns the limit of client connections, given the number of file descriptors.
func connectionLimit(limits config.Limits, descriptors int, log *slog.Logger) int {
	limit := -1
	if descriptors >= 0 {
		limit = max(descriptors-reservedDescriptors, descriptors/2)
	}
	if descriptors >= 0 && descriptors < FewDescriptors {
		log.Warn("few files may be open at once (ulimit -n, LimitNOFILE): that limits the clients",
			"files", descriptors, "connections", limit)
	}
	if limits.Connections == 0 {
		return limit
	}
	if limit >= 0 && (limits.Connections > limit || limits.Connections < 0) {
		log.Warn("limits.connections is more than there are files to be open at once (ulimit -n, LimitNOFILE)",
			"files", descriptors, "connections", limit)
		return limit
	}
	return limits.Connections
}

// open opens all ports before any part runs, so that a port in use is reported at once. sockets are listeners that are
// open already: see Options.
func (l *listeners) open(ctx context.Context, cfg *config.Config, sockets map[string]net.Listener) (err error) {
	defer func() {
		if err == nil {
			return
		}
		for _, lis := range []net.Listener{l.xds, l.xdsSecure, l.admin} {
			if lis != nil {
				err = errors.Join(err, lis.Close())
			}
		}
	}()
	secure := config.ListenOff
	if settings := cfg.Listen.XDSTLS; settings != nil {
		secure = settings.Address
	}
	for _, port := range []struct {
		listener           *net.Listener
		name, key, address string
	}{
		{&l.xds, "xds", "listen.xds", cfg.Listen.XDS},
		{&l.xdsSecure, "xdsTLS", "listen.xdsTLS.address", secure},
		{&l.admin, "admin", "listen.admin", cfg.Listen.Admin},
	} {
		if port.address == config.ListenOff {
			continue
		}
		*port.listener = sockets[port.name]
		if *port.listener != nil {
			continue
		}
		if *port.listener, err = process.Listen(ctx, port.address); err != nil {
			return fmt.Errorf("%s: %w", cfg.At(port.key), err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sockets)) {
		if listener := sockets[name]; listener != l.xds && listener != l.xdsSecure && listener != l.admin {
			l.log.Warn("a socket of the service manager is not used: FileDescriptorName= is xds, xdsTLS or admin, and the "+
				"configuration has that listener", "name", name, "address", listener.Addr())
			if err := listener.Close(); err != nil {
				l.log.Warn("an unused socket cannot be closed", "name", name, "err", err)
			}
		}
	}
	l.admin = transport.NewFairListener(l.admin, adminConnections)
	if l.adminTLS != nil {
		l.admin = tls.NewListener(l.admin, l.adminTLS.Config("h2", "http/1.1"))
	}
	return nil
}

// close closes the xDS listeners. Connections to a socket of the service manager wait there for the next process.
func (l *listeners) close() {
	for _, lis := range []net.Listener{l.xds, l.xdsSecure} {
		if lis != nil {
			_ = lis.Close() // it may be closed already
		}
	}
}

// serve runs server on the xDS ports until it is stopped or the ports are closed.
func (l *listeners) serve(server *grpc.Server) error {
	var servers errgroup.Group
	for _, listener := range []net.Listener{l.xds, l.xdsSecure} {
		if listener == nil {
			continue
		}
		limited := l.connections.Listener(listener)
		if listener == l.xdsSecure {
			limited = transport.Secure(limited)
		}
		servers.Go(func() error {
			if err := server.Serve(limited); !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
	}
	return servers.Wait()
}

// run reloads the certificates when their files change.
func (l *listeners) run(ctx context.Context) error {
	var watchers errgroup.Group
	for _, c := range l.certificates() {
		watchers.Go(func() error { return c.Run(ctx) })
	}
	return watchers.Wait()
}

func (l *listeners) certificates() (certificates []*transport.Certificates) {
	for _, c := range []*transport.Certificates{l.xdsTLS, l.adminTLS} {
		if c != nil {
			certificates = append(certificates, c)
		}
	}
	return certificates
}

// status returns the status of the certificates.
func (l *listeners) status() (statuses []transport.Status) {
	for _, c := range l.certificates() {
		statuses = append(statuses, c.Status())
	}
	return statuses
}

// addresses returns the addresses of all listeners, for a line of the log.
func (l *listeners) addresses() (args []any) {
	for _, listener := range []struct {
		name string
		lis  net.Listener
	}{{"xds", l.xds}, {"xdsTLS", l.xdsSecure}, {"admin", l.admin}} {
		if listener.lis != nil {
			args = append(args, listener.name, listener.lis.Addr().String())
		}
	}
	return args
}

// XDS returns the address of the xDS server: of the plaintext listener, else of the listener with TLS.
func (r *Relay) XDS() net.Addr {
	if r.listeners.xds == nil {
		return r.listeners.xdsSecure.Addr()
	}
	return r.listeners.xds.Addr()
}

// XDSTLS returns the address of the xDS listener with TLS; nil without one.
func (r *Relay) XDSTLS() net.Addr {
	if r.listeners.xdsSecure == nil {
		return nil
	}
	return r.listeners.xdsSecure.Addr()
}

// Admin returns the address of the admin server.
func (r *Relay) Admin() net.Addr { return r.listeners.admin.Addr() }
