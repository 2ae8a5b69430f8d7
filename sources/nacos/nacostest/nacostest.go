// Package nacostest is a Nacos for tests: it serves clients of gRPC, pushes changes, and has controlled faults.
package nacostest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"tributary/internal/testutil"
	"tributary/sources/nacos/wire"
)

// Server is a Nacos.
type Server struct {
	t    testing.TB
	door *testutil.Listener

	mu       sync.Mutex
	denied   bool
	token    string // that requests must have, if any
	clock    int64
	services map[string]map[string]any // instances, by namespace, group and service
	configs  map[string]string
	refused  map[string]string // services that cannot be read, and why
	streams  map[string]*stream
	hidden   map[string]bool
	requests map[string]int
	silent   bool // changes are not pushed
	// Listed is called after each page of a list, with the services, which it may change. More are counted than are
	// listed, and then there are no pages: all are on each. Both are set before there are clients.
	Listed func(page int, services map[string]map[string]any)
	More   int
}

// stream is that of one connection.
type stream struct {
	grpc.ServerStream
	mu         sync.Mutex
	subscribed map[string]bool
}

// Start runs a Nacos until the test ends.
func Start(t testing.TB) *Server {
	fake := &Server{
		t: t, door: testutil.NewListener(t), streams: map[string]*stream{}, services: map[string]map[string]any{},
		configs: map[string]string{}, refused: map[string]string{}, requests: map[string]int{}, hidden: map[string]bool{},
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec{}), grpc.UnknownServiceHandler(fake.handle))
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(fake.door) }) // it is stopped
	t.Cleanup(func() {
		server.Stop()
		running.Wait()
	})
	return fake
}

// Address is where its clients find it.
func (s *Server) Address() string {
	_, port, err := net.SplitHostPort(s.door.Addr().String())
	require.NoError(s.t, err)
	n, err := strconv.Atoi(port)
	require.NoError(s.t, err)
	return fmt.Sprintf("nacos://127.0.0.1:%d?grpcOffset=0", n)
}

// Beside is where its clients find it if web is its side of HTTP. user is empty, or user:password@.
func (s *Server) Beside(server *httptest.Server, user string) string {
	port := func(addr net.Addr) int {
		tcp, ok := addr.(*net.TCPAddr)
		require.True(s.t, ok)
		return tcp.Port
	}
	http := port(server.Listener.Addr())
	return fmt.Sprintf("nacos://%s127.0.0.1:%d?grpcOffset=%d", user, http, port(s.door.Addr())-http)
}

// Lister lists texts of configuration over HTTP, as 3.1 does.
func (s *Server) Lister() http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if request.URL.Path != "/nacos/v3/admin/cs/config/list" {
			http.NotFound(response, request)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		items := []any{}
		for _, name := range slices.Sorted(maps.Keys(s.configs)) {
			if group, dataID, _ := strings.Cut(name, "@@"); group == request.URL.Query().Get("groupName") {
				items = append(items, map[string]any{"namespaceId": "public", "groupName": group, "dataId": dataID, "type": "text"})
			}
		}
		_ = json.NewEncoder(response).Encode(map[string]any{
			"code": 0, "message": "success",
			"data": map[string]any{"totalCount": len(items), "pageNumber": 1, "pageItems": items},
		})
	})
}

// Stop ends all connections and accepts none. It keeps the registrations.
func (s *Server) Stop() { s.door.Shut() }

// Restart lets connections in again.
func (s *Server) Restart() { s.door.Open() }

// Forget drops all instances, as a restart does.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.services = map[string]map[string]any{}
}

// Deny has it refuse requests for content, or no longer.
func (s *Server) Deny(denied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = denied
}

// Demand has it refuse requests without that token.
func (s *Server) Demand(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = token
}

// Refuse has a service answer with an error; without a message no longer.
func (s *Server) Refuse(group, service, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[group+"@@"+service] = message
	if message == "" {
		delete(s.refused, group+"@@"+service)
	}
}

// Silence stops or resumes the pushes of changes.
func (s *Server) Silence(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = silent
}

// Put registers an instance, or any other value, under an id.
func (s *Server) Put(group, service, id string, instance any) {
	s.change(group, service, func(instances map[string]any) { instances[id] = instance })
}

// Delete removes an instance. The service stays listed.
func (s *Server) Delete(group, service, id string) {
	s.change(group, service, func(instances map[string]any) { delete(instances, id) })
}

// Unlist removes a service.
func (s *Server) Unlist(group, service string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.services, group+"@@"+service)
}

// Hide takes a service off the list, and leaves it as it is.
func (s *Server) Hide(group, service string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden[group+"@@"+service] = true
}

// Count has it count more than it lists, from now on.
func (s *Server) Count(extra int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.More = extra
}

// SetClock sets the time that it has.
func (s *Server) SetClock(clock int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = clock
}

// Show puts it back on the list.
func (s *Server) Show(group, service string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hidden, group+"@@"+service)
}

// Config sets a text of configuration.
func (s *Server) Config(dataID, group, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.configs[group+"@@"+dataID] = content
}

// Requests counts those of a kind.
func (s *Server) Requests(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[kind]
}

// Instance is one that is well.
func Instance(ip string, port int, metadata map[string]string) map[string]any {
	return map[string]any{
		"instanceId": fmt.Sprintf("%s#%d", ip, port), "ip": ip, "port": port, "weight": 1.0, "healthy": true, "enabled": true,
		"ephemeral":   true,
		"clusterName": "DEFAULT", "metadata": metadata,
	}
}

func (s *Server) change(group, service string, edit func(map[string]any)) {
	name := group + "@@" + service
	s.mu.Lock()
	if s.services[name] == nil {
		s.services[name] = map[string]any{}
	}
	edit(s.services[name])
	var streams []*stream
	if !s.silent {
		for _, subscriber := range s.streams {
			if subscriber.subscribed[name] {
				streams = append(streams, subscriber)
			}
		}
	}
	body := map[string]any{
		"requestId": "1", "namespace": "public", "serviceName": service, "groupName": group,
		"serviceInfo": s.info(name),
	}
	s.mu.Unlock()
	for _, subscriber := range streams {
		_ = subscriber.send("NotifySubscriberRequest", body) // it may have gone
	}
}

// info is a service as it is sent. The caller holds mu.
func (s *Server) info(name string) map[string]any {
	s.clock++
	group, service, _ := strings.Cut(name, "@@")
	hosts := []any{}
	for _, id := range slices.Sorted(maps.Keys(s.services[name])) {
		hosts = append(hosts, s.services[name][id])
	}
	return map[string]any{"name": service, "groupName": group, "hosts": hosts, "lastRefTime": s.clock}
}

func (st *stream) send(kind string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.SendMsg(&wire.Payload{Kind: kind, Body: text})
}

func (s *Server) handle(_ any, grpcStream grpc.ServerStream) error {
	from, _ := peer.FromContext(grpcStream.Context())
	client := from.Addr.String()
	switch method, _ := grpc.MethodFromServerStream(grpcStream); method {
	case wire.Request:
		var payload wire.Payload
		if err := grpcStream.RecvMsg(&payload); err != nil {
			return err
		}
		kind, body := s.answer(client, payload)
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		return grpcStream.SendMsg(&wire.Payload{Kind: kind, Body: text})
	case wire.RequestStream:
		return s.stream(client, grpcStream)
	}
	return errors.New("no such method")
}

func (s *Server) stream(client string, grpcStream grpc.ServerStream) error {
	for {
		var payload wire.Payload
		if err := grpcStream.RecvMsg(&payload); err != nil {
			s.mu.Lock()
			delete(s.streams, client)
			s.mu.Unlock()
			return nil //nolint:nilerr // it has gone
		}
		s.mu.Lock()
		s.requests[payload.Kind]++
		if payload.Kind == "ConnectionSetupRequest" {
			s.streams[client] = &stream{ServerStream: grpcStream, subscribed: map[string]bool{}}
		}
		s.mu.Unlock()
	}
}

func (s *Server) answer(client string, payload wire.Payload) (kind string, body map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[payload.Kind]++
	fail := func(code int, message string) (string, map[string]any) {
		return "ErrorResponse", map[string]any{"resultCode": 500, "errorCode": code, "message": message}
	}
	fine := func(kind string, fields map[string]any) (string, map[string]any) {
		body := map[string]any{"resultCode": 200, "errorCode": 0, "success": true}
		maps.Copy(body, fields)
		return kind, body
	}
	if payload.Kind == "ServerCheckRequest" {
		return fine("ServerCheckResponse", nil)
	}
	clientStream := s.streams[client]
	if clientStream == nil {
		return fail(301, "Connection is unregistered.")
	}
	if payload.Kind == "HealthCheckRequest" {
		return fine("HealthCheckResponse", nil)
	}
	if s.denied || s.token != "" && payload.Headers["accessToken"] != s.token {
		return fail(403, "user not found!")
	}
	var query struct {
		Namespace, GroupName, ServiceName, DataID, Group string
		PageNo, PageSize                                 int
		Subscribe                                        bool
	}
	if err := json.Unmarshal(payload.Body, &query); err != nil {
		return fail(500, err.Error())
	}
	name := query.GroupName + "@@" + query.ServiceName
	switch payload.Kind {
	case "ServiceListRequest":
		var names []string
		for _, n := range slices.Sorted(maps.Keys(s.services)) {
			if group, service, _ := strings.Cut(n, "@@"); group == query.GroupName && query.Namespace == "public" &&
				!s.hidden[n] {
				names = append(names, service)
			}
		}
		page := names[min(len(names), (query.PageNo-1)*query.PageSize):min(len(names), query.PageNo*query.PageSize)]
		if s.Listed != nil {
			s.Listed(query.PageNo, s.services)
		}
		if s.More > 0 { // a server that knows no pages
			page = names
		}
		return fine("ServiceListResponse", map[string]any{"count": len(names) + s.More, "serviceNames": page})
	case "SubscribeServiceRequest":
		if why := s.refused[name]; why != "" {
			return fail(500, why)
		}
		clientStream.subscribed[name] = query.Subscribe
		return fine("SubscribeServiceResponse", map[string]any{"serviceInfo": s.info(name)})
	case "ConfigQueryRequest":
		content, ok := s.configs[query.Group+"@@"+query.DataID]
		if !ok {
			return fail(300, "config data not exist")
		}
		return fine("ConfigQueryResponse", map[string]any{"content": content})
	}
	return fail(500, "unknown request "+payload.Kind)
}
