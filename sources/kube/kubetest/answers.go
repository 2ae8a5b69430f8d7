package kubetest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Fault is the fault of a resource's answers.
type Fault struct {
	Chance     float64 // of the fault at a request; 0 counts as 1
	Status     int     // answers with it
	Text       string  // an answer with the status that is no JSON of the API
	RetryAfter int     // with a status
	ListsOnly  bool    // watches have no fault
	Truncate   int     // bytes after which the connection ends
	Partial    bool    // the last page of a list breaks off
	Expired    bool    // tokens of pages and versions of watches are too old
	Event      int     // the code of an ERROR event with which a watch begins
	Silent     bool    // a watch has no events
	Hang       bool    // there is no answer
	Behind     int     // it answers for so many versions ago
	Repeats    bool    // a page has its last item twice, and a watch each event
	Disorder   bool    // a watch sends delayed events in another order
	Backwards  bool    // bookmarks are of versions before
	Nameless   bool    // a page has an object without a name, and a watch an event without an object
}

// request is one for objects.
type request struct {
	*http.Request
	values                       url.Values
	resource, version, namespace string
	fault                        Fault
	cut                          <-chan struct{}
	settings                     int
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(response http.ResponseWriter, req *http.Request) {
	r := &request{Request: req, values: req.URL.Query(), resource: Discovery}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	if parts[0] == "api" {
		parts = slices.Insert(parts[1:], 0, "apis", "") // as /apis//v1
	}
	if len(parts) >= 4 {
		r.version, r.resource = parts[2], strings.TrimSuffix(parts[len(parts)-1]+"."+parts[1], ".")
	}
	if len(parts) == 6 {
		r.namespace = parts[4]
	}
	watch := r.values.Get("watch") == "true"
	s.mu.Lock()
	storm, down := s.count(req), s.down || s.piped && req.Host != s.host()
	unauthorized := s.token != "" && req.Header.Get("Authorization") != "Bearer "+s.token
	r.cut, r.settings, r.fault = s.cut, s.settings, s.faults[r.resource]
	if fault, isSet := s.faults[Everything]; isSet && r.resource != Discovery {
		r.fault = fault
	}
	if chance := s.random.Float64(); r.fault.Chance > 0 && r.fault.Chance < chance || r.fault.ListsOnly && watch {
		r.fault = Fault{}
	}
	denied := s.denied[r.resource] || s.denied[r.resource+"/"+r.namespace]
	serves := r.resource == Discovery || req.Method == http.MethodPost ||
		slices.Contains(s.served[r.resource], r.version) && !slices.Contains(s.hidden, r.resource)
	if down || denied || !serves || r.fault != (Fault{}) {
		s.troubles++
	}
	s.mu.Unlock()
	if r.fault.Truncate > 0 {
		response = &shortWriter{response, r.fault.Truncate}
	}
	switch fault := r.fault; {
	case storm || fault.Hang:
		<-req.Context().Done()
	case unauthorized:
		fail(response, http.StatusUnauthorized, "Unauthorized", 0)
	case down:
		panic(http.ErrAbortHandler)
	case fault.Text != "":
		response.WriteHeader(fault.Status)
		_, _ = io.WriteString(response, fault.Text)
	case denied:
		fail(response, http.StatusForbidden, "Forbidden", 0)
	case fault.Status != 0:
		fail(response, fault.Status, http.StatusText(fault.Status), fault.RetryAfter)
	case !serves:
		fail(response, http.StatusNotFound, "NotFound", 0)
	case req.Method == http.MethodPost:
		s.review(response, req)
	case r.resource == Discovery:
		s.discover(response)
	case watch:
		s.watch(response, r)
	default:
		s.list(response, r)
	}
}

// shortWriter ends the connection after some bytes.
type shortWriter struct {
	http.ResponseWriter
	remaining int
}

// Write implements io.Writer.
func (w *shortWriter) Write(text []byte) (int, error) {
	n := min(w.remaining, len(text))
	_, _ = w.ResponseWriter.Write(text[:n])
	if w.remaining -= n; w.remaining == 0 {
		w.Flush()
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

// Flush implements http.Flusher.
func (w *shortWriter) Flush() { flush(w.ResponseWriter) }

func flush(response http.ResponseWriter) { response.(http.Flusher).Flush() } //nolint:forcetypeassert // of net/http

// review answers an access review.
func (s *Server) review(response http.ResponseWriter, req *http.Request) {
	var review struct {
		Spec struct {
			ResourceAttributes struct{ Group, Resource, Namespace, Verb string }
		}
	}
	_ = json.NewDecoder(req.Body).Decode(&review)
	attributes := review.Spec.ResourceAttributes
	resource := strings.TrimSuffix(attributes.Resource+"."+attributes.Group, ".")
	denied := attributes.Verb == "" || s.Denies(resource) || s.Denies(resource+"/"+attributes.Namespace)
	reply(response, Object{"status": Object{"allowed": !denied}})
}

// discover answers which resources the server has, by group and version.
func (s *Server) discover(response http.ResponseWriter) {
	groups, items := make(map[string][]any), []any{}
	s.mu.Lock()
	for _, resource := range slices.Sorted(maps.Keys(s.served)) {
		plural, group, _ := strings.Cut(resource, ".")
		if slices.Contains(s.hidden, resource) || slices.Contains(s.unlisted, resource) {
			s.troubles++
			continue
		}
		for _, version := range s.served[resource] {
			groups[group] = append(groups[group], Object{"version": version, "resources": []any{Object{"resource": plural}}})
		}
	}
	s.mu.Unlock()
	delete(groups, "") // Kubernetes' own
	for group, versions := range groups {
		items = append(items, Object{"metadata": Object{"name": group}, "versions": versions})
	}
	reply(response, Object{"kind": "APIGroupDiscoveryList", "items": items})
}

// Selects reports whether a list or watch has an object.
func Selects(object Object, namespace, selector string) bool {
	parsed, err := labels.Parse(selector)
	meta, set := metaOf(object), labels.Set{}
	texts, _ := meta["labels"].(Object)
	for label, text := range texts {
		set[label] = fmt.Sprint(text)
	}
	return err == nil && meta != nil && (namespace == "" || meta["namespace"] == namespace) && parsed.Matches(set)
}

func (r *request) selects(object Object) bool {
	return Selects(object, r.namespace, r.values.Get("labelSelector"))
}

// typed returns an object with apiVersion and kind.
func typed(object Object, resource, version string) Object {
	_, group, _ := strings.Cut(resource, ".")
	object = maps.Clone(object)
	object["apiVersion"], object["kind"] = strings.TrimPrefix(group+"/"+version, "/"), KindOf(resource)
	return object
}

// list answers with a page, which may be shorter than the client allows. The pages of a list are of one version. Items
// of Kubernetes' own kinds have no kind.
func (s *Server) list(response http.ResponseWriter, r *request) {
	s.mu.Lock()
	limit, _ := strconv.Atoi(r.values.Get("limit"))
	limit = min(limit, 1+s.random.IntN(5))
	version, last, isNext := max(s.version-r.fault.Behind, s.oldest), "", r.values.Has("continue")
	if isNext {
		number, key, _ := strings.Cut(r.values.Get("continue"), "|")
		version, _ = strconv.Atoi(number)
		last = key
	}
	expired := isNext && (r.fault.Expired || version < s.oldest || version > s.version)
	items, meta := []any{}, Object{"resourceVersion": strconv.Itoa(version)}
	objects := s.at(r.resource, version)
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if key <= last || !r.selects(objects[key]) {
			continue
		}
		if len(items) == limit {
			meta["continue"] = fmt.Sprintf("%d|%s", version, last)
			break
		}
		item := objects[key]
		if IsCRD(r.resource) {
			item = typed(item, r.resource, r.version)
		}
		items, last = append(items, item), key
	}
	outdated := r.settings != s.settings
	if outdated {
		s.troubles++
	}
	s.mu.Unlock()
	switch {
	case outdated:
		panic(http.ErrAbortHandler)
	case expired:
		fail(response, http.StatusGone, "Expired", 0)
		return
	}
	if r.fault.Repeats && len(items) > 0 {
		items = append(items, items[len(items)-1])
	}
	if r.fault.Nameless {
		items = append(items, Object{"metadata": Object{"namespace": "shop", "resourceVersion": "5"}})
	}
	page := typed(Object{"metadata": meta, "items": items}, r.resource, r.version)
	page["kind"] = KindOf(r.resource) + "List"
	text, _ := json.Marshal(page)
	if r.fault.Partial && meta["continue"] == nil {
		end := len(text) - 1 // all items, but not the end
		if version%2 == 0 {
			end /= 2
		}
		response = &shortWriter{response, end}
	}
	_, _ = response.Write(text)
}

// watch sends the changes after a version, and bookmarks.
func (s *Server) watch(response http.ResponseWriter, r *request) {
	sent, _ := strconv.Atoi(r.values.Get("resourceVersion"))
	seconds, _ := strconv.Atoi(r.values.Get("timeoutSeconds"))
	s.mu.Lock()
	early := s.random.IntN(2) == 0
	if r.fault.Event == 0 && (sent < s.oldest || r.fault.Expired) {
		r.fault.Event = http.StatusGone
	}
	s.mu.Unlock()
	if early && r.fault.Event == http.StatusGone {
		fail(response, http.StatusGone, "Expired", 0)
		return
	}
	send := func(kind string, object Object) {
		text, _ := json.Marshal(Object{"type": kind, "object": object})
		_, _ = response.Write(append(text, '\n'))
		flush(response)
	}
	if flush(response); r.fault.Event != 0 {
		send("ERROR", status(r.fault.Event, map[int]string{http.StatusGone: "Expired"}[r.fault.Event]))
		return
	}
	if r.fault.Nameless {
		send("MODIFIED", Object{})
	}
	end, minute := time.After(time.Duration(seconds)*time.Second), time.NewTicker(time.Minute)
	defer minute.Stop()
	for bookmark := false; ; {
		events, deadline, changed, ended := s.eventsAfter(r, sent)
		if ended {
			return // events after the cut are sent later
		}
		for _, event := range events {
			send(event.kind, event.object)
		}
		bookmark = bookmark || !s.piped && deadline > sent
		if sent = max(sent, deadline); bookmark && !r.fault.Silent {
			if deadline = sent; r.fault.Backwards {
				deadline -= 5
			}
			send("BOOKMARK", typed(Object{"metadata": Object{
				"resourceVersion": strconv.Itoa(deadline), "creationTimestamp": nil,
			}}, r.resource, r.version))
		}
		bookmark = false
		select {
		case <-changed:
		case <-minute.C:
			bookmark = true
		case <-r.cut:
			return
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// event is one of a watch.
type event struct {
	kind   string
	object Object
}

// eventsAfter returns the events of a watch after a version, up to a deadline, and the channel of the next change.
func (s *Server) eventsAfter(r *request, sent int) (events []event, deadline int, changed <-chan struct{}, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline = s.version - max(s.faults[r.resource].Behind, s.faults[Everything].Behind)
	changes := slices.DeleteFunc(slices.Clone(s.log), func(c change) bool {
		return c.resource != r.resource || c.version <= sent || c.version > deadline || r.fault.Silent
	})
	if r.fault.Disorder {
		slices.Reverse(changes)
	}
	previous := s.at(r.resource, sent)
	for _, change := range changes {
		before, now := r.selects(previous[change.key]), !change.deleted && r.selects(change.object)
		if previous[change.key] = change.object; change.deleted {
			delete(previous, change.key)
		}
		kind := "MODIFIED"
		switch {
		case !before && !now:
			continue
		case !before:
			kind = "ADDED"
		case !now:
			kind = "DELETED"
		}
		event := event{kind, typed(change.object, r.resource, r.version)}
		if events = append(events, event); r.fault.Repeats {
			events = append(events, event)
		}
	}
	return events, deadline, s.changed, r.cut != s.cut
}
