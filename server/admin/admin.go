// Package admin serves the state of a running tributary over HTTP: health, metrics, served objects, clients, sources
// and problems. Changes are POST requests. Those of web pages of another origin are refused.
//
// pages.go lists all pages with their rights, access.go checks the rights. health.go answers probes, verdict.go says
// whether users suffer, problems.go why. status.go, clients.go, explain.go, rejected.go, conflicts.go, history.go and
// guard.go have the page of their name; names.go and similar.go find objects by a part of a name. config.go and
// configz.go show and reload the configuration. page_limit.go bounds pages that run at once.
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

// View is the merged view of all sources: the served objects, and why they are served.
type View interface {
	Snapshot() memstore.Snapshot
	Synced() bool
	Shadows() iter.Seq[aggregate.Shadow]
	Refusals() []aggregate.Refusal
	Sources() []aggregate.SourceStatus
	Competing() []conflicts.Conflict
	Explain(key resource.Key) aggregate.Explanation
	ExplainHost(host string) aggregate.HostExplanation
}

// Sources are the sources of the view.
type Sources interface {
	Status() []sources.Status
	// Excluding returns the objects with this key that transforms exclude.
	Excluding(key resource.Key) []sources.Excluded
	// LeavingOut returns the instances that sources do not serve: those of the groups that have one of the keys, and
	// those with this name or address. An empty text selects none.
	LeavingOut(text string, keys ...resource.Key) []sources.LeftOut
	// Serving returns the remarks of each source about a key: holds, read errors, doubts and warnings.
	Serving(key resource.Key) []sources.Serving
	// Release ends the hold of a source. A hold's ID releases this hold only; an empty one releases any. The error is
	// sources.ErrNotFound, sources.ErrNothingHeld or sources.ErrOtherHold. The caller is for the log.
	Release(source, hold, caller string) (objects, endpoints int, err error)
}

// Options are the parts of the program that a Server shows. Functions, Level, History and GRPC may be nil.
type Options struct {
	Version string // the program's version
	XDS     string // the address of the xDS server for commands on the dashboard; or empty
	View    View
	Sources Sources
	Clients debug.Clients
	Config  Config
	// Visible reports whether a client that subscribes to the kind of an object gets this object.
	Visible func(node *corev3.Node, object *resource.Resource) bool
	// WithoutEffect returns the fields of an object that Envoys and gRPC clients ignore, each with the reason.
	WithoutEffect func(object *resource.Resource) []string
	// Affected returns the objects with such fields.
	Affected func() []resource.Key
	// Unenforced returns the security objects that Envoys and gRPC clients do not enforce, in order of key.
	Unenforced func() []resource.Key
	// WhyUnenforced names a client that does not enforce a security object, and the effect on it.
	WhyUnenforced func(key resource.Key) string
	Problems      func() ObjectProblems
	// ChangedSince returns the objects of a rejected resource that changed since the client last acknowledged it, and
	// whether the list is complete.
	ChangedSince func(collection *xds.Collection, rejection xds.Rejection) (changed []resource.Key, complete bool)
	Kick         func(nodeID string) int   // ends the streams of a node, and returns their number
	Level        *slog.LevelVar            // the level of the log
	Certificates func() []transport.Status // the certificates of the listeners
	// Authorize returns an error with a gRPC status for a certificate that is no longer trusted. With needsRight, the
	// client also needs the right to change the program: it sends a change from another machine.
	Authorize func(client *identity.Identity, authorization []string, needsRight bool) error
	// NoDebug hides the pages below /debug.
	NoDebug bool
	// NoProfiles hides the pages below /debug/pprof.
	NoProfiles bool
	// Expected returns the configuration that an Envoy should have now, and its resources for the config_dump.
	Expected  func(ctx context.Context, node *corev3.Node, delta bool) (*verify.Expected, []xds.Served, error)
	History   History
	Dashboard func(*Server) Dashboard // makes the handler of /, /page/ and /debug/page/
	GRPC      http.Handler            // for gRPC on the same port
	Registry  *prometheus.Registry
	Log       *slog.Logger // slog.Default if nil
}

// Dashboard is the page for browsers. Close ends its streams of events.
type Dashboard interface {
	http.Handler
	Close()
}

// Server is the admin server.
type Server struct {
	dashboard Dashboard // nil without one
	opts      Options
	log       *slog.Logger
	started   time.Time
	draining  atomic.Bool

	contentHash struct { // the cached Status.Content
		sync.Mutex
		revision memstore.Revision
		text     string
	}
}

// New returns a server of the program that the options describe.
func New(opts Options) *Server {
	server := &Server{opts: opts, log: opts.Log, started: time.Now()}
	if server.log == nil {
		server.log = slog.Default()
	}
	if opts.Registry != nil {
		opts.Registry.MustRegister(viewMetrics{opts.View})
	}
	if opts.Dashboard != nil {
		server.dashboard = opts.Dashboard(server)
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

// Handler returns the handler of all requests. It checks their host and origin first, and then the client's rights.
func (s *Server) Handler() http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(denyCrossOrigin))
	handler := s.withGRPC(s.authorize(s.mux()))
	handler = origins.Handler(refuseOtherSites(handler))
	return refuseOtherHosts(handler)
}

// withGRPC passes requests of gRPC to Options.GRPC.
func (s *Server) withGRPC(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if s.opts.GRPC != nil && request.ProtoMajor == 2 &&
			strings.HasPrefix(request.Header.Get("Content-Type"), "application/grpc") {
			s.opts.GRPC.ServeHTTP(response, request)
			return
		}
		// Without full duplex, the first write waits until the whole body of the request is read.
		_ = http.NewResponseController(response).EnableFullDuplex() // HTTP/2 and tests do not need it
		pages.ServeHTTP(response, request)
	})
}

func (s *Server) mux() *http.ServeMux {
	serveMux := http.NewServeMux()
	pages, profiles := newPageLimit(), newPageLimit()
	for _, page := range s.allPages() {
		handler := page.handler
		switch {
		case strings.HasPrefix(page.Path, "/debug/pprof/"):
			handler = profiles.apply(handler)
		case strings.HasPrefix(page.Path, indexPath):
			handler = pages.apply(handler)
		case page.Path == "/metrics":
			handler = newPageLimit().apply(handler)
		}
		serveMux.Handle(page.Method+" "+page.pattern(), handler)
	}
	for path, handler := range map[string]http.HandlerFunc{
		"/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile, "/debug/pprof/symbol": pprof.Symbol,
		"/debug/pprof/trace": pprof.Trace,
	} {
		if !s.isHidden(path) {
			serveMux.Handle("GET "+path, profiles.apply(handler))
		}
	}
	if s.dashboard != nil {
		serveMux.Handle("GET /{$}", newPageLimit().apply(s.dashboard))
		serveMux.Handle("GET /page/", s.dashboard)
		if !s.opts.NoDebug {
			serveMux.Handle("GET /debug/page/", s.dashboard)
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
		WriteTimeout:      2 * time.Minute, // bounds the duration of a CPU profile
		IdleTimeout:       2 * time.Minute,
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streamsPerConnection},
		ConnContext:       withConnectionSlots,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true) // for gRPC
	if s.dashboard != nil {
		server.RegisterOnShutdown(s.dashboard.Close)
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

// The dashboard reads its content by the following methods.

// Snapshot returns the served objects.
func (s *Server) Snapshot() memstore.Snapshot { return s.opts.View.Snapshot() }

// Clients returns the clients in order of arrival.
func (s *Server) Clients() []xds.ClientStatus { return slices.Collect(s.opts.Clients.EachClient()) }

// Quarantined returns the invalid objects and documents, which are not served. The list is not nil.
func (s *Server) Quarantined() []Quarantined {
	return s.selectQuarantined(func(Quarantined) bool { return true })
}

// Shadows yields the keys that several sources have.
func (s *Server) Shadows() iter.Seq[aggregate.Shadow] { return s.opts.View.Shadows() }

// KeysOfHost returns the keys of the objects that reference a host.
func (s *Server) KeysOfHost(host string) (keys []resource.Key) {
	for _, explained := range s.opts.View.ExplainHost(host).Objects {
		keys = append(keys, explained.Object.Key())
	}
	return keys
}

// IsHeld reports whether a hold keeps an object served that its source has lost.
func (s *Server) IsHeld(key resource.Key) bool {
	return slices.ContainsFunc(s.opts.Sources.Serving(key), func(serving sources.Serving) bool { return serving.Held })
}
