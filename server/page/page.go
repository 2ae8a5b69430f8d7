// Package page shows the state of a running tributary in a browser, at / of the admin port: its troubles with their
// causes and advice, and its sources, objects, changes and clients.
//
// The server renders the page from the query in its address, so that it works without scripts and with any number of
// objects. A script keeps it current: after an event it loads the page again and replaces the parts that differ.
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

// Program is the source of the page's data. An admin.Server implements it.
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
	HeldSources() []admin.HeldSource
	ObjectProblems() admin.ObjectProblems
	Explain(key resource.Key) admin.Explanation
	KeysOfHost(host string) []resource.Key
	RequestTree(host string) []string
	IsHeld(key resource.Key) bool
	// XDS returns the address that the xDS server listens on; empty without one.
	XDS() string
	// History returns changes of objects, in order of time.
	History(query history.Query) (*history.Answer, error)
}

//go:embed static
var staticFiles embed.FS

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"at":    func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"count": words.Count,
	"lines": diffLines,
	"add":   func(first, second int) int { return first + second },
	"short": shortenText,
}).Parse(pageSource))

// policy restricts the page to files of this server: no inline scripts or styles, and no content of other hosts.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Handler serves /, /page/ and /debug/page/. Close ends the streams of events below /debug/page/.
type Handler struct {
	program   Program
	log       *slog.Logger
	mux       http.ServeMux
	cache     stateCache
	liveSlots chan struct{} // has an element for each live page
	closed    sync.Once
	stopped   chan struct{}
}

// New returns a handler that shows a program.
func New(program Program, log *slog.Logger) *Handler {
	handler := &Handler{
		program: program, log: log, cache: stateCache{program: program},
		liveSlots: make(chan struct{}, maxLivePages), stopped: make(chan struct{}),
	}
	files, err := fs.Sub(staticFiles, "static")
	if err != nil {
		panic(err) // it is embedded
	}
	handler.mux.HandleFunc("GET /{$}", handler.page)
	handler.mux.Handle("GET /page/", http.StripPrefix("/page/", http.FileServerFS(files)))
	handler.mux.HandleFunc("GET /debug/page/events", handler.events)
	return handler
}

func (h *Handler) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"X-Frame-Options":            "DENY",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control": "no-cache",
	} {
		response.Header().Set(name, value)
	}
	h.mux.ServeHTTP(response, request)
}

func (h *Handler) page(response http.ResponseWriter, request *http.Request) {
	response.Header().Set("Content-Type", "text/html; charset=utf-8")
	response.Header().Set("Cache-Control", "no-store")
	var text bytes.Buffer
	name := "page"
	if h.program.NoDebug() {
		name = "off"
	}
	if err := pageTemplate.ExecuteTemplate(&text, name, h.newPage(request)); err != nil {
		h.log.Error("page not made", "err", err)
		http.Error(response, "the page cannot be made: see the log", http.StatusInternalServerError)
		return
	}
	if _, err := io.WriteString(response, words.Printable(text.String(), "\n\t")); err != nil {
		h.log.Debug("page not written", "path", request.URL.Path, "err", err)
	}
}

// newPage returns the data of the page that a request asks for. It is short if the pages below /debug are hidden.
func (h *Handler) newPage(request *http.Request) *Page {
	page := &Page{
		Version: h.program.Version(), Host: request.Host, Started: h.program.Started(), Pages: h.program.Pages(),
		Shell: newShell(request.Host, request.TLS != nil, h.program.XDS()),
	}
	if h.program.NoDebug() {
		return page
	}
	query := parseQuery(request.URL.Query())
	state := h.cache.read()
	shadows := make(map[resource.Key][]aggregate.Candidate)
	for shadow := range h.program.Shadows() {
		shadows[shadow.Key] = shadow.Losers
	}
	page.query = query
	page.Revision = state.revision
	page.Status = state.status
	page.Verdict = newVerdict(&state.status, query, page.Shell)
	page.Diagram = newDiagram(&state.status, state.clients)
	page.Sources = sourceRows(&state.status, page.Shell)
	page.Clients = clientsPanel(state.clients, query)
	page.Objects = objectsPanel(&state.status, h.program, shadows, query)
	if query.object != (resource.Key{}) {
		explanation := h.program.Explain(query.object)
		page.Detail = newDetail(&explanation, h.program.Snapshot().Get(query.object), shadows[query.object], query)
	}
	page.Changes = h.changesPanel(query, state.recent)
	return page
}
