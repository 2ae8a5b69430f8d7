// Package page is what a person sees of a running tributary in a browser: at / of the admin port, whether all is well, if not whose fault
// it is, and what to do.
//
// The server makes all of the page, with what is asked for in its address, so that it works without scripts and with any number of objects.
// A script keeps it new: it is told when something has changed, asks for the page again, and puts in what is different.
package page

import (
	"bytes"
	"embed"
	"html/template"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"tributary/aggregate"
	"tributary/internal/history"
	"tributary/internal/words"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/server/xds"
)

// Program is what is shown. An admin.Server is one.
type Program interface {
	Version() string
	Started() time.Time
	NoDebug() bool
	Pages() []admin.Page
	Status() admin.Status
	Snapshot() memstore.Snapshot
	Clients() []xds.ClientStatus
	Shadows() iter.Seq[aggregate.Shadow]
	Quarantined() []admin.Quarantined
	Guarded() []admin.Guarded
	ObjectProblems() admin.ObjectProblems
	Explain(key resource.Key) admin.Explanation
	SpeakOf(host string) []resource.Key
	Picture(host string) []string
	IsHeld(key resource.Key) bool
	// XDS returns host:port of the xDS server, as it listens; or empty.
	XDS() string
	// History returns changes of objects, in order of time.
	History(query history.Query) (*history.Answer, error)
}

//go:embed static
var static embed.FS

//go:embed page.html
var source string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"at":    func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"count": count,
	"lines": linesOf,
	"add": func(all ...int) (sum int) {
		for _, n := range all {
			sum += n
		}
		return sum
	},
}).Parse(source))

// policy lets the page load what is ours, and nothing else: neither scripts nor styles in the page itself, nor anything from elsewhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

// Handler answers at / and /page/, and, until it is closed, below /debug/page/.
type Handler struct {
	program Program
	log     *slog.Logger
	mux     http.ServeMux
	latest  latest
	room    chan struct{} // has an element for each page that is told of changes
	closed  sync.Once
	ended   chan struct{}
}

// New returns a handler of p.
func New(p Program, log *slog.Logger) *Handler {
	h := &Handler{program: p, log: log, latest: latest{program: p}, room: make(chan struct{}, maxLive), ended: make(chan struct{})}
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // it is embedded
	}
	h.mux.HandleFunc("GET /{$}", h.page)
	h.mux.Handle("GET /page/", http.StripPrefix("/page/", http.FileServerFS(files)))
	h.mux.HandleFunc("GET /debug/page/events", h.events)
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-cache",
	} {
		w.Header().Set(name, value)
	}
	h.mux.ServeHTTP(w, r)
}

func (h *Handler) page(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	var text bytes.Buffer
	name, data := "page", h.view(r)
	if h.program.NoDebug() {
		name = "off"
	}
	if err := page.ExecuteTemplate(&text, name, data); err != nil {
		h.log.Error("page not made", "err", err)
		http.Error(w, "the page cannot be made: see the log", http.StatusInternalServerError)
		return
	}
	if _, err := io.WriteString(w, words.Printable(text.String(), "\n\t")); err != nil {
		h.log.Debug("page not written", "path", r.URL.Path, "err", err)
	}
}

// view is what r asks to see.
func (h *Handler) view(r *http.Request) *Page {
	p := &Page{
		Version: h.program.Version(), Host: r.Host, Started: h.program.Started(), Pages: h.program.Pages(),
		Shell: shellFor(r.Host, r.TLS != nil, h.program.XDS()),
	}
	if h.program.NoDebug() {
		return p
	}
	q, now := parse(r.URL.Query()), h.latest.get()
	f := facts{
		snapshot: h.program.Snapshot(), shadows: make(map[resource.Key][]string), held: h.program.IsHeld, speakOf: h.program.SpeakOf,
		quarantined: h.program.Quarantined(), guarded: h.program.Guarded(),
		unresolved: h.program.ObjectProblems().Unresolved,
	}
	var losers []aggregate.Candidate
	for s := range h.program.Shadows() {
		for _, l := range s.Losers {
			f.shadows[s.Key] = append(f.shadows[s.Key], l.Source)
		}
		if s.Key == q.object {
			losers = s.Losers
		}
	}
	p.Revision, p.Config = now.revision, now.status.Config
	p.Verdict, p.Flow = verdictOf(&now.status, q, p.Shell), flowOf(&now.status, now.clients)
	p.Sources, p.Objects, p.Clients = sourcesOf(&now.status, p.Shell), objectsOf(&now.status, f, q), clientsOf(now.clients, q)
	p.Objects.Picture = h.program.Picture(q.filter)
	if q.object != (resource.Key{}) {
		e := h.program.Explain(q.object)
		p.Detail = detailOf(&e, f.snapshot.Get(q.object), losers, q, p.Shell)
	}
	p.Status = now.status
	p.Changes = h.changes(q, now.recent)
	return p
}
