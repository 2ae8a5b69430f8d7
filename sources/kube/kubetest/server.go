package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// Object is one in the store.
type Object = map[string]any

// kinds has the kind of each resource, after its versions, the preferred one first.
var kinds = map[string]string{
	"services": "v1 Service", "pods": "v1 Pod", "nodes": "v1 Node", "namespaces": "v1 Namespace",
	"endpointslices.discovery.k8s.io": "v1 EndpointSlice", "serviceexports.multicluster.x-k8s.io": "v1 ServiceExport",
	"ingresses.networking.k8s.io": "v1 Ingress", "ingressclasses.networking.k8s.io": "v1 IngressClass",
	"gateways.gateway.networking.k8s.io": "v1 Gateway", "httproutes.gateway.networking.k8s.io": "v1 HTTPRoute",
	"gatewayclasses.gateway.networking.k8s.io":  "v1 GatewayClass",
	"referencegrants.gateway.networking.k8s.io": "v1beta1 ReferenceGrant",
	"gateways.networking.istio.io":              "v1 v1beta1 Gateway",
	"virtualservices.networking.istio.io":       "v1 v1beta1 VirtualService",
	"serviceentries.networking.istio.io":        "v1 v1beta1 ServiceEntry",
	"destinationrules.networking.istio.io":      "v1 v1beta1 DestinationRule",
	"sidecars.networking.istio.io":              "v1 v1beta1 Sidecar",
	"workloadentries.networking.istio.io":       "v1 v1beta1 WorkloadEntry",
	"envoyfilters.networking.istio.io":          "v1alpha3 EnvoyFilter",
	"proxyconfigs.networking.istio.io":          "v1beta1 ProxyConfig",
	"authorizationpolicies.security.istio.io":   "v1 v1beta1 AuthorizationPolicy",
	"peerauthentications.security.istio.io":     "v1 v1beta1 PeerAuthentication",
	"requestauthentications.security.istio.io":  "v1 v1beta1 RequestAuthentication",
	"telemetries.telemetry.istio.io":            "v1 Telemetry",
	"wasmplugins.extensions.istio.io":           "v1alpha1 WasmPlugin",
}

// KindOf returns the kind of a resource.
func KindOf(resource string) string {
	return kinds[resource][strings.LastIndexByte(kinds[resource], ' ')+1:]
}

// Istio returns the resources of Istio.
func Istio() []string {
	return slices.DeleteFunc(slices.Collect(maps.Keys(kinds)), func(resource string) bool {
		return !strings.HasSuffix(resource, ".istio.io")
	})
}

// IsCRD reports whether a resource may come and go.
func IsCRD(resource string) bool {
	_, group, _ := strings.Cut(resource, ".")
	return group != "" && group != "discovery.k8s.io" && group != "networking.k8s.io"
}

// VersionsOf returns the versions of a resource that a server has from the start.
func VersionsOf(resource string) []string {
	words := strings.Fields(kinds[resource])
	return words[:len(words)-1]
}

// change is an entry of the log. One of a deletion has the object as it was.
type change struct {
	version       int
	resource, key string
	object        Object
	deleted       bool
}

// Server is an API server with its etcd. It keeps each change, so that it can answer for any version, go back to one,
// or answer that it was compacted. Its methods may be called at any time.
type Server struct {
	t       testing.TB
	http    *httptest.Server
	piped   bool
	started time.Time

	mu       sync.Mutex
	random   *rand.Rand
	version  int
	oldest   int // changes before it are compacted
	log      []change
	served   map[string][]string // versions of a resource, the preferred one first
	hidden   []string            // resources that the server does not have for a while
	unlisted []string            // resources that discovery leaves out, though the server has them
	denied   map[string]bool     // by resource, or by resource/namespace
	faults   map[string]Fault
	changed  chan struct{}
	cut      chan struct{} // closed to end all watches
	settings int           // how often faults, rights and kinds changed
	token    string
	down     bool
	moves    int
	troubles int
	requests []string
	second   time.Duration // of the last request
	recent   int           // requests of that second
}

const (
	// Everything is the resource whose fault counts for all resources.
	Everything = "everything"
	// Discovery is the resource of discovery, for faults and rights.
	Discovery = "discovery"
)

// Start starts a server that has resources, such as "virtualservices.networking.istio.io".
func Start(t testing.TB, resources ...string) *Server {
	s := newServer(t, rand.New(rand.NewPCG(1, 2)), resources) //nolint:gosec // the same answers each time
	s.http = httptest.NewUnstartedServer(s)
	s.http.Start()
	return s
}

// StartTLS starts a server with a self-signed certificate: clients send no token without TLS.
func StartTLS(t testing.TB, resources ...string) *Server {
	s := newServer(t, rand.New(rand.NewPCG(1, 2)), resources) //nolint:gosec // the same answers each time
	s.http = httptest.NewUnstartedServer(s)
	s.http.StartTLS()
	return s
}

// StartPiped starts a server without a port, for the clock of testing/synctest. Clients with the transport
// http.DefaultTransport reach it. It sends a bookmark once a minute, not after each change.
func StartPiped(t testing.TB, random *rand.Rand, resources ...string) *Server {
	listener := &pipeListener{accepted: make(chan net.Conn), closed: make(chan struct{})}
	s := newServer(t, random, resources)
	s.piped = true
	s.http = &httptest.Server{Listener: listener, Config: &http.Server{Handler: s, ReadHeaderTimeout: time.Hour}}
	s.http.Start()
	transport := &http.Transport{DialContext: listener.dial}
	hookTransport()
	pipes.Store(s.name(), transport)
	t.Cleanup(func() {
		pipes.Delete(s.name())
		transport.CloseIdleConnections()
	})
	return s
}

func newServer(t testing.TB, random *rand.Rand, resources []string) *Server {
	s := &Server{
		t: t, started: time.Now(), random: random, version: 1000, oldest: 1000, served: make(map[string][]string),
		denied: make(map[string]bool), faults: make(map[string]Fault), changed: make(chan struct{}),
		cut: make(chan struct{}),
	}
	for _, resource := range resources {
		s.served[resource] = VersionsOf(resource)
	}
	t.Cleanup(func() {
		s.Disconnect()
		s.http.Close()
	})
	return s
}

// pipeListener is a listener without a port.
type pipeListener struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.accepted <- server:
		return client, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipes has the transports of servers without a port, by name.
var pipes sync.Map

// hookTransport has http.DefaultTransport reach the servers without a port.
var hookTransport = sync.OnceFunc(func() {
	transport := http.DefaultTransport
	http.DefaultTransport = roundTrip(func(request *http.Request) (*http.Response, error) {
		_, name, _ := strings.Cut(request.URL.Host, ".")
		if pipe, ok := pipes.Load(name); ok {
			return pipe.(*http.Transport).RoundTrip(request) //nolint:forcetypeassert // of StartPiped
		}
		return transport.RoundTrip(request)
	})
})

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// CloseIdleConnections does nothing: a source does not own the transport.
func (roundTrip) CloseIdleConnections() {}

func (s *Server) name() string { return fmt.Sprintf("%p.test", s) }

// Host is host:port of the server.
func (s *Server) Host() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.host()
}

func (s *Server) host() string {
	if s.piped {
		return fmt.Sprintf("%d.%s", s.moves, s.name())
	}
	return s.http.Listener.Addr().String()
}

// Kubeconfig returns a kubeconfig of the server, with a user such as {token: t}.
func (s *Server) Kubeconfig(user string) string {
	scheme, verification := "http", ""
	if s.http.TLS != nil {
		scheme, verification = "https", "insecure-skip-tls-verify: true, "
	}
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: x,
clusters: [{name: c, cluster: {%sserver: "%s://%s"}}],
users: [{name: u, user: %s}], contexts: [{name: x, context: {cluster: c, user: u}}]}`,
		verification, scheme, s.Host(), user)
}

// Put makes an object or changes it. The text is its YAML; the server adds the name, the version and times.
func (s *Server) Put(resource, namespace, name, text string) {
	object := Object{}
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		panic(text + ": " + err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(resource, namespace+"/"+name, object)
}

// Delete removes an object, if it exists.
func (s *Server) Delete(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(resource, namespace+"/"+name, nil)
}

// write puts an object, or deletes it if object is nil. The caller holds mu.
func (s *Server) write(resource, key string, object Object) {
	before, isDeletion := s.at(resource, s.version)[key], object == nil
	if isDeletion {
		object = maps.Clone(before)
	}
	if object == nil {
		return
	}
	s.version++
	// An object that comes back has the time that it had: a loss and a restore change nothing else.
	meta := Object{"creationTimestamp": s.started.UTC().Format(time.RFC3339)}
	maps.Copy(meta, metaOf(object))
	namespace, name, _ := strings.Cut(key, "/")
	if meta["name"], meta["uid"], meta["resourceVersion"] = name, key, strconv.Itoa(s.version); namespace != "" {
		meta["namespace"] = namespace
	}
	object["metadata"] = meta
	s.log = append(s.log, change{s.version, resource, key, object, isDeletion})
	close(s.changed)
	s.changed = make(chan struct{})
}

func metaOf(object Object) Object {
	meta, _ := object["metadata"].(Object)
	return meta
}

// at returns the objects of a resource at a version. The caller holds mu.
func (s *Server) at(resource string, version int) map[string]Object {
	objects := make(map[string]Object)
	for _, change := range s.log {
		if change.resource != resource || change.version > version {
			continue
		}
		if objects[change.key] = change.object; change.deleted {
			delete(objects, change.key)
		}
	}
	return objects
}

// Objects returns the objects of a resource by namespace/name, in its preferred version.
func (s *Server) Objects(resource string) map[string]Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects := s.at(resource, s.version)
	for key, object := range objects {
		objects[key] = typed(object, resource, VersionsOf(resource)[0])
	}
	return objects
}

// Version returns the newest resource version.
func (s *Server) Version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// set changes the settings. Lists that are not complete yet break off.
func (s *Server) set(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	s.settings++
}

// Serve makes the server have a resource, as a CRD does. Without versions, it has the usual ones.
func (s *Server) Serve(resource string, versions ...string) {
	if len(versions) == 0 {
		versions = VersionsOf(resource)
	}
	s.set(func() { s.served[resource] = versions })
}

// Versions returns the versions of a resource that the server has now.
func (s *Server) Versions(resource string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served[resource]
}

// Hide hides resources, and shows all others again.
func (s *Server) Hide(resources ...string) { s.set(func() { s.hidden = resources }) }

// Unlist hides resources from discovery, and shows all others again; they are still served.
func (s *Server) Unlist(resources ...string) { s.set(func() { s.unlisted = resources }) }

// Deny removes the right to a resource, or to one in a namespace: resource/namespace.
func (s *Server) Deny(resource string) { s.set(func() { s.denied[resource] = true }) }

// Allow gives back the rights to resources, or all rights.
func (s *Server) Allow(resources ...string) {
	s.set(func() {
		maps.DeleteFunc(s.denied, func(denied string, _ bool) bool {
			return len(resources) == 0 || slices.Contains(resources, denied)
		})
	})
}

// Denies reports whether Deny removed a right.
func (s *Server) Denies(resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.denied[resource]
}

// Heal ends all faults.
func (s *Server) Heal() { s.set(func() { clear(s.faults) }) }

// Fault sets the fault of a resource for requests from now on; the zero Fault is no fault.
func (s *Server) Fault(resource string, fault Fault) {
	s.set(func() {
		if s.faults[resource] = fault; fault == (Fault{}) {
			delete(s.faults, resource)
		}
	})
}

// Require refuses all requests with another token. Watches end.
func (s *Server) Require(token string) {
	s.set(func() { s.token = token })
	s.Cut()
}

// Cut ends all watches.
func (s *Server) Cut() { s.interrupt(func() {}) }

// Disconnect closes all connections.
func (s *Server) Disconnect() { s.restart(func() {}) }

// interrupt makes a change, and ends all watches before they show it.
func (s *Server) interrupt(do func()) {
	s.set(func() {
		do()
		close(s.cut)
		s.cut = make(chan struct{})
		s.troubles++
	})
}

// restart makes a change, and closes all connections.
func (s *Server) restart(do func()) {
	s.interrupt(do)
	s.http.CloseClientConnections()
}

// Down makes the server close each connection, or serve again.
func (s *Server) Down(down bool) {
	if s.set(func() { s.down = down }); down {
		s.Disconnect()
	}
}

// Move gives a server without a port another address.
func (s *Server) Move() { s.restart(func() { s.moves++ }) }

// Remove removes a resource with its objects, as the deletion of a CRD does.
func (s *Server) Remove(resource string) {
	s.restart(func() {
		for _, key := range slices.Sorted(maps.Keys(s.at(resource, s.version))) {
			s.write(resource, key, nil)
		}
		delete(s.served, resource)
	})
}

// Compact forgets the history.
func (s *Server) Compact() { s.restart(func() { s.oldest = s.version }) }

// Restore goes back to a version, as a restore of etcd does.
func (s *Server) Restore(version int) {
	s.restart(func() {
		s.log = slices.DeleteFunc(slices.Clone(s.log), func(c change) bool { return c.version > version })
		s.version, s.oldest = version, version
	})
}

// Renumber goes to a resource version, as a cluster does that is restored elsewhere: it makes all objects again but for
// some keys.
func (s *Server) Renumber(version int, omitted ...string) {
	s.restart(func() {
		old, objects := s.log, s.version
		s.log, s.version = nil, version
		for resource := range s.served {
			before := &Server{log: old}
			for key, object := range before.at(resource, objects) {
				if !slices.Contains(omitted, key) {
					s.write(resource, key, maps.Clone(object))
				}
			}
		}
		s.oldest = s.version
	})
}

// Requests returns the requests since the last call.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// Looks counts the discovery requests since Requests was called.
func (s *Server) Looks() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, request := range s.requests {
		if request == "/apis" {
			n++
		}
	}
	return n
}

// Troubles counts the requests that a server without faults answers in another way, and the interruptions.
func (s *Server) Troubles() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.troubles
}

// stormAt is the number of requests a second at which a server without a port does not answer any more, so that its
// clock goes on.
const stormAt = 2000

// count counts a request, and reports whether it belongs to a storm. The caller holds mu.
func (s *Server) count(request *http.Request) (storm bool) {
	if second := time.Since(s.started).Truncate(time.Second); second != s.second {
		s.second, s.recent = second, 0
	}
	s.recent++
	s.requests = append(s.requests, request.URL.RequestURI())
	if s.piped && s.recent == stormAt {
		s.t.Errorf("%d requests in a second: %s", stormAt, strings.Join(s.requests[max(0, len(s.requests)-50):], "\n"))
	}
	return s.piped && s.recent >= stormAt
}

func fail(response http.ResponseWriter, code int, reason string, wait int) {
	if wait > 0 {
		response.Header().Set("Retry-After", strconv.Itoa(wait))
	}
	response.WriteHeader(code)
	reply(response, status(code, reason))
}

func status(code int, reason string) Object {
	return Object{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
		"message": "as the test wants it", "metadata": Object{},
	}
}

func reply(w io.Writer, v any) { _ = json.NewEncoder(w).Encode(v) }
