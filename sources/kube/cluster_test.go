package kube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// cluster is an API server with its etcd, for tests with the clock of testing/synctest: only its HTTP is real. It keeps
// each change, so that it can answer for any version, go back to one, or answer that it was compacted.
type cluster struct {
	mu       sync.Mutex
	random   *rand.Rand
	started  time.Time
	version  uint64
	oldest   uint64 // older changes are compacted
	log      []change
	apis     map[string][]string // versions of a resource, the preferred one first; none: there is no CRD
	hidden   map[string]bool     // resources that the server does not know for a while
	unlisted map[string]bool     // those that it does not name when it is asked which there are, though it has them
	denied   map[string]bool     // resource, or resource/namespace
	fault    map[string]fault    // by resource
	changed  chan struct{}
	cut      chan struct{} // closed to end all watches
	down     bool
	moved    int  // how often the cluster got another address
	troubled bool // something was not answered as it should be, since it was set
	requests int
	second   time.Duration // since the start
	recent   []string      // requests of that second
	storm    []string      // some requests of a second that had far too many

	accepted chan net.Conn
	closed   chan struct{}
	open     map[net.Conn]bool
}

// change is one of the log. The object is as before if it is gone.
type change struct {
	version       uint64
	resource, key string
	object        map[string]any
	deleted       bool
}

// everything is the resource whose faults apply to all resources.
const everything = "everything"

// fault is a wrong answer of a resource, with its chance.
type fault struct {
	chance    float64
	status    int
	text      string // an answer that is no JSON
	wait      int    // Retry-After
	cut       int    // bytes after which the connection ends
	expired   bool   // continue tokens and watches are too old
	event     int    // the code of an ERROR event with which a watch begins
	silent    bool   // a watch has no events
	hang      bool   // there is no answer
	behind    uint64 // it answers for so many versions ago
	listsOnly bool
	repeats   bool // a page has its last item twice, and a watch each event
	disorder  bool // a watch sends delayed events in another order
	backwards bool // bookmarks are of versions before
	nameless  bool // a page has an object without a name, and a watch an event without an object
}

func newCluster(t *testing.T, random *rand.Rand) *cluster {
	c := &cluster{
		random: random, started: time.Now(), version: 1000, oldest: 1000,
		apis: map[string][]string{}, denied: map[string]bool{}, hidden: map[string]bool{}, unlisted: map[string]bool{},
		fault: map[string]fault{}, changed: make(chan struct{}), cut: make(chan struct{}),
		accepted: make(chan net.Conn), closed: make(chan struct{}), open: map[net.Conn]bool{},
	}
	server := &http.Server{Handler: c, ReadHeaderTimeout: time.Hour}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(c)
	}()
	transport := &http.Transport{DialContext: c.dial}
	transports.Store(c.name(), transport)
	t.Cleanup(func() {
		transports.Delete(c.name())
		transport.CloseIdleConnections()
		c.end()
		_ = server.Close()
		<-served
	})
	return c
}

func (c *cluster) name() string { return fmt.Sprintf("c%p.test", c) }

// host is where the cluster is now.
func (c *cluster) host() string { return fmt.Sprintf("%d.%s", c.moved, c.name()) }

// transports are those of clusters, by name.
var transports = byHost()

func byHost() *sync.Map {
	m := new(sync.Map)
	transport := http.DefaultTransport
	http.DefaultTransport = roundTrip(func(request *http.Request) (*http.Response, error) {
		_, name, _ := strings.Cut(request.URL.Host, ".")
		if t, ok := m.Load(name); ok {
			return t.(*http.Transport).RoundTrip(request)
		}
		return transport.RoundTrip(request)
	})
	return m
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }
func (roundTrip) CloseIdleConnections()                                 {}

func (c *cluster) dial(ctx context.Context, _, address string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	c.mu.Lock()
	if c.open[theirs] = true; c.down || address != c.host()+":80" {
		c.troubled = true
		_ = theirs.Close()
	}
	c.mu.Unlock()
	select {
	case c.accepted <- theirs:
		return ours, nil
	case <-c.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept, Close and Addr make the cluster a net.Listener.
func (c *cluster) Accept() (net.Conn, error) {
	select {
	case conn := <-c.accepted:
		return conn, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

func (c *cluster) Close() error {
	close(c.closed)
	return nil
}

func (c *cluster) Addr() net.Addr { return &net.UnixAddr{} }

// end ends all watches and connections. Locked, it is endLocked.
func (c *cluster) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked()
}

func (c *cluster) endLocked() {
	close(c.cut)
	c.cut, c.troubled = make(chan struct{}), true
	for conn := range c.open {
		_ = conn.Close()
	}
	clear(c.open)
}

func (c *cluster) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// at returns the objects of a resource at a version.
func (c *cluster) at(resource string, version uint64) map[string]map[string]any {
	objects := make(map[string]map[string]any)
	for _, change := range c.log {
		if change.resource != resource || change.version > version {
			continue
		}
		if objects[change.key] = change.object; change.deleted {
			delete(objects, change.key)
		}
	}
	return objects
}

// write puts an object, or deletes it if spec is nil. mu is held.
func (c *cluster) write(resource, namespace, name string, object map[string]any) {
	before, key := c.at(resource, c.version)[namespace+"/"+name], namespace+"/"+name
	if before == nil && object == nil {
		return
	}
	c.version++
	rv := strconv.FormatUint(c.version, 10)
	created := time.Now().UTC().Format(time.RFC3339)
	from := object
	if deleted := object == nil; deleted {
		from = before
	}
	made := maps.Clone(from)
	meta, _ := maps.Clone(made)["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	if meta == nil {
		meta = map[string]any{}
	}
	if before != nil {
		created, _ = before["metadata"].(map[string]any)["creationTimestamp"].(string)
	}
	meta["name"], meta["resourceVersion"], meta["creationTimestamp"], meta["uid"] = name, rv, created, key
	if namespace != "" {
		meta["namespace"] = namespace
	}
	made["metadata"] = meta
	c.log = append(c.log, change{c.version, resource, key, made, object == nil})
	c.notify()
}

// restore brings back the objects of a version.
func (c *cluster) restore(version uint64) {
	c.log = slices.DeleteFunc(slices.Clone(c.log), func(ch change) bool { return ch.version > version })
	c.version, c.oldest = version, version
	c.endLocked()
}

func (c *cluster) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	c.mu.Lock()
	if second := time.Since(c.started).Truncate(time.Second); second != c.second {
		c.second, c.recent = second, nil
	}
	c.requests++
	c.recent = append(c.recent, request.URL.RequestURI())
	storm := len(c.recent) > 2000
	if storm && c.storm == nil {
		c.storm = c.recent[1950:]
	}
	c.mu.Unlock()
	if storm {
		<-request.Context().Done() // the clock has to go on
		return
	}
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	if parts[0] == "api" {
		parts = slices.Insert(parts[1:], 0, "apis", "") // as /apis//v1
	}
	if request.URL.Path == "/version" {
		_, _ = io.WriteString(response, "{}")
		return
	}
	if len(parts) < 4 {
		c.discovery(response)
		return
	}
	namespace, plural := "", parts[3]
	if len(parts) == 6 {
		namespace, plural = parts[4], parts[5]
	}
	resource, watch := strings.TrimSuffix(plural+"."+parts[1], "."), request.URL.Query().Get("watch") == "true"
	c.mu.Lock()
	f, cut := c.fault[resource], c.cut
	if _, everyResource := c.fault[everything]; everyResource {
		f = c.fault[everything]
	}
	if f.chance < c.random.Float64() || f.listsOnly && watch {
		f = fault{}
	}
	served := !c.hidden[resource] && slices.Contains(c.apis[resource], parts[2])
	denied := c.denied[resource] || c.denied[resource+"/"+namespace]
	c.troubled = c.troubled || f != fault{} || denied || !served
	c.mu.Unlock()
	if f.cut > 0 {
		response = &shortWriter{ResponseWriter: response, remaining: f.cut}
	}
	switch {
	case f.hang:
		<-request.Context().Done()
	case f.text != "":
		response.WriteHeader(f.status)
		_, _ = io.WriteString(response, f.text)
	case denied:
		refuse(response, http.StatusForbidden, "Forbidden", 0)
	case f.status != 0:
		refuse(response, f.status, http.StatusText(f.status), f.wait)
	case !served:
		refuse(response, http.StatusNotFound, "NotFound", 0)
	case watch:
		c.watch(response, request, resource, parts[1]+"/"+parts[2], namespace, f, cut)
	default:
		c.list(response, request, resource, parts[1]+"/"+parts[2], namespace, f)
	}
}

// shortWriter ends the connection after some bytes.
type shortWriter struct {
	http.ResponseWriter
	remaining int
}

func (w *shortWriter) Write(p []byte) (int, error) {
	n := min(w.remaining, len(p))
	_, _ = w.ResponseWriter.Write(p[:n])
	if w.remaining -= n; w.remaining == 0 {
		w.Flush()
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

func (w *shortWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func refuse(response http.ResponseWriter, code int, reason string, wait int) {
	if wait > 0 {
		response.Header().Set("Retry-After", strconv.Itoa(wait))
	}
	response.WriteHeader(code)
	_ = json.NewEncoder(response).Encode(status(code, reason))
}

func status(code int, reason string) map[string]any {
	return map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "as the test wants it",
		"metadata": map[string]any{},
	}
}

// discovery answers which resources there are, by group and version.
func (c *cluster) discovery(response http.ResponseWriter) {
	c.mu.Lock()
	groups := map[string]map[string][]any{}
	order := map[string][]string{} // of the versions of a group
	for _, resource := range slices.Sorted(maps.Keys(c.apis)) {
		plural, group, _ := strings.Cut(resource, ".")
		if c.hidden[resource] || c.unlisted[resource] {
			c.troubled = true
			continue
		}
		if group == "" {
			continue
		}
		if groups[group] == nil {
			groups[group] = map[string][]any{}
		}
		for _, v := range c.apis[resource] {
			if !slices.Contains(order[group], v) {
				order[group] = append(order[group], v)
			}
			groups[group][v] = append(groups[group][v], map[string]any{"resource": plural})
		}
	}
	f := c.fault["discovery"]
	if f.chance < c.random.Float64() {
		f = fault{}
	}
	denied := c.denied["discovery"]
	c.troubled = c.troubled || f != fault{} || denied
	c.mu.Unlock()
	items := []any{}
	for _, group := range slices.Sorted(maps.Keys(order)) {
		versions := []any{}
		for _, v := range order[group] {
			versions = append(versions, map[string]any{"version": v, "resources": groups[group][v], "freshness": "Current"})
		}
		items = append(items, map[string]any{"metadata": map[string]any{"name": group}, "versions": versions})
	}
	switch {
	case denied:
		refuse(response, http.StatusForbidden, "Forbidden", 0)
	case f.text != "":
		response.WriteHeader(f.status)
		_, _ = io.WriteString(response, f.text)
	case f.status != 0:
		refuse(response, f.status, http.StatusText(f.status), 0)
	default:
		_ = json.NewEncoder(response).Encode(map[string]any{"kind": "APIGroupDiscoveryList", "items": items})
	}
}
