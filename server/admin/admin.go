// Package admin serves the state of a running tributary over HTTP: health, metrics, served objects, clients, sources
// and problems. Changes are POST requests. Those of web pages of another origin are refused.
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

// View has the served objects.
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

// Sources are the sources of the view.
type Sources interface {
	Status() []sources.Status
	// Excluding returns the objects with a key that transforms leave out.
	Excluding(key resource.Key) []sources.Excluded
	// LeavingOut returns the instances that sources leave out of the groups with the keys, and those with a name or an
	// address, if it is not empty.
	LeavingOut(text string, keys ...resource.Key) []sources.LeftOut
	// Serving returns the remarks of sources about a key.
	Serving(key resource.Key) []sources.Serving
	// Release ends the hold of a source on behalf of a caller. An ID selects one hold. The error is sources.ErrNotFound,
	// sources.ErrNothingHeld or sources.ErrOtherHold.
	Release(source, hold, caller string) (objects, endpoints int, err error)
}

// Options are the parts of the program that a Server shows. Functions, Level, History and GRPC may be nil.
type Options struct {
	Version string // of the program
	XDS     string // the address of the xDS server in commands of the page; or empty
	View    View
	Sources Sources
	Clients debug.Clients
	Config  Config
	// Visible reports whether a client gets an object of a kind to which it subscribes.
	Visible func(node *corev3.Node, object *resource.Resource) bool
	// WithoutEffect returns the fields of an object without effect on clients of translated configuration, with reasons.
	// Affected returns the objects with such fields.
	WithoutEffect func(object *resource.Resource) []string
	Affected      func() []resource.Key
	// Unenforced returns the security objects that Envoys and gRPC clients do not enforce, in order of key. WhyUnenforced
	// returns the effect on one of these clients.
	Unenforced    func() []resource.Key
	WhyUnenforced func(key resource.Key) string
	Problems      func() ObjectProblems
	// ChangedSince returns the objects of a rejected resource that changed since the client last acknowledged it, and
	// whether the list is complete.
	ChangedSince func(collection *xds.Collection, rejection xds.Rejection) (changed []resource.Key, complete bool)
	Kick         func(nodeID string) int   // ends the streams of a node, and returns their number
	Level        *slog.LevelVar            // of the log
	Certificates func() []transport.Status // of the listeners
	// Authorize returns an error with a gRPC status for a certificate that is no longer trusted. If changes is set, the
	// client is on another machine, and needs the right to change something.
	Authorize func(client *identity.Identity, authorization []string, changes bool) error
	// NoDebug leaves out the pages below /debug, and NoProfiles those of profiles.
	NoDebug, NoProfiles bool
	// Expected returns the configuration that an Envoy should have now, with the resources of the dump.
	Expected func(ctx context.Context, node *corev3.Node, delta bool) (*verify.Expected, []xds.Served, error)
	History  History
	Page     func(*Server) Front // makes the handler of /, /page/ and /debug/page/
	GRPC     http.Handler        // for gRPC on the same port
	Registry *prometheus.Registry
	Log      *slog.Logger // slog.Default if nil
}

// Front is the page for browsers. Close ends its endless answers.
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
	server := &Server{opts: opts, log: opts.Log, started: time.Now()}
	if server.log == nil {
		server.log = slog.Default()
	}
	if opts.Registry != nil {
		opts.Registry.MustRegister(viewMetrics{opts.View})
	}
	if opts.Page != nil {
		server.front = opts.Page(server)
	}
	return server
}

// Drain makes the server unready, so that load balancers send new clients to others.
func (s *Server) Drain() { s.draining.Store(true) }

// NoDebug reports whether the pages below /debug are left out.
func (s *Server) NoDebug() bool { return s.opts.NoDebug }

// Version returns the version of the program.
func (s *Server) Version() string { return s.opts.Version }

// XDS returns the address of the xDS server; empty without one.
func (s *Server) XDS() string { return s.opts.XDS }

// Started returns when the server was made.
func (s *Server) Started() time.Time { return s.started }

// Handler returns the pages.
func (s *Server) Handler() http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(denyForeign))
	return refuseOtherHosts(origins.Handler(refuseOtherSites(s.withGRPC(s.changers(s.mux())))))
}

// withGRPC passes requests of gRPC to Options.GRPC.
func (s *Server) withGRPC(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if s.opts.GRPC != nil && request.ProtoMajor == 2 &&
			strings.HasPrefix(request.Header.Get("Content-Type"), "application/grpc") {
			s.opts.GRPC.ServeHTTP(response, request)
			return
		}
		// Otherwise a write waits for the whole body of the request.
		_ = http.NewResponseController(response).EnableFullDuplex() // HTTP/2 and tests have none
		pages.ServeHTTP(response, request)
	})
}

func (s *Server) mux() *http.ServeMux {
	serveMux := http.NewServeMux()
	pages, profiles := newTurns(), newTurns()
	for _, page := range s.allPages() {
		handler := page.handler
		switch {
		case strings.HasPrefix(page.Path, "/debug/pprof/"):
			handler = profiles.limit(handler)
		case strings.HasPrefix(page.Path, indexPath):
			handler = pages.limit(handler)
		case page.Path == "/metrics":
			handler = newTurns().limit(handler)
		}
		serveMux.Handle(page.Method+" "+page.pattern(), handler)
	}
	for path, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile, "/debug/pprof/symbol": pprof.Symbol,
		"/debug/pprof/trace": pprof.Trace,
	} {
		if !s.leftOut(path) {
			serveMux.Handle("GET "+path, profiles.limit(handler))
		}
	}
	if s.front != nil {
		serveMux.Handle("GET /{$}", newTurns().limit(s.front))
		serveMux.Handle("GET /page/", s.front)
		if !s.opts.NoDebug {
			serveMux.Handle("GET /debug/page/", s.front)
		}
	}
	return serveMux
}

func (s *Server) metrics() http.Handler {
	return promhttp.HandlerFor(s.opts.Registry, promhttp.HandlerOpts{
		Registry: s.opts.Registry,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelError),
	})
}

// streamsPerConnection bounds the requests in progress on a connection of HTTP/2.
const streamsPerConnection = 16

// Serve serves the pages on a listener, which it closes, until ctx ends. Requests in progress then have a second left.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
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
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("admin server on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = server.Close() // ends the requests that are left
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin server on %s: %w", listener.Addr(), err)
	}
	return nil
}

// The page at / shows the same as the pages below /debug. It gets it by these methods.

// Snapshot returns the served objects.
func (s *Server) Snapshot() memstore.Snapshot { return s.opts.View.Snapshot() }

// Clients returns the clients in order of arrival.
func (s *Server) Clients() []xds.ClientStatus { return slices.Collect(s.opts.Clients.EachClient()) }

// Quarantined returns the invalid objects and documents, which are not served. It is not nil.
func (s *Server) Quarantined() []Quarantined {
	return s.quarantinedIf(func(Quarantined) bool { return true })
}

// Shadows yields the keys in several sources.
func (s *Server) Shadows() iter.Seq[aggregate.Shadow] { return s.opts.View.Shadows() }

// SpeakOf returns the keys of the objects with a host.
func (s *Server) SpeakOf(host string) (keys []resource.Key) {
	for _, explained := range s.opts.View.ExplainHost(host).Objects {
		keys = append(keys, explained.Object.Key())
	}
	return keys
}

// IsHeld reports whether a loss of an object is on hold.
func (s *Server) IsHeld(key resource.Key) bool {
	return slices.ContainsFunc(s.opts.Sources.Serving(key), func(serving sources.Serving) bool { return serving.Held })
}
