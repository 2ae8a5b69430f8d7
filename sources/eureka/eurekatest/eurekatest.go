// Package eurekatest is a Eureka for tests: one server of one or several, with the answers of a real one and controlled
// faults.
package eurekatest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tributary/internal/testutil"
)

// Server is one of a Eureka.
type Server struct {
	door  *testutil.Listener
	apart int64 // ms between its registration times and those of other servers

	mu        sync.Mutex
	instances map[string]map[string]any // by app/id
	removed   map[string]map[string]any // lately
	changed   map[string]bool           // lately
	version   int
	clock     int64          // ms; moves on with each change
	status    map[string]int // with which paths are answered
	raw       map[string]string
	user      string
	requests  map[string]int
	hash      string // in place of the true one
}

// started counts servers.
var started atomic.Int64

// Start runs a server until the test ends.
func Start(t testing.TB) *Server {
	server := &Server{
		apart: started.Add(1) * 1000, door: testutil.NewListener(t), clock: time.Now().UnixMilli(), status: map[string]int{},
		raw: map[string]string{}, requests: map[string]int{},
	}
	server.forget()
	listener := &httptest.Server{
		Listener: server.door,
		Config:   &http.Server{Handler: http.HandlerFunc(server.answer), ReadHeaderTimeout: time.Minute},
	}
	listener.Start()
	t.Cleanup(func() {
		server.door.Shut()
		listener.Close()
	})
	return server
}

// Host is where it listens.
func (s *Server) Host() string { return s.door.Addr().String() }

// Address is that of a source which reads it.
func (s *Server) Address() string { return "eureka://" + s.Host() + "/eureka" }

// Stop has it not answer until Restart.
func (s *Server) Stop() { s.door.Shut() }

// Restart undoes Stop.
func (s *Server) Restart() { s.door.Open() }

// Forget drops the content, as a restart does.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
}

func (s *Server) forget() {
	s.instances, s.removed, s.changed, s.version = map[string]map[string]any{}, map[string]map[string]any{},
		map[string]bool{}, 0
}

// Answer has a path, such as /apps/delta, be answered with a status; 0 for as it should be.
func (s *Server) Answer(path string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status[path] = status
}

// Say has a path be answered with a text; an empty one for as it should be.
func (s *Server) Say(path, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw[path] = text
}

// Hash has answers have this hash code; an empty one for the true one.
func (s *Server) Hash(hash string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hash = hash
}

// Ask has it ask for a user and password, as user:password.
func (s *Server) Ask(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user = user
}

// Requests is how often a path was asked for.
func (s *Server) Requests(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[path]
}

// Instance is one, as Spring Cloud's client registers it.
func Instance(id, ip string, port int, metadata map[string]string) map[string]any {
	return map[string]any{
		"instanceId": id, "hostName": ip, "ipAddr": ip, "status": "UP", "overriddenStatus": "UNKNOWN",
		"port": map[string]any{"$": port, "@enabled": "true"}, "securePort": map[string]any{"$": 443, "@enabled": "false"},
		"countryId":      1,
		"dataCenterInfo": map[string]any{"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"},
		"metadata":       metadata,
	}
}

// Put registers an instance of an application, or changes it.
func (s *Server) Put(application string, instance map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = max(s.clock+1, time.Now().UnixMilli())
	i := map[string]any{
		"vipAddress": strings.ToLower(application), "secureVipAddress": strings.ToLower(application),
		"app":        strings.ToUpper(application),
		"actionType": "ADDED",
	}
	maps.Copy(i, instance)
	updated := fmt.Sprint(s.clock)
	i["lastUpdatedTimestamp"], i["lastDirtyTimestamp"] = updated, updated
	i["leaseInfo"] = map[string]any{
		"registrationTimestamp": s.clock - s.apart, "lastRenewalTimestamp": s.clock, "durationInSecs": leaseSeconds,
		"evictionTimestamp": 0,
	}
	k := key(application, fmt.Sprint(i["instanceId"]))
	s.instances[k], s.changed[k] = i, true
	delete(s.removed, k)
	s.version++
}

// leaseSeconds is how long a lease lasts, in seconds.
const leaseSeconds = 90

func key(app, id string) string { return strings.ToUpper(app) + "/" + id }

// Silence expires the lease of an instance without its removal, as self-preservation does.
func (s *Server) Silence(application, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.instances[key(application, id)]; i != nil {
		lease := i["leaseInfo"].(map[string]any)
		lease["lastRenewalTimestamp"] = lease["lastRenewalTimestamp"].(int64) - 1000*(leaseSeconds+1)
	}
}

// Expire expires the lease of an instance, and removes it.
func (s *Server) Expire(app, id string) {
	s.Silence(app, id)
	s.Delete(app, id)
}

// Delete removes an instance, which says so.
func (s *Server) Delete(application, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = max(s.clock+1, time.Now().UnixMilli())
	instanceKey := key(application, id)
	i := s.instances[instanceKey]
	if i == nil {
		return
	}
	i = maps.Clone(i)
	lease := maps.Clone(i["leaseInfo"].(map[string]any)) // it tells of the lease that has ended
	lease["evictionTimestamp"] = s.clock
	i["actionType"], i["leaseInfo"], i["lastUpdatedTimestamp"] = "DELETED", lease, fmt.Sprint(s.clock)
	s.removed[instanceKey] = i
	delete(s.instances, instanceKey)
	delete(s.changed, instanceKey)
	s.version++
}

// Settle has changes be so old that they are not told any more.
func (s *Server) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed, s.changed = map[string]map[string]any{}, map[string]bool{}
	s.version++
}

func (s *Server) answer(response http.ResponseWriter, request *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path, ok := strings.CutPrefix(request.URL.Path, "/eureka")
	s.requests[path]++
	user, password, _ := request.BasicAuth()
	status := s.status[path]
	instance := s.instances[strings.TrimPrefix(path, "/apps/")]
	switch {
	case s.user != "" && user+":"+password != s.user:
		status = http.StatusUnauthorized
	case status == 0 && (!ok || path != "/apps" && path != "/apps/delta" && instance == nil):
		status = http.StatusNotFound
	}
	if status != 0 {
		response.Header().Set("Location", "https://login.example/")
		response.WriteHeader(status)
		_, _ = response.Write([]byte(`{"error":"x"}`))
		return
	}
	if text := s.raw[path]; text != "" {
		_, _ = response.Write([]byte(text))
		return
	}
	response.Header().Set("Content-Type", "application/json")
	if instance != nil {
		_ = json.NewEncoder(response).Encode(map[string]any{"instance": instance})
		return
	}
	_ = json.NewEncoder(response).Encode(s.listing(path == "/apps/delta"))
}

func (s *Server) listing(changes bool) map[string]any {
	counts, statuses := map[string]int{}, []string{}
	apps := map[string][]any{}
	add := func(k string, i map[string]any) {
		app, _, _ := strings.Cut(k, "/")
		apps[app] = append(apps[app], i)
	}
	// in the same order each time, as of a server without changes
	for _, instanceKey := range slices.Sorted(maps.Keys(s.instances)) {
		i := s.instances[instanceKey]
		status := fmt.Sprint(i["status"])
		if counts[status]++; counts[status] == 1 {
			statuses = append(statuses, status)
		}
		if !changes || s.changed[instanceKey] {
			add(instanceKey, i)
		}
	}
	version := 1
	if changes {
		version = s.version
		for _, k := range slices.Sorted(maps.Keys(s.removed)) {
			add(k, s.removed[k])
		}
	}
	hash := ""
	slices.Sort(statuses)
	for _, status := range statuses {
		hash += fmt.Sprintf("%s_%d_", status, counts[status])
	}
	if s.hash != "" {
		hash = s.hash
	}
	list := []any{}
	for _, app := range slices.Sorted(maps.Keys(apps)) {
		list = append(list, map[string]any{"name": app, "instance": apps[app]})
	}
	return map[string]any{"applications": map[string]any{
		"versions__delta": fmt.Sprint(version), "apps__hashcode": hash,
		"application": list,
	}}
}
