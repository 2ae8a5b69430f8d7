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

	"k8s.io/apimachinery/pkg/labels"
)

// cluster is an API server with its etcd, for tests with the clock of testing/synctest: nothing of it is real but HTTP. It keeps each
// change, so that it can answer for any version, go back to one, or say that it has forgotten it.
type cluster struct {
	mu       sync.Mutex
	random   *rand.Rand
	started  time.Time
	version  uint64
	oldest   uint64 // what was before is compacted
	log      []change
	apis     map[string][]string // versions of a resource, the preferred one first; none: there is no CRD
	hidden   map[string]bool     // resources that the server does not know for a while
	denied   map[string]bool     // resource, or resource/namespace
	fault    map[string]fault    // by resource
	changed  chan struct{}
	cut      chan struct{} // closed to end all watches
	down     bool
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
	gone          bool
}

// fault is what a resource answers instead, with a chance.
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
}

func newCluster(t *testing.T, random *rand.Rand) *cluster {
	c := &cluster{
		random: random, started: time.Now(), version: 1000, oldest: 1000,
		apis: map[string][]string{}, denied: map[string]bool{}, hidden: map[string]bool{},
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
	host := fmt.Sprintf("c%p.test", c)
	transports.Store(host, transport)
	t.Cleanup(func() {
		transports.Delete(host)
		transport.CloseIdleConnections()
		c.end()
		_ = server.Close()
		<-served
	})
	return c
}

func (c *cluster) host() string { return fmt.Sprintf("c%p.test", c) }

// transports are those of clusters, by host.
var transports = byHost()

func byHost() *sync.Map {
	m := new(sync.Map)
	others := http.DefaultTransport
	http.DefaultTransport = roundTrip(func(req *http.Request) (*http.Response, error) {
		if t, ok := m.Load(req.URL.Host); ok {
			return t.(*http.Transport).RoundTrip(req)
		}
		return others.RoundTrip(req)
	})
	return m
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
func (roundTrip) CloseIdleConnections()                                 {}

func (c *cluster) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	c.mu.Lock()
	if c.open[theirs] = true; c.down {
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
	c.cut = make(chan struct{})
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
	all := make(map[string]map[string]any)
	for _, ch := range c.log {
		if ch.resource != resource || ch.version > version {
			continue
		}
		if all[ch.key] = ch.object; ch.gone {
			delete(all, ch.key)
		}
	}
	return all
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
	if gone := object == nil; gone {
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

// restore brings back what was at a version.
func (c *cluster) restore(version uint64) {
	c.log = slices.DeleteFunc(slices.Clone(c.log), func(ch change) bool { return ch.version > version })
	c.version, c.oldest = version, version
	c.endLocked()
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c.mu.Lock()
	if second := time.Since(c.started).Truncate(time.Second); second != c.second {
		c.second, c.recent = second, nil
	}
	c.requests++
	c.recent = append(c.recent, req.URL.RequestURI())
	storm := len(c.recent) > 2000
	if storm && c.storm == nil {
		c.storm = c.recent[1950:]
	}
	c.mu.Unlock()
	if storm {
		<-req.Context().Done() // the clock has to go on
		return
	}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	if parts[0] == "api" {
		parts = slices.Insert(parts[1:], 0, "apis", "") // as /apis//v1
	}
	if req.URL.Path == "/version" {
		_, _ = io.WriteString(w, "{}")
		return
	}
	if len(parts) < 4 {
		c.discovery(w)
		return
	}
	namespace, plural := "", parts[3]
	if len(parts) == 6 {
		namespace, plural = parts[4], parts[5]
	}
	resource, watch := strings.TrimSuffix(plural+"."+parts[1], "."), req.URL.Query().Get("watch") == "true"
	c.mu.Lock()
	f := c.fault[resource]
	if f.chance < c.random.Float64() || f.listsOnly && watch {
		f = fault{}
	}
	served := !c.hidden[resource] && slices.Contains(c.apis[resource], parts[2])
	denied := c.denied[resource] || c.denied[resource+"/"+namespace]
	c.mu.Unlock()
	if f.cut > 0 {
		w = &shortWriter{ResponseWriter: w, left: f.cut}
	}
	switch {
	case f.hang:
		<-req.Context().Done()
	case f.text != "":
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, f.text)
	case denied:
		refuse(w, http.StatusForbidden, "Forbidden", 0)
	case f.status != 0:
		refuse(w, f.status, http.StatusText(f.status), f.wait)
	case !served:
		refuse(w, http.StatusNotFound, "NotFound", 0)
	case watch:
		c.watch(w, req, resource, parts[1]+"/"+parts[2], namespace, f)
	default:
		c.list(w, req, resource, parts[1]+"/"+parts[2], namespace, f)
	}
}

// shortWriter ends the connection after some bytes.
type shortWriter struct {
	http.ResponseWriter
	left int
}

func (w *shortWriter) Write(p []byte) (int, error) {
	n := min(w.left, len(p))
	_, _ = w.ResponseWriter.Write(p[:n])
	if w.left -= n; w.left == 0 {
		w.Flush()
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

func (w *shortWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func refuse(w http.ResponseWriter, code int, reason string, wait int) {
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(wait))
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status(code, reason))
}

func status(code int, reason string) map[string]any {
	return map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "as the test wants it",
		"metadata": map[string]any{},
	}
}

// discovery answers which resources there are, by group and version.
func (c *cluster) discovery(w http.ResponseWriter) {
	c.mu.Lock()
	groups := map[string]map[string][]any{}
	order := map[string][]string{} // of the versions of a group
	for _, resource := range slices.Sorted(maps.Keys(c.apis)) {
		plural, group, _ := strings.Cut(resource, ".")
		if group == "" || c.hidden[resource] {
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
	case f.text != "":
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, f.text)
	case f.status != 0:
		refuse(w, f.status, http.StatusText(f.status), 0)
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "APIGroupDiscoveryList", "items": items})
	}
}

// selects reports whether a request is for an object.
func selects(o map[string]any, namespace, selector string) bool {
	parsed, err := labels.Parse(selector)
	meta, _ := o["metadata"].(map[string]any)
	set, _ := meta["labels"].(map[string]string)
	return err == nil && meta != nil && (namespace == "" || meta["namespace"] == namespace) && parsed.Matches(labels.Set(set))
}

// typed returns an object with apiVersion and kind, which the items of lists of Kubernetes' own kinds do not have.
func typed(o map[string]any, resource, api string, list bool) map[string]any {
	o = maps.Clone(o)
	if _, group, _ := strings.Cut(resource, "."); !list || strings.Contains(group, "istio.io") || strings.Contains(group, "x-k8s.io") ||
		strings.Contains(group, "gateway.") {
		o["apiVersion"], o["kind"] = strings.TrimPrefix(api, "/"), kindOf[resource]
	}
	return o
}

// list answers with a page, which may be shorter than the client allows. The pages of a list are of one version.
func (c *cluster) list(w http.ResponseWriter, req *http.Request, resource, api, namespace string, f fault) {
	q := req.URL.Query()
	c.mu.Lock()
	limit, _ := strconv.Atoi(q.Get("limit"))
	version, after := max(c.version-f.behind, c.oldest), ""
	if q.Has("continue") {
		v, key, _ := strings.Cut(q.Get("continue"), "|")
		version, _ = strconv.ParseUint(v, 10, 64)
		after = key
	}
	expired := q.Has("continue") && (f.expired || version < c.oldest || version > c.version)
	items, meta := []any{}, map[string]any{"resourceVersion": strconv.FormatUint(version, 10)}
	all := c.at(resource, version)
	limit = min(limit, 1+c.random.IntN(5))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if key <= after || !selects(all[key], namespace, q.Get("labelSelector")) {
			continue
		}
		if len(items) == limit {
			meta["continue"] = fmt.Sprintf("%d|%s", version, after)
			break
		}
		items, after = append(items, typed(all[key], resource, api, true)), key
	}
	c.mu.Unlock()
	if expired {
		refuse(w, http.StatusGone, "Expired", 0)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": strings.TrimPrefix(api, "/"), "kind": kindOf[resource] + "List", "metadata": meta, "items": items,
	})
}

// watch sends what happens after a version, and says once a minute how far it has come.
func (c *cluster) watch(w http.ResponseWriter, req *http.Request, resource, api, namespace string, f fault) {
	q := req.URL.Query()
	sent, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	c.mu.Lock()
	cut, early := c.cut, c.random.IntN(2) == 0
	if f.event == 0 && (sent < c.oldest || f.expired) {
		f.event = http.StatusGone
	}
	c.mu.Unlock()
	if early && f.event == http.StatusGone {
		refuse(w, f.event, "Expired", 0)
		return
	}
	send := func(kind string, o map[string]any) {
		text, _ := json.Marshal(map[string]any{"type": kind, "object": o})
		_, _ = w.Write(append(text, '\n'))
		w.(http.Flusher).Flush()
	}
	w.(http.Flusher).Flush()
	if f.event != 0 {
		send("ERROR", status(f.event, map[int]string{http.StatusGone: "Expired"}[f.event]))
		return
	}
	end, minute := time.After(time.Duration(seconds)*time.Second), time.NewTicker(time.Minute)
	defer minute.Stop()
	for bookmark := false; ; {
		c.mu.Lock()
		changed, until := c.changed, c.version-min(c.fault[resource].behind, c.version)
		var news []change
		for _, ch := range c.log {
			if ch.resource == resource && ch.version > sent && ch.version <= until {
				news = append(news, ch)
			}
		}
		was := make(map[string]map[string]any)
		if len(news) > 0 {
			was = c.at(resource, sent)
		}
		c.mu.Unlock()
		for _, ch := range news {
			before := selects(was[ch.key], namespace, q.Get("labelSelector"))
			now := !ch.gone && selects(ch.object, namespace, q.Get("labelSelector"))
			was[ch.key] = ch.object
			if ch.gone {
				delete(was, ch.key)
			}
			kind := map[[2]bool]string{{false, true}: "ADDED", {true, true}: "MODIFIED", {true, false}: "DELETED"}[[2]bool{before, now}]
			if kind != "" && !f.silent {
				send(kind, typed(ch.object, resource, api, false))
			}
		}
		sent = max(sent, until)
		if bookmark && !f.silent {
			send("BOOKMARK", map[string]any{
				"kind": kindOf[resource], "apiVersion": strings.TrimPrefix(api, "/"),
				"metadata": map[string]any{"resourceVersion": strconv.FormatUint(sent, 10), "creationTimestamp": nil},
			})
		}
		bookmark = false
		select {
		case <-changed:
		case <-minute.C:
			bookmark = true
		case <-cut:
			return
		case <-end:
			return
		case <-req.Context().Done():
			return
		}
	}
}
