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
	// ownDescriptors are what the process keeps for itself of the files that it may have open: for the state, for the files that it
	// reads, for connections to registries, and for the admin server.
	ownDescriptors = 128
	// FewDescriptors is below what a mesh needs.
	FewDescriptors = 4096
	// adminConnections are how many the admin server has at once.
	adminConnections = 32
)

// listeners are the ports of this program, with their certificates.
type listeners struct {
	log          *slog.Logger
	connections  *transport.ConnectionLimit
	xdsTLS       *transport.Certificates // or nil
	adminTLS     *transport.Certificates // or nil
	xds, xdsOver net.Listener            // plaintext and TLS; one of them may be nil
	admin        net.Listener
}

// newListeners reads the certificates that cfg names. Nothing is open yet.
func newListeners(ctx context.Context, cfg *config.Config, log *slog.Logger, metrics prometheus.Registerer) (d listeners, err error) {
	d.log = log
	d.connections = transport.NewConnectionLimit(connections(cfg.Limits, descriptors(), log),
		cmp.Or(cfg.Limits.ConnectionsPerPeer, 5000), log, metrics)
	if l := cfg.Listen.XDSTLS; l != nil {
		if d.xdsTLS, err = load(ctx, cfg, "listen.xdsTLS", l.ServerTLS, log); err != nil {
			return d, err
		}
	}
	if l := cfg.Listen.AdminTLS; l != nil {
		if d.adminTLS, err = load(ctx, cfg, "listen.adminTLS", *l, log); err != nil {
			return d, err
		}
	}
	return d, metrics.Register(transport.Metrics(d.certificates()))
}

// Certificates says how the certificates are that cfg names for our own ports.
func Certificates(ctx context.Context, cfg *config.Config, log *slog.Logger) ([]transport.Status, error) {
	d, err := newListeners(ctx, cfg, log, prometheus.NewRegistry())
	return d.status(), err
}

func load(ctx context.Context, cfg *config.Config, key string, t config.ServerTLS, log *slog.Logger) (*transport.Certificates, error) {
	c, err := transport.Load(ctx, key, transport.Files{
		Certificate: t.Certificate, Key: t.Key, ClientCAs: t.ClientCAs, WorkloadAPI: t.WorkloadAPI,
		Client: map[string]tls.ClientAuthType{
			config.ClientAuthNone: tls.NoClientCert, config.ClientAuthOptional: tls.VerifyClientCertIfGiven,
			config.ClientAuthRequire: tls.RequireAndVerifyClientCert,
		}[t.ClientAuth],
		MinVersion: map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[t.MinVersion],
	}, log)
	if err != nil {
		return nil, &ConfigError{cfg.Fault(key, err)}
	}
	return c, nil
}

// descriptors returns the number of files and connections that the process may have open; -1 for no limit.
func descriptors() int {
	var limit syscall.Rlimit // Go has raised it to the hard limit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > 1<<30 {
		return -1
	}
	return int(limit.Cur) //nolint:gosec,unconvert // it is small; it is signed on some systems
}

// connections is how many clients may be connected at once, given how many files may be open.
func connections(l config.Limits, descriptors int, log *slog.Logger) int {
	most := -1
	if descriptors >= 0 {
		most = max(descriptors-ownDescriptors, descriptors/2)
	}
	if descriptors >= 0 && descriptors < FewDescriptors {
		log.Warn("few files may be open at once (ulimit -n, LimitNOFILE): that limits the clients", "files", descriptors, "connections", most)
	}
	if l.Connections == 0 {
		return most
	}
	if most >= 0 && (l.Connections > most || l.Connections < 0) {
		log.Warn("limits.connections is more than there are files to be open at once (ulimit -n, LimitNOFILE)", "files", descriptors,
			"connections", most)
		return most
	}
	return l.Connections
}

// open opens all ports, before anything runs: one that is taken is known at once. Those among sockets, by the names that log lines
// have for them, are open already.
func (d *listeners) open(ctx context.Context, cfg *config.Config, sockets map[string]net.Listener) (err error) {
	open := func(name, key, address string) (net.Listener, error) {
		if lis := sockets[name]; lis != nil {
			return lis, nil
		}
		lis, err := process.Listen(ctx, address)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cfg.At(key), err)
		}
		return lis, nil
	}
	defer func() {
		if err == nil {
			return
		}
		for _, lis := range []net.Listener{d.xds, d.xdsOver, d.admin} {
			if lis != nil {
				err = errors.Join(err, lis.Close())
			}
		}
	}()
	if cfg.Listen.XDS != config.ListenOff {
		if d.xds, err = open("xds", "listen.xds", cfg.Listen.XDS); err != nil {
			return err
		}
	}
	if l := cfg.Listen.XDSTLS; l != nil {
		if d.xdsOver, err = open("xdsTLS", "listen.xdsTLS.address", l.Address); err != nil {
			return err
		}
	}
	if d.admin, err = open("admin", "listen.admin", cfg.Listen.Admin); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(sockets)) {
		if lis := sockets[name]; lis != d.xds && lis != d.xdsOver && lis != d.admin {
			d.log.Warn("a socket of the service manager is not used: FileDescriptorName= is xds, xdsTLS or admin, and the configuration has that "+
				"listener",
				"name", name, "address", lis.Addr())
			err = errors.Join(err, lis.Close())
		}
	}
	d.admin = transport.NewFairListener(d.admin, adminConnections)
	if d.adminTLS != nil {
		d.admin = tls.NewListener(d.admin, d.adminTLS.Config("h2", "http/1.1"))
	}
	return nil
}

// close closes the xDS listeners. Connections to a socket of the service manager wait there for the next process.
func (d *listeners) close() {
	for _, lis := range []net.Listener{d.xds, d.xdsOver} {
		if lis != nil {
			_ = lis.Close() // it may be closed already
		}
	}
}

// serve has s serve until it is stopped or the ports are closed, which may already be so.
func (d *listeners) serve(s *grpc.Server) error {
	var all errgroup.Group
	for _, lis := range []net.Listener{d.xds, d.xdsOver} {
		if lis == nil {
			continue
		}
		in := d.connections.Listener(lis)
		if lis == d.xdsOver {
			in = transport.Secure(in)
		}
		all.Go(func() error {
			if err := s.Serve(in); !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
	}
	return all.Wait()
}

// run follows the files of the certificates.
func (d *listeners) run(ctx context.Context) error {
	var all errgroup.Group
	for _, c := range d.certificates() {
		all.Go(func() error { return c.Run(ctx) })
	}
	return all.Wait()
}

func (d *listeners) certificates() (all []*transport.Certificates) {
	for _, c := range []*transport.Certificates{d.xdsTLS, d.adminTLS} {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// status says how the certificates are.
func (d *listeners) status() (all []transport.Status) {
	for _, c := range d.certificates() {
		all = append(all, c.Status())
	}
	return all
}

// addresses returns the addresses of all listeners, for a line of the log.
func (d *listeners) addresses() (args []any) {
	for _, one := range []struct {
		name string
		lis  net.Listener
	}{{"xds", d.xds}, {"xdsTLS", d.xdsOver}, {"admin", d.admin}} {
		if one.lis != nil {
			args = append(args, one.name, one.lis.Addr().String())
		}
	}
	return args
}

// XDS returns where the xDS server listens: the plaintext one, if there is one.
func (r *Relay) XDS() net.Addr {
	if r.listeners.xds == nil {
		return r.listeners.xdsOver.Addr()
	}
	return r.listeners.xds.Addr()
}

// XDSTLS returns where the xDS server listens for TLS; nil if it does not.
func (r *Relay) XDSTLS() net.Addr {
	if r.listeners.xdsOver == nil {
		return nil
	}
	return r.listeners.xdsOver.Addr()
}

// Admin returns where the admin server listens.
func (r *Relay) Admin() net.Addr { return r.listeners.admin.Addr() }
