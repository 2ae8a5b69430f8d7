// Package consultest is a Consul for tests, with the part of its HTTP API that sources and stores need: the catalog,
// health, rights, and keys with check-and-set. Datacenter is its state, with blocking queries and indexes as those of a
// real one; Server answers by HTTP.
package consultest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/hashicorp/consul/api"
)

// Server answers for a datacenter as Consul does. Its fields are set before it is used, or by Edit.
type Server struct {
	*Datacenter
	HTTP *httptest.Server

	Token      string // requests without it see no service, without a notice; empty without ACLs
	ReadOnly   bool   // keys may not be written
	Headerless bool   // a proxy takes Consul's headers away
	// Proxy stands in front of it, and reports whether it answered. It is nil for none.
	Proxy func(response http.ResponseWriter, request *http.Request) bool

	mu       sync.Mutex
	requests []string // path and query
}

// Response is an answer to all requests, for Fail.
type Response struct {
	Status  int
	Text    string
	Headers []string // name and value, in turn
}

// Error implements error.
func (r *Response) Error() string { return r.Text }

// Failures of a whole Consul.
var (
	NoLeader  = api.StatusError{Code: http.StatusInternalServerError, Body: "No cluster leader"}
	NoToken   = api.StatusError{Code: http.StatusForbidden, Body: "ACL not found"}
	Busy      = &Response{http.StatusTooManyRequests, "too many concurrent connections", []string{"Retry-After", "1"}}
	ErrHungUp = errors.New("the connection is closed")

	errRestarted = fmt.Errorf("a query waited during a restart: %w", NoLeader)
)

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	server := &Server{Datacenter: NewDatacenter()}
	server.HTTP = httptest.NewServer(server)
	t.Cleanup(func() {
		if t.Failed() {
			requests := server.Asked()
			t.Log("asked:\n" + strings.Join(requests[:min(60, len(requests))], "\n"))
		}
		server.Fail(ErrHungUp) // ends the queries that wait
		server.HTTP.CloseClientConnections()
		server.HTTP.Close()
	})
	return server
}

// Address is its host and port.
func (s *Server) Address() string { return s.HTTP.Listener.Addr().String() }

// Answer makes it answer all requests with a status, text and headers.
func (s *Server) Answer(status int, text string, headers ...string) {
	s.Fail(&Response{status, text, headers})
}

// Asked returns the requests that contain each of parts in their path and query.
func (s *Server) Asked(parts ...string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(request string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(request, part) })
	})
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, request.URL.Path+"?"+request.URL.RawQuery)
	s.mu.Unlock()
	s.Datacenter.mu.Lock()
	proxy, fails := s.Proxy, s.Fails
	s.Datacenter.mu.Unlock()
	url := request.URL
	switch cleaned := path.Clean(url.Path); {
	case proxy != nil && proxy(response, request):
	case strings.ContainsFunc(url.Path, func(r rune) bool { return !unicode.IsPrint(r) }):
		http.Error(response, "Bad request: Valid characters are required in the path", http.StatusBadRequest)
	case cleaned != strings.TrimSuffix(url.Path, "/"):
		http.Redirect(response, request, cleaned, http.StatusMovedPermanently) //nolint:gosec // as Consul does
	case fails != nil:
		refuse(response, fails)
	case strings.Contains(url.Path, "/acl/"):
		s.authorize(response, request)
	case url.Path == "/v1/txn":
		s.transact(response, request)
	default:
		s.read(response, request)
	}
}

func (s *Server) read(response http.ResponseWriter, request *http.Request) {
	values := request.URL.Query()
	s.Datacenter.mu.Lock()
	token := s.Token
	s.Datacenter.mu.Unlock()
	query := Query{
		Stale: values.Has("stale"), Consistent: values.Has("consistent"),
		Stranger: token != "" && request.Header.Get("X-Consul-Token") != token,
		Recurse:  values.Has("recurse"), Names: values.Has("keys"),
	}
	query.Index, _ = strconv.ParseUint(values.Get("index"), 10, 64)
	query.Wait, _ = time.ParseDuration(values.Get("wait"))
	content, answer, err := s.Read(request.Context(), request.URL.Path, query)
	if err != nil {
		refuse(response, err)
		return
	}
	s.Datacenter.mu.Lock()
	headerless := s.Headerless
	s.Datacenter.mu.Unlock()
	header := response.Header()
	header.Set("Content-Type", "application/json")
	if !headerless {
		header.Set("X-Consul-Index", fmt.Sprint(answer.Index))
		header.Set("X-Consul-LastContact", fmt.Sprint(answer.LastContact.Milliseconds()))
		header.Set("X-Consul-KnownLeader", fmt.Sprint(!answer.Leaderless))
	}
	if answer.Filtered && !query.Stranger {
		header.Set("X-Consul-Results-Filtered-By-ACLs", "true")
	}
	switch list := content.(type) {
	case map[string][]string:
		list["consul"] = []string{}
	case api.KVPairs:
		if len(list) == 0 {
			response.WriteHeader(http.StatusNotFound)
			return
		}
	}
	_, _ = response.Write(Marshal(content)) //nolint:gosec // a test wrote it
}

// refuse answers with an error.
func refuse(response http.ResponseWriter, err error) {
	var fixed *Response
	var status api.StatusError
	switch {
	case errors.As(err, &fixed):
		for pair := range slices.Chunk(fixed.Headers, 2) {
			response.Header().Set(pair[0], pair[1])
		}
		http.Error(response, fixed.Text, fixed.Status)
	case errors.As(err, &status) && !errors.Is(err, errRestarted):
		http.Error(response, status.Body, status.Code)
	default:
		panic(http.ErrAbortHandler) // the connection ends
	}
}

// authorize answers questions about rights.
func (s *Server) authorize(response http.ResponseWriter, request *http.Request) {
	s.Datacenter.mu.Lock()
	defer s.Datacenter.mu.Unlock()
	var rights []Right
	token := request.Header.Get("X-Consul-Token")
	switch {
	case s.Token != "" && token != "":
		http.Error(response, "a token was sent", http.StatusTeapot)
	case s.Token == "" && !s.Hides && s.Nodes == nil && s.Shows == nil && s.HiddenKeys == "":
		http.Error(response, "ACL support disabled", http.StatusUnauthorized)
	case request.URL.Path == "/v1/acl/token/self":
		http.Error(response, "Permission denied", http.StatusForbidden)
	case json.NewDecoder(request.Body).Decode(&rights) != nil || len(rights) > 64:
		http.Error(response, "Refusing to process more than 64 authorizations at once", http.StatusBadRequest)
	default:
		answers := make([]struct{ Allow bool }, len(rights))
		for i, right := range rights {
			answers[i].Allow = s.Token == "" && right.Access == "read" && s.Allows(right)
		}
		_, _ = response.Write(Marshal(answers))
	}
}

// transact runs one operation of check-and-set.
func (s *Server) transact(response http.ResponseWriter, request *http.Request) {
	var operations []struct{ KV api.KVTxnOp }
	if err := json.NewDecoder(request.Body).Decode(&operations); err != nil || len(operations) != 1 {
		http.Error(response, fmt.Sprintf("want one operation, got %d: %v", len(operations), err), http.StatusBadRequest)
		return
	}
	operation, failure := operations[0].KV, ""
	var results []map[string]*api.KVPair
	verb := map[api.KVOp]string{api.KVCAS: "set", api.KVDeleteCAS: "delete"}[operation.Verb]
	s.Edit(func() {
		index := uint64(0) // of a key that is not there
		if pair := s.keys[operation.Key]; pair != nil {
			index = pair.ModifyIndex
		}
		switch {
		case s.ReadOnly:
			failure = fmt.Sprintf("Permission denied: the token lacks permission 'key:write' on %q", operation.Key)
		case verb == "":
			failure = "unknown verb " + string(operation.Verb)
		case index != operation.Index:
			failure = fmt.Sprintf("failed to %s key %q, index is stale", verb, operation.Key)
		case operation.Verb == api.KVCAS:
			pair := *s.write(api.KVPair{Key: operation.Key, Value: operation.Value, Flags: operation.Flags})
			pair.Value = nil // as Consul, which returns none for writes
			results = append(results, map[string]*api.KVPair{"KV": &pair})
		default:
			s.remove(operation.Key)
		}
	})
	response.Header().Set("Content-Type", "application/json")
	var failures []api.TxnError
	if failure != "" {
		failures = append(failures, api.TxnError{What: failure})
		response.WriteHeader(http.StatusConflict)
	}
	_, _ = response.Write(Marshal(map[string]any{"Results": results, "Errors": failures}))
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

// Provider is a healthy instance of an interface of Dubbo, as Java registers it. Its URL has more parameters.
func Provider(iface, host, parameters string) *api.ServiceEntry {
	entry := Instance(iface, host, host, 20880)
	entry.Service.Tags = []string{"dubbo"}
	entry.Service.Meta = map[string]string{
		"url": "dubbo://" + host + ":20880/" + iface + "?application=a&interface=" + iface + parameters,
	}
	return entry
}

// Instances are instances without checks, as texts: ID, node, and the index at which that was created. The last two may
// be missing.
func Instances(texts ...string) (entries []*api.ServiceEntry) {
	for _, text := range texts {
		id, node := "", &api.Node{Node: "n", Address: "10.0.0.1"}
		_, _ = fmt.Sscan(text, &id, &node.Node, &node.CreateIndex)
		entries = append(entries, &api.ServiceEntry{
			Node: node, Service: &api.AgentService{ID: id, Address: id + ".test", Port: 80},
		})
	}
	return entries
}
