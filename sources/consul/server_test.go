package consul

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// server answers as Consul does: indexes, blocking queries, headers, and the ways in which it refuses.
type server struct {
	http *httptest.Server

	mu       sync.Mutex
	index    uint64
	services map[string]*entry
	changed  chan struct{} // closed at each change
	trouble  misbehaviour
	gone     map[string]uint64 // index at which a service went
	requests []string          // path and query
	token    string            // who does not send it sees nothing, and is not told so; empty without ACLs
	refused  []string          // services that cannot be read
	proxied  bool              // something in front of it lets no POST through
	late     bool              // it has heard nothing of its leader for a minute; only the leader can do better
}

type entry struct {
	instances []*api.ServiceEntry
	index     uint64
}

// misbehaviour is how the server misbehaves.
type misbehaviour string

const (
	fine     misbehaviour = ""
	noLeader misbehaviour = "500 No cluster leader"
	noToken  misbehaviour = "403 ACL not found"
	// hidden is what a token that lost its rights sees: nothing. Plain answers say so, those of the stream do not.
	hidden misbehaviour = "hidden"
	busy   misbehaviour = "429"
)

func newServer(t *testing.T) *server {
	s := &server{index: 10, services: map[string]*entry{}, gone: map[string]uint64{}, changed: make(chan struct{})}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		if t.Failed() {
			asked := s.asked()
			t.Log("asked:\n" + strings.Join(asked[:min(60, len(asked))], "\n"))
		}
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

func (s *server) address() string { return strings.TrimPrefix(s.http.URL, "http://") }

// change makes a change at a new index.
func (s *server) change(f func(index uint64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index++
	f(s.index)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *server) put(name string, instances ...*api.ServiceEntry) {
	s.change(func(index uint64) {
		delete(s.gone, name)
		s.services[name] = &entry{instances, index}
	})
}

func (s *server) remove(name string) {
	s.change(func(index uint64) {
		delete(s.services, name)
		s.gone[name] = index
	})
}

// refuse makes it refuse to answer about services, as it does if their names cannot be expressed.
func (s *server) refuse(names ...string) { s.change(func(uint64) { s.refused = names }) }

func (s *server) misbehave(how misbehaviour) { s.change(func(uint64) { s.trouble = how }) }

// wipe makes the server one that was started anew, with nothing.
func (s *server) wipe() {
	s.change(func(uint64) {
		s.index = 3
		clear(s.services)
		clear(s.gone)
	})
	s.http.CloseClientConnections()
}

// asked returns the requests whose path and query contain all of parts.
func (s *server) asked(parts ...string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
next:
	for _, r := range s.requests {
		for _, p := range parts {
			if !strings.Contains(r, p) {
				continue next
			}
		}
		all = append(all, r)
	}
	return all
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	index, _ := strconv.ParseUint(q.Get("index"), 10, 64)
	wait, _ := time.ParseDuration(q.Get("wait"))
	deadline := time.After(wait)
	s.mu.Lock()
	s.requests = append(s.requests, r.URL.Path+"?"+r.URL.RawQuery)
	s.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/v1/acl/") || strings.HasPrefix(r.URL.Path, "/v1/internal/acl/") {
		s.acl(w, r)
		return
	}
	for {
		s.mu.Lock()
		stranger := s.token != "" && r.Header.Get("X-Consul-Token") != s.token
		how, changed := s.trouble, s.changed
		body, at := s.answer(r.URL.Path)
		refused, late := s.refused, s.late
		s.mu.Unlock()
		if stranger && how == fine {
			how = hidden
		}
		switch {
		case slices.Contains(refused, strings.TrimPrefix(r.URL.Path, "/v1/health/service/")):
			if strings.Contains(r.URL.Path, "//") || strings.HasSuffix(r.URL.Path, ".") {
				http.Redirect(w, r, "/ui/", http.StatusMovedPermanently)
			} else {
				http.Error(w, "Bad request: Valid characters are required in the path", http.StatusBadRequest)
			}
			return
		case how == busy:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Your IP is issuing too many concurrent connections, please rate limit your calls", http.StatusTooManyRequests)
			return
		case how != fine && how != hidden:
			code, text, _ := strings.Cut(string(how), " ")
			n, _ := strconv.Atoi(code)
			http.Error(w, text, n)
			return
		case how == hidden:
			body, at = json.RawMessage("[]"), max(at, 1)
			if strings.HasSuffix(r.URL.Path, "/services") {
				body = json.RawMessage("{}")
			}
		}
		if index == 0 || at > index || how == hidden && index > 0 {
			if how == hidden && index == 0 && !stranger {
				w.Header().Set("X-Consul-Results-Filtered-By-ACLs", "true")
			}
			w.Header().Set("X-Consul-Index", fmt.Sprint(at))
			w.Header().Set("X-Consul-LastContact", "0")
			if q.Has("stale") && late {
				w.Header().Set("X-Consul-LastContact", "60000")
			}
			w.Header().Set("X-Consul-KnownLeader", fmt.Sprint(index == 0))
			_, _ = w.Write(body)
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-deadline:
			index = 0
		}
	}
}

// acl answers questions about rights, all of them of strangers.
func (s *server) acl(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var questions []struct{ Resource, Access, Segment string }
	switch {
	case r.Header.Get("X-Consul-Token") != "":
		http.Error(w, "a token was sent", http.StatusTeapot)
	case s.proxied && r.Method != http.MethodGet:
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
	case s.token == "":
		http.Error(w, "ACL support disabled", http.StatusUnauthorized)
	case r.URL.Path == "/v1/acl/token/self":
		http.Error(w, "Permission denied", http.StatusForbidden)
	case json.NewDecoder(r.Body).Decode(&questions) != nil || len(questions) > 64:
		http.Error(w, "Refusing to process more than 64 authorizations at once", http.StatusBadRequest)
	default:
		type answer struct{ Allow bool }
		_, _ = w.Write(marshal(make([]answer, len(questions))))
	}
}

// answer is what there is at path. The caller holds mu.
func (s *server) answer(path string) (json.RawMessage, uint64) {
	names, all := map[string][]string{"consul": {}}, uint64(3)
	for name, e := range s.services {
		names[name] = []string{}
		for _, i := range e.instances {
			names[name] = append(names[name], i.Service.Tags...)
		}
		all = max(all, e.index)
	}
	for _, i := range s.gone {
		all = max(all, i)
	}
	all = min(all, s.index)
	name, one := strings.CutPrefix(path, "/v1/health/service/")
	if !one {
		return marshal(names), all
	}
	if e := s.services[name]; e != nil {
		return marshal(e.instances), min(e.index, s.index)
	}
	return json.RawMessage("[]"), all // of what it does not know it says the index of all services
}

func marshal(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// instance is a healthy instance of a service.
func instance(service, id, address string, port int) *api.ServiceEntry {
	return &api.ServiceEntry{
		Node:    &api.Node{ID: "0", Node: "n1", Address: "10.0.0.1", Datacenter: "dc1"},
		Service: &api.AgentService{ID: id, Service: service, Address: address, Port: port, Weights: api.AgentWeights{Passing: 1, Warning: 1}},
		Checks:  api.HealthChecks{{Node: "n1", CheckID: "serfHealth", Status: api.HealthPassing}},
	}
}
