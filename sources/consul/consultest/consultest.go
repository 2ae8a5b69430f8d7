// Package consultest is a Consul for tests, with the part of its HTTP API that sources need: blocking queries, indexes,
// headers, unchanging keys, and its refusals.
package consultest

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

	"github.com/hashicorp/consul/api"
)

// Server answers as Consul does. Its methods are safe for concurrent use; its fields are set before it is used, or by
// Change.
type Server struct {
	HTTP *httptest.Server

	Index   uint64
	Token   string // requests without it see no service, without a notice; empty without ACLs
	Proxied bool   // something in front of it lets no POST through
	Late    bool   // it has been without a leader for a minute; only the leader has newer answers

	mu       sync.Mutex
	services map[string]*entry
	keys     map[string]string
	changed  chan struct{} // closed at each change
	trouble  Misbehaviour
	removed  map[string]uint64 // index at which a service went
	requests []string          // path and query
	refused  []string          // services that cannot be read
}

type entry struct {
	instances []*api.ServiceEntry
	index     uint64
}

// Misbehaviour is how the server misbehaves.
type Misbehaviour string

// The ways.
const (
	Fine     Misbehaviour = ""
	NoLeader Misbehaviour = "500 No cluster leader"
	NoToken  Misbehaviour = "403 ACL not found" //nolint:gosec // no token
	// Hidden is the view of a token that lost its rights: no service. Plain answers are marked as filtered, those of the
	// stream are not.
	Hidden Misbehaviour = "hidden"
	Busy   Misbehaviour = "429"
)

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	server := &Server{
		Index: 10, services: map[string]*entry{}, keys: map[string]string{}, removed: map[string]uint64{},
		changed: make(chan struct{}),
	}
	server.HTTP = httptest.NewServer(server)
	t.Cleanup(func() {
		if t.Failed() {
			requests := server.Asked()
			t.Log("asked:\n" + strings.Join(requests[:min(60, len(requests))], "\n"))
		}
		server.HTTP.CloseClientConnections()
		server.HTTP.Close()
	})
	return server
}

// Address is its host and port.
func (s *Server) Address() string { return strings.TrimPrefix(s.HTTP.URL, "http://") }

// Change makes a change at a new index.
func (s *Server) Change(change func(index uint64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Index++
	change(s.Index)
	close(s.changed)
	s.changed = make(chan struct{})
}

// Put makes instances all that there are of a service.
func (s *Server) Put(name string, instances ...*api.ServiceEntry) {
	s.Change(func(index uint64) {
		delete(s.removed, name)
		s.services[name] = &entry{instances, index}
	})
}

// Register makes instances with IDs all that there are of a service: 10.0.0.ID:80.
func (s *Server) Register(name string, ids ...string) {
	instances := make([]*api.ServiceEntry, len(ids))
	for i, id := range ids {
		instances[i] = Instance(name, id, "10.0.0."+id, 80)
	}
	s.Put(name, instances...)
}

// Remove removes a service.
func (s *Server) Remove(name string) {
	s.Change(func(index uint64) {
		delete(s.services, name)
		s.removed[name] = index
	})
}

// Refuse makes it refuse to answer about services, as it does if their names cannot be expressed.
func (s *Server) Refuse(names ...string) { s.Change(func(uint64) { s.refused = names }) }

// Misbehave makes it answer all like this.
func (s *Server) Misbehave(how Misbehaviour) { s.Change(func(uint64) { s.trouble = how }) }

// Wipe restarts the server without its data, except for the services that have been registered again.
func (s *Server) Wipe(but ...string) { s.WipeTo(3, but...) }

// WipeTo is Wipe with the index that the server has then.
func (s *Server) WipeTo(index uint64, but ...string) {
	s.Change(func(uint64) {
		s.Index = index
		maps.DeleteFunc(s.services, func(name string, _ *entry) bool { return !slices.Contains(but, name) })
		for _, e := range s.services {
			e.index = s.Index
		}
		clear(s.removed)
	})
	s.HTTP.CloseClientConnections()
}

// Asked returns the requests that contain each of parts in their path and query.
func (s *Server) Asked(parts ...string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var matching []string
next:
	for _, request := range s.requests {
		for _, p := range parts {
			if !strings.Contains(request, p) {
				continue next
			}
		}
		matching = append(matching, request)
	}
	return matching
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	values := request.URL.Query()
	index, _ := strconv.ParseUint(values.Get("index"), 10, 64)
	wait, _ := time.ParseDuration(values.Get("wait"))
	deadline := time.After(wait)
	s.mu.Lock()
	s.requests = append(s.requests, request.URL.Path+"?"+request.URL.RawQuery)
	s.mu.Unlock()
	if key, ok := strings.CutPrefix(request.URL.Path, "/v1/kv/"); ok {
		s.answerKeys(response, key, values.Has("recurse"))
		return
	}
	if strings.HasPrefix(request.URL.Path, "/v1/acl/") || strings.HasPrefix(request.URL.Path, "/v1/internal/acl/") {
		s.acl(response, request)
		return
	}
	for {
		s.mu.Lock()
		stranger := s.Token != "" && request.Header.Get("X-Consul-Token") != s.Token
		misbehaviour, changed := s.trouble, s.changed
		body, answerIndex := s.answer(request.URL.Path)
		refused, late := s.refused, s.Late
		s.mu.Unlock()
		if stranger && misbehaviour == Fine {
			misbehaviour = Hidden
		}
		switch {
		case slices.Contains(refused, strings.TrimPrefix(request.URL.Path, "/v1/health/service/")):
			if strings.Contains(request.URL.Path, "//") || strings.HasSuffix(request.URL.Path, ".") {
				http.Redirect(response, request, "/ui/", http.StatusMovedPermanently)
			} else {
				http.Error(response, "Bad request: Valid characters are required in the path", http.StatusBadRequest)
			}
			return
		case misbehaviour == Busy:
			response.Header().Set("Retry-After", "1")
			http.Error(response, "Your IP is issuing too many concurrent connections, please rate limit your calls",
				http.StatusTooManyRequests)
			return
		case misbehaviour != Fine && misbehaviour != Hidden:
			code, text, _ := strings.Cut(string(misbehaviour), " ")
			n, _ := strconv.Atoi(code)
			http.Error(response, text, n)
			return
		case misbehaviour == Hidden:
			body, answerIndex = json.RawMessage("[]"), max(answerIndex, 1)
			if strings.HasSuffix(request.URL.Path, "/services") {
				body = json.RawMessage("{}")
			}
		}
		if index == 0 || answerIndex > index || misbehaviour == Hidden && index > 0 {
			if misbehaviour == Hidden && index == 0 && !stranger {
				response.Header().Set("X-Consul-Results-Filtered-By-ACLs", "true")
			}
			response.Header().Set("X-Consul-Index", fmt.Sprint(answerIndex))
			response.Header().Set("X-Consul-LastContact", "0")
			if values.Has("stale") && late {
				response.Header().Set("X-Consul-LastContact", "60000")
			}
			response.Header().Set("X-Consul-KnownLeader", fmt.Sprint(index == 0))
			_, _ = response.Write(body)
			return
		}
		select {
		case <-changed:
		case <-request.Context().Done():
			return
		case <-deadline:
			index = 0
		}
	}
}

// Set sets a key.
func (s *Server) Set(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = value
}

// answerKeys answers with a key, or with all of a prefix.
func (s *Server) answerKeys(response http.ResponseWriter, prefix string, recurse bool) {
	type pair struct {
		Key   string
		Value []byte
	}
	var pairs []pair
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, value := range s.keys {
		if key == prefix || recurse && strings.HasPrefix(key, prefix) {
			pairs = append(pairs, pair{key, []byte(value)})
		}
	}
	response.Header().Set("X-Consul-Index", fmt.Sprint(s.Index))
	if len(pairs) == 0 {
		response.WriteHeader(http.StatusNotFound)
		return
	}
	_, _ = response.Write(Marshal(pairs))
}

// acl answers questions about rights, all of them of strangers.
func (s *Server) acl(response http.ResponseWriter, request *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var questions []struct{ Resource, Access, Segment string }
	switch {
	case request.Header.Get("X-Consul-Token") != "":
		http.Error(response, "a token was sent", http.StatusTeapot)
	case s.Proxied && request.Method != http.MethodGet:
		http.Error(response, "only GET", http.StatusMethodNotAllowed)
	case s.Token == "":
		http.Error(response, "ACL support disabled", http.StatusUnauthorized)
	case request.URL.Path == "/v1/acl/token/self":
		http.Error(response, "Permission denied", http.StatusForbidden)
	case json.NewDecoder(request.Body).Decode(&questions) != nil || len(questions) > 64:
		http.Error(response, "Refusing to process more than 64 authorizations at once", http.StatusBadRequest)
	default:
		type answer struct{ Allow bool }
		_, _ = response.Write(Marshal(make([]answer, len(questions))))
	}
}

// answer returns the content at path, and its index. The caller holds mu.
func (s *Server) answer(path string) (json.RawMessage, uint64) {
	names, servicesIndex := map[string][]string{"consul": {}}, uint64(3)
	for name, entry := range s.services {
		names[name] = []string{}
		for _, i := range entry.instances {
			names[name] = append(names[name], i.Service.Tags...)
		}
		servicesIndex = max(servicesIndex, entry.index)
	}
	for _, i := range s.removed {
		servicesIndex = max(servicesIndex, i)
	}
	servicesIndex = min(servicesIndex, s.Index)
	name, ofService := strings.CutPrefix(path, "/v1/health/service/")
	if !ofService {
		return Marshal(names), servicesIndex
	}
	if e := s.services[name]; e != nil {
		return Marshal(e.instances), min(e.index, s.Index)
	}
	return json.RawMessage("[]"), servicesIndex // an unknown service has the index of all services
}

// Marshal returns JSON, as it answers with.
func Marshal(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// Instance is a healthy instance of a service.
func Instance(service, id, address string, port int) *api.ServiceEntry {
	return &api.ServiceEntry{
		Node: &api.Node{ID: "0", Node: "n1", Address: "10.0.0.1", Datacenter: "dc1"},
		Service: &api.AgentService{
			ID: id, Service: service, Address: address, Port: port,
			Weights: api.AgentWeights{Passing: 1, Warning: 1},
		},
		Checks: api.HealthChecks{{Node: "n1", CheckID: "serfHealth", Status: api.HealthPassing}},
	}
}
