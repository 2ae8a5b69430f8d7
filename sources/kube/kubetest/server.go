// Package kubetest is an API server for tests, with controlled objects and faults.
package kubetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Object is one in the store.
type Object = map[string]any

// change is an entry of the history that watches receive.
type change struct {
	version  int
	resource string
	kind     string // ADDED, MODIFIED, DELETED
	object   Object
	before   Object
}

// Server is an API server. Its methods may be called at any time.
type Server struct {
	http *httptest.Server

	mu       sync.Mutex
	version  int
	oldest   int               // changes at or before it are compacted
	served   map[string]string // resource to apiVersion/Kind
	objects  map[string]map[string]Object
	history  []change
	changed  chan struct{}
	cut      chan struct{} // closed to end all watches
	faults   map[string]Fault
	unlisted string
	token    string
	down     bool
	requests []string
}

// Fault is the fault of a resource's answers.
type Fault struct {
	Status      int           // answers with it
	RetryAfter  int           // with a status
	Partial     bool          // a list ends in the middle of its second page, or of its first if there is one
	NoContinue  bool          // the token of the second page is expired
	GoneEvent   bool          // a watch begins with an ERROR event of 410
	Silent      bool          // a watch has no events
	Behind      int           // a list is of so many changes ago
	NotTheWatch bool          // the status is for lists alone
	Delay       time.Duration // of an answer
}

// Start starts a server that has resources, such as "virtualservices.networking.istio.io":
// "networking.istio.io/v1/VirtualService".
func Start(t testing.TB, served map[string]string) *Server { return start(t, served, false) }

// StartTLS starts a server with a self-signed certificate: clients send no token without TLS.
func StartTLS(t testing.TB, served map[string]string) *Server { return start(t, served, true) }

func start(t testing.TB, served map[string]string, secure bool) *Server {
	server := &Server{
		version: 100, served: maps.Clone(served), objects: make(map[string]map[string]Object), changed: make(chan struct{}),
		cut: make(chan struct{}), faults: make(map[string]Fault),
	}
	server.http = httptest.NewUnstartedServer(server)
	if secure {
		server.http.StartTLS()
	} else {
		server.http.Start()
	}
	t.Cleanup(func() {
		server.Cut()
		server.http.CloseClientConnections()
		server.http.Close()
	})
	return server
}

// Host is host:port of the server.
func (s *Server) Host() string { return s.http.Listener.Addr().String() }

// Put makes an object or changes it.
func (s *Server) Put(resource, namespace, name string, metadata, content map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	api := strings.Split(s.served[resource], "/")
	kind := api[len(api)-1]
	s.version++
	meta := map[string]any{"name": name, "namespace": namespace, "resourceVersion": strconv.Itoa(s.version), "uid": name}
	maps.Copy(meta, metadata)
	object := Object{"apiVersion": strings.Join(api[:len(api)-1], "/"), "kind": kind, "metadata": meta}
	maps.Copy(object, content)
	key, event := namespace+"/"+name, "ADDED"
	before := s.objects[resource][key]
	if before != nil {
		event = "MODIFIED"
	} else if s.objects[resource] == nil {
		s.objects[resource] = make(map[string]Object)
	}
	s.objects[resource][key] = object
	s.note(change{s.version, resource, event, object, before})
}

// Delete removes an object, if it is there.
func (s *Server) Delete(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := namespace + "/" + name
	object := s.objects[resource][key]
	if object == nil {
		return
	}
	s.version++
	delete(s.objects[resource], key)
	deleted := maps.Clone(object)
	meta := maps.Clone(deleted["metadata"].(map[string]any))
	meta["resourceVersion"] = strconv.Itoa(s.version)
	deleted["metadata"] = meta
	s.note(change{s.version, resource, "DELETED", deleted, object})
}

// note adds to the history. The caller holds mu.
func (s *Server) note(c change) {
	s.history = append(s.history, c)
	close(s.changed)
	s.changed = make(chan struct{})
}

// Keys returns namespace/name of the objects of a resource.
func (s *Server) Keys(resource string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects[resource]))
}

// Version returns the newest resource version.
func (s *Server) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Serve makes the server have a resource, as a CRD does; an empty api takes it away, with its objects.
func (s *Server) Serve(resource, api string) {
	s.mu.Lock()
	s.served[resource] = api
	if api == "" {
		delete(s.served, resource)
		delete(s.objects, resource)
	}
	s.mu.Unlock()
	s.Cut()
}

// Require has the server refuse whoever has another token. Watches end.
func (s *Server) Require(token string) {
	s.mu.Lock()
	s.token = token
	s.mu.Unlock()
	s.Cut()
}

// Unlist hides a resource from discovery; it is still served.
func (s *Server) Unlist(resource string) {
	s.mu.Lock()
	s.unlisted = resource
	s.mu.Unlock()
}

// Looks counts the discovery requests since Requests was called.
func (s *Server) Looks() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if r == "/apis" {
			n++
		}
	}
	return n
}

// Fault sets the fault of a resource; the zero Fault is no fault. Watches end.
func (s *Server) Fault(resource string, f Fault) {
	s.Quietly(resource, f)
	s.Cut()
}

// Quietly sets it for requests from now on: watches stay as they are.
func (s *Server) Quietly(resource string, f Fault) {
	s.mu.Lock()
	s.faults[resource] = f
	s.mu.Unlock()
}

// Cut ends all watches.
func (s *Server) Cut() {
	s.mu.Lock()
	close(s.cut)
	s.cut = make(chan struct{})
	s.mu.Unlock()
}

// Down makes the server cut each connection, or serve again.
func (s *Server) Down(down bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
	s.Cut()
	if down {
		s.http.CloseClientConnections()
	}
}

// Compact forgets the history.
func (s *Server) Compact() {
	s.mu.Lock()
	s.oldest, s.history = s.version, nil
	s.mu.Unlock()
}

// Snapshot returns the state for Restore.
func (s *Server) Snapshot() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	saved := snapshot{s.version, make(map[string]map[string]Object)}
	for r, objects := range s.objects {
		saved.objects[r] = maps.Clone(objects)
	}
	return saved
}

type snapshot struct {
	version int
	objects map[string]map[string]Object
}

// Restore goes back in time, as a restore of etcd does.
func (s *Server) Restore(saved any) {
	earlier := saved.(snapshot) //nolint:forcetypeassert // of Snapshot
	s.mu.Lock()
	s.version, s.history, s.oldest = earlier.version, nil, 0
	s.objects = make(map[string]map[string]Object)
	for r, objects := range earlier.objects {
		s.objects[r] = maps.Clone(objects)
	}
	s.mu.Unlock()
	s.Cut()
}

// Renumber goes to a resource version, as a cluster does that is restored elsewhere: it makes all objects again but for
// some keys.
func (s *Server) Renumber(version int, omitted ...string) {
	s.mu.Lock()
	s.version, s.history = version, nil
	for _, objects := range s.objects {
		for key, object := range objects {
			if slices.Contains(omitted, key) {
				delete(objects, key)
				continue
			}
			s.version++
			object, meta := maps.Clone(object), maps.Clone(object["metadata"].(map[string]any))
			meta["resourceVersion"] = strconv.Itoa(s.version)
			object["metadata"], objects[key] = meta, object
		}
	}
	s.oldest = s.version
	s.mu.Unlock()
	s.Cut()
}

// Requests returns the requests since the last call.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, request.URL.RequestURI())
	down, denied := s.down, s.token != "" && request.Header.Get("Authorization") != "Bearer "+s.token
	s.mu.Unlock()
	if denied {
		fail(response, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	}
	if down {
		panic(http.ErrAbortHandler)
	}
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch {
	case request.URL.Path == "/version":
		reply(response, map[string]any{})
		return
	case parts[0] == "api":
		parts = append([]string{"", ""}, parts[1:]...) // as /apis//v1
	case request.Method == http.MethodPost:
		s.review(response, request)
		return
	case len(parts) == 1:
		s.discovery(response)
		return
	}
	namespace, plural := "", parts[len(parts)-1]
	if len(parts) == 6 {
		namespace = parts[4]
	}
	resource := strings.TrimSuffix(plural+"."+parts[1], ".")
	s.mu.Lock()
	api, fault, cut := s.served[resource], s.faults[resource], s.cut
	s.mu.Unlock()
	watch := request.URL.Query().Get("watch") != ""
	time.Sleep(fault.Delay)
	switch {
	case fault.Status != 0 && !(fault.NotTheWatch && watch):
		if fault.RetryAfter > 0 {
			response.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
		}
		fail(response, fault.Status, http.StatusText(fault.Status), "as the test wants it")
	case !strings.HasPrefix(api, strings.Trim(parts[1]+"/"+parts[2], "/")+"/"):
		fail(response, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	case watch:
		s.watch(response, request, resource, namespace, fault, cut)
	default:
		s.list(response, request, resource, namespace, api, fault)
	}
}

// review answers an access review: the right is missing for a resource with a fault of status 403.
func (s *Server) review(response http.ResponseWriter, request *http.Request) {
	var review struct {
		Spec struct {
			ResourceAttributes struct{ Group, Resource, Namespace, Verb string }
		}
	}
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
		fail(response, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	a := review.Spec.ResourceAttributes
	s.mu.Lock()
	denied := s.faults[strings.TrimSuffix(a.Resource+"."+a.Group, ".")].Status == http.StatusForbidden
	s.mu.Unlock()
	reply(response, map[string]any{"status": map[string]any{"allowed": !denied}})
}

// discovery answers which resources there are.
func (s *Server) discovery(response http.ResponseWriter) {
	versions := make(map[string][]any) // by group
	s.mu.Lock()
	for resource, api := range s.served {
		plural, group, _ := strings.Cut(resource, ".")
		if parts := strings.Split(api, "/"); resource != s.unlisted && group != "" {
			resources := []any{map[string]any{"resource": plural}}
			versions[group] = append(versions[group], map[string]any{"version": parts[1], "resources": resources})
		}
	}
	s.mu.Unlock()
	groups := []any{}
	for group, groupVersions := range versions {
		groups = append(groups, map[string]any{"metadata": map[string]any{"name": group}, "versions": groupVersions})
	}
	reply(response, map[string]any{"kind": "APIGroupDiscoveryList", "items": groups})
}

// selects reports whether a list or watch has an object.
func selects(object Object, namespace, selector string) bool {
	if object == nil {
		return false
	}
	meta := object["metadata"].(map[string]any) //nolint:forcetypeassert // of Put
	set, _ := meta["labels"].(map[string]string)
	parsed, err := labels.Parse(selector)
	return err == nil && (namespace == "" || meta["namespace"] == namespace) && parsed.Matches(labels.Set(set))
}

func (s *Server) list(response http.ResponseWriter, req *http.Request, resource, namespace, api string, fault Fault) {
	values := req.URL.Query()
	from, version, token := 0, 0, values.Get("continue")
	s.mu.Lock()
	now := maps.Clone(s.objects[resource])
	version = s.version
	changed := s.faults[resource] != fault || s.served[resource] != api
	wanted := version - fault.Behind
	if token != "" {
		_, _ = fmt.Sscanf(token, "%d-%d", &wanted, &from)
	}
	for i := len(s.history) - 1; i >= 0 && s.history[i].version > wanted; i-- { // back to the version of the first page
		if change := s.history[i]; change.resource == resource {
			meta := change.object["metadata"].(map[string]any) //nolint:forcetypeassert // of Put
			key := fmt.Sprint(meta["namespace"], "/", meta["name"])
			if delete(now, key); change.before != nil {
				now[key] = change.before
			}
		}
	}
	expired := token != "" && (fault.NoContinue || wanted < s.oldest || wanted > s.version)
	s.mu.Unlock()
	if changed { // a change during the request makes this answer outdated
		panic(http.ErrAbortHandler)
	}
	if expired {
		fail(response, http.StatusGone, "Expired", "the provided continue parameter is too old")
		return
	}
	var items []any
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if selects(now[key], namespace, values.Get("labelSelector")) {
			items = append(items, now[key])
		}
	}
	meta := map[string]any{"resourceVersion": strconv.Itoa(wanted)}
	items = items[min(from, len(items)):]
	if limit, _ := strconv.Atoi(values.Get("limit")); limit > 0 && len(items) > limit {
		items = items[:limit]
		meta["continue"] = fmt.Sprintf("%d-%d", wanted, from+limit)
	}
	if items == nil {
		items = []any{}
	}
	text, _ := json.Marshal(map[string]any{
		"kind": api[strings.LastIndexByte(api, '/')+1:] + "List", "metadata": meta,
		"items": items,
	})
	if fault.Partial && (from > 0 || meta["continue"] == nil) {
		end := len(text) - 1 // all items, but not the end
		if wanted%2 == 0 {
			end /= 2
		}
		_, _ = response.Write(text[:end])
		panic(http.ErrAbortHandler)
	}
	_, _ = response.Write(text)
}

func (s *Server) watch(response http.ResponseWriter, request *http.Request, resource, namespace string, fault Fault,
	cut <-chan struct{},
) {
	values := request.URL.Query()
	after, _ := strconv.Atoi(values.Get("resourceVersion"))
	seconds, _ := strconv.Atoi(values.Get("timeoutSeconds"))
	s.mu.Lock()
	expired := after < s.oldest
	s.mu.Unlock()
	if expired && !fault.GoneEvent {
		fail(response, http.StatusGone, "Expired", "too old resource version")
		return
	}
	out := json.NewEncoder(response)
	send := func(event string, object Object) {
		_ = out.Encode(map[string]any{"type": event, "object": object})
		response.(http.Flusher).Flush() //nolint:forcetypeassert // of net/http
	}
	response.(http.Flusher).Flush() //nolint:forcetypeassert // of net/http
	if fault.GoneEvent {
		send("ERROR", Object{"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})
		return
	}
	end := time.After(time.Duration(seconds) * time.Second)
	selector := values.Get("labelSelector")
	for sent := after; ; {
		s.mu.Lock()
		var news []change
		for _, c := range s.history {
			if c.version > sent {
				news = append(news, c)
			}
		}
		changed, ended := s.changed, sent < s.oldest || cut != s.cut
		s.mu.Unlock()
		if ended {
			return // the unsent changes were compacted, or came after the cut
		}
		for _, change := range news {
			if sent = change.version; fault.Silent || change.resource != resource {
				continue
			}
			selected, selectedBefore := change.kind != "DELETED" && selects(change.object, namespace, selector),
				selects(change.before, namespace, selector)
			switch {
			case selected && selectedBefore:
				send("MODIFIED", change.object)
			case selected:
				send("ADDED", change.object)
			case selectedBefore:
				deleted := maps.Clone(change.before)
				meta := maps.Clone(deleted["metadata"].(map[string]any)) //nolint:forcetypeassert // of Put
				meta["resourceVersion"] = strconv.Itoa(change.version)
				deleted["metadata"] = meta
				send("DELETED", deleted)
			}
		}
		if len(news) > 0 && !fault.Silent {
			send("BOOKMARK", Object{"metadata": map[string]any{"resourceVersion": strconv.Itoa(sent)}})
		}
		select {
		case <-changed:
		case <-cut:
			return
		case <-end:
			return
		case <-request.Context().Done():
			return
		}
	}
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	w.WriteHeader(code)
	reply(w, map[string]any{"kind": "Status", "code": code, "reason": reason, "message": message})
}

func reply(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
