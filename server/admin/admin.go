// Package admin serves what an operator wants to know of a running tributary over HTTP: health, metrics, what is served
// and to whom, where it came from and what is wrong with it. What changes something is a POST, and refused if it comes from
// a web page of another origin.
package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tributary/aggregate"
	"tributary/aggregate/conflicts"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/debug"
	"tributary/server/identity"
	"tributary/server/transport"
	"tributary/server/verify"
	"tributary/server/xds"
	"tributary/sources"
)

// View is what is served.
type View interface {
	Snapshot() memstore.Snapshot
	Synced() bool
	Shadows() iter.Seq[aggregate.Shadow]
	Refusals() []aggregate.Refusal
	Sources() []aggregate.SourceStatus
	Conflicts() []conflicts.Conflict
	Explain(key resource.Key) aggregate.Explanation
	ExplainHost(host string) aggregate.HostExplanation
}

// Sources are where it comes from.
type Sources interface {
	Status() []sources.Status
	// Excluding returns the objects of key that the transforms of their sources leave out.
	Excluding(key resource.Key) []sources.Excluded
	// LeavingOut returns what sources leave out of the groups in which they have any of keys, and what of it has the name or address that is
	// asked for, if there is one.
	LeavingOut(asked string, keys ...resource.Key) []sources.LeftOut
	// Serving returns what there is to know of key besides that sources have it, of those of which there is something.
	Serving(key resource.Key) []sources.Serving
	// Release lets go what is held of a source, on behalf of somebody; hold is the identity of what is meant, or empty. The
	// error is sources.ErrNotFound, sources.ErrNothingHeld or sources.ErrOtherHold.
	Release(source, hold, by string) (objects, endpoints int, err error)
}

// Options are what a Server shows. All but Visible and Log are needed.
type Options struct {
	Version string // of the program
	XDS     string // address of the xDS server, for commands that the page shows; or empty
	View    View
	Sources Sources
	Clients debug.Clients // to whom it is served
	Config  Config
	// Visible says whether the client of node is sent r, if it asks for the kind. All clients see everything if nil.
	Visible func(node *corev3.Node, r *resource.Resource) bool
	// WithoutEffect says which fields of an object have no effect on those who are served something else than the object, and why. All have
	// if nil.
	WithoutEffect func(r *resource.Resource) []string
	// Affected returns the objects of which WithoutEffect says something. None are if nil.
	Affected func() []resource.Key
	// Unenforced returns the security objects that Envoys and gRPC clients do not enforce, in order of key. None are if nil.
	Unenforced func() []resource.Key
	// WhyUnenforced returns the effect of clients that do not enforce an object, with one of them. None is stated if nil.
	WhyUnenforced func(key resource.Key) string
	// Problems returns the problems of the objects that are served. There are none if nil.
	Problems func() ObjectProblems
	// ChangedSince returns the objects of which a rejected resource is made and that changed since the client last acknowledged it, and
	// whether these are all of them. Nothing is known of that if nil.
	ChangedSince func(c *xds.Collection, r xds.Rejection) (some []resource.Key, complete bool)
	// Kick ends the streams of a node and returns their number; nil if that is not possible.
	Kick func(nodeID string) int
	// Level is the lowest level that is logged; nil if it cannot be changed.
	Level *slog.LevelVar
	// Certificates are those of our own listeners; none if nil.
	Certificates func() []transport.Status
	// MayChange says whether somebody on another machine may change something, by who he is and by his headers Authorization: an error, which
	// carries a gRPC status, says why not. All may if nil.
	MayChange func(who *identity.Identity, authorization []string) error
	// Known returns an error, which carries a gRPC status, if somebody has shown a certificate that is not trusted any more, on a connection
	// that is older than that. All are known if nil.
	Known func(who *identity.Identity) error
	// NoDebug leaves out the pages below /debug, and NoProfiles just those of profiles.
	NoDebug, NoProfiles bool
	// Expected returns what an Envoy with this node should have now, with the resources in place of the dump.
	// There are none if nil.
	Expected func(ctx context.Context, node *corev3.Node, delta bool) (*verify.Expected, []xds.Served, error)
	// History has what was served before. There is none if nil.
	History History
	// Page makes what answers at / and below /page/, and below /debug/page/ unless those are left out. There is none if nil.
	Page func(*Server) Front
	// GRPC answers the requests of gRPC on the same port; none are if nil.
	GRPC     http.Handler
	Registry *prometheus.Registry
	Log      *slog.Logger // slog.Default if nil
}

// Front is what is shown to people in a browser. Close ends the answers that have no end.
type Front interface {
	http.Handler
	Close()
}

// Server is the admin server.
type Server struct {
	front    Front // or nil
	opts     Options
	log      *slog.Logger
	started  time.Time
	draining atomic.Bool

	hashed struct { // Status.Content
		sync.Mutex
		revision memstore.Revision
		text     string
	}
}

// New returns a server of opts.
func New(opts Options) *Server {
	s := &Server{opts: opts, log: opts.Log, started: time.Now()}
	if s.log == nil {
		s.log = slog.Default()
	}
	if opts.Registry != nil {
		opts.Registry.MustRegister(viewMetrics{opts.View})
	}
	if opts.Page != nil {
		s.front = opts.Page(s)
	}
	return s
}

// Drain makes the server say that it is not ready, so that load balancers send new clients elsewhere.
func (s *Server) Drain() { s.draining.Store(true) }

// NoDebug reports whether the pages below /debug are left out.
func (s *Server) NoDebug() bool { return s.opts.NoDebug }

// Version returns that of the program.
func (s *Server) Version() string { return s.opts.Version }

// XDS returns the address of the xDS server, or nothing if it is not known.
func (s *Server) XDS() string { return s.opts.XDS }

// Started returns when the server was made.
func (s *Server) Started() time.Time { return s.started }

// Handler returns the pages.
func (s *Server) Handler() http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(denyForeign))
	return refuseOtherHosts(origins.Handler(refuseOtherSites(s.withGRPC(s.changers(s.mux())))))
}

// withGRPC leaves requests of gRPC to Options.GRPC. They do not make their connection busy: a stream may stay open for as long as its
// client likes.
func (s *Server) withGRPC(pages http.Handler) http.Handler {
	pages = transport.CountBusy(pages)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.opts.GRPC != nil && r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			s.opts.GRPC.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

func (s *Server) mux() *http.ServeMux {
	mux := http.NewServeMux()
	pages, profiles := newTurns(), newTurns()
	for _, p := range s.Pages() {
		handler := p.handler
		switch {
		case strings.HasPrefix(p.Path, "/debug/pprof/"):
			handler = profiles.limit(handler)
		case strings.HasPrefix(p.Path, indexPath):
			handler = pages.limit(handler)
		case p.Path == "/metrics":
			handler = newTurns().limit(handler)
		}
		mux.Handle("GET "+p.pattern(), handler)
	}
	for _, p := range s.changes() {
		mux.Handle("POST "+p.Path, p.handler)
	}
	for path, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile, "/debug/pprof/symbol": pprof.Symbol,
		"/debug/pprof/trace": pprof.Trace,
	} {
		if !s.leftOut(path) {
			mux.Handle("GET "+path, profiles.limit(handler))
		}
	}
	if s.front != nil {
		mux.Handle("GET /{$}", newTurns().limit(s.front))
		mux.Handle("GET /page/", s.front)
		if !s.opts.NoDebug {
			mux.Handle("GET /debug/page/", s.front)
			mux.HandleFunc("GET /debug/page/events", func(w http.ResponseWriter, r *http.Request) { // it stays open for as long as its client likes
				transport.Idle(r.Context(), func() { s.front.ServeHTTP(w, r) })
			})
		}
	}
	return mux
}

func (s *Server) metrics() http.Handler {
	return promhttp.HandlerFor(s.opts.Registry, promhttp.HandlerOpts{
		Registry: s.opts.Registry,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelError),
	})
}

// streamsPerConnection bounds the requests that are under way on a connection of HTTP/2.
const streamsPerConnection = 16

// Serve serves the pages on lis, which it closes, until ctx ends. Requests that are under way then have a second left.
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	requests, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRequests()
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      2 * time.Minute, // a CPU profile of up to that long can be taken
		IdleTimeout:       2 * time.Minute,
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streamsPerConnection},
		ConnContext:       connContext,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true) // for gRPC
	if s.front != nil {
		server.RegisterOnShutdown(s.front.Close)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	select {
	case err := <-ended:
		return fmt.Errorf("admin server on %s: %w", lis.Addr(), err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = server.Close() // cuts off who is still reading
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin server on %s: %w", lis.Addr(), err)
	}
	return nil
}

// The page at / shows the same as the pages below /debug, and asks for it with these.

// Snapshot is what is served.
func (s *Server) Snapshot() memstore.Snapshot { return s.opts.View.Snapshot() }

// Clients are those to whom it is served, in order of arrival.
func (s *Server) Clients() []xds.ClientStatus { return slices.Collect(s.opts.Clients.EachClient()) }

// Quarantined returns the invalid objects and documents, which are not served. It is not nil.
func (s *Server) Quarantined() []Quarantined {
	return s.quarantinedIf(func(Quarantined) bool { return true })
}

// Shadows yields the keys that several sources have.
func (s *Server) Shadows() iter.Seq[aggregate.Shadow] { return s.opts.View.Shadows() }

// SpeakOf returns the objects that say something of a host.
func (s *Server) SpeakOf(host string) (keys []resource.Key) {
	for _, o := range s.opts.View.ExplainHost(host).Objects {
		keys = append(keys, o.Object.Key())
	}
	return keys
}

// IsHeld reports whether a source lost something of an object, and that is held.
func (s *Server) IsHeld(key resource.Key) bool {
	for _, one := range s.opts.Sources.Serving(key) {
		if one.Held {
			return true
		}
	}
	return false
}
