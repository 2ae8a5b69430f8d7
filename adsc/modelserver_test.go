package adsc_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tributary/adsc"
	"tributary/internal/xdstest"
)

// modelServer is a server of both variants that keeps the rules of the protocol, with delays, responses that cross
// requests, repetitions, ended streams, and responses of unsubscribed types.
type modelServer struct {
	t       *testing.T
	forgets bool // takes no note of initial_resource_versions
	chunks  bool // splits its responses
	waits   bool // SotW: for the reply to a response before it sends another one
	noDelta bool

	mu      sync.Mutex
	rand    *rand.Rand
	content map[string]map[string]int // by type and name: the version
	round   map[string]int            // by type: how often the content has changed
	changed chan struct{}             // closed and replaced
	ending  chan struct{}             // the same: ends all streams
	calm    bool                      // no mischief any more
	streams int
}

func newModelServer(t *testing.T, r *rand.Rand) *modelServer {
	return &modelServer{
		t: t, rand: r, forgets: r.IntN(4) == 0, chunks: r.IntN(2) == 0, waits: r.IntN(3) > 0, noDelta: r.IntN(6) == 0,
		content: map[string]map[string]int{typeA: {}, typeB: {}, adsc.EndpointType: {}}, round: map[string]int{},
		changed: make(chan struct{}), ending: make(chan struct{}),
	}
}

func (m *modelServer) intN(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rand.IntN(n)
}

// mischief reports, once in n times, that it is time for some.
func (m *modelServer) mischief(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.calm && m.rand.IntN(n) == 0
}

// put sets a version of a resource; 0 removes it.
func (m *modelServer) put(typeURL, name string, version int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if version == 0 {
		delete(m.content[typeURL], name)
	} else {
		m.content[typeURL][name] = version
	}
	m.t.Logf("puts %s %s@%d", typeURL, name, version)
	m.round[typeURL]++
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *modelServer) endStreams() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.ending)
	m.ending = make(chan struct{})
}

// look returns the content of a type, and its version.
func (m *modelServer) look(typeURL string) (content map[string]int, round int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.content[typeURL]), m.round[typeURL]
}

func (m *modelServer) body(typeURL, name string, version int) *anypb.Any {
	if typeURL == adsc.EndpointType {
		return xdstest.Packed(m.t, &endpointv3.ClusterLoadAssignment{
			ClusterName: name, Policy: &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(uint32(version))},
		})
	}
	return xdstest.Packed(m.t, wrapperspb.String(fmt.Sprint(name, "@", version)))
}

// typeSubscription is a client's subscription to a type, on one stream.
type typeSubscription struct {
	wildcard, named bool
	names           map[string]bool
	versions        map[string]int // delta: versions that the client has; 0 for an absent resource
	sent            []string       // nonces without a reply
	nonce           string         // SotW: of the last response
	round           int            // SotW: that it has
	behind          bool           // SotW: something is to be sent when it has replied
}

func (t *typeSubscription) covers(name string) bool { return t.wildcard || t.names[name] }

// session is a stream.
type session[Q any] struct {
	*modelServer
	types map[string]*typeSubscription
	n     int // responses
	node  bool
	apply func(Q) error
	tell  func(typeURL string) error // sends the changes
}

func (s *session[Q]) nextNonce() string {
	s.n++
	return fmt.Sprint("n", s.n)
}

// run works on a stream until it ends. recv blocks.
func (s *session[Q]) run(ctx context.Context, recv func() (Q, error)) error {
	requests := make(chan Q)
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the stream, which ends when we return
		defer close(ended)
		for {
			r, err := recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	s.mu.Lock()
	ending := s.ending
	s.mu.Unlock()
	var mischief <-chan time.Time
	if s.mischief(3) {
		mischief = time.After(time.Duration(s.intN(3000)) * time.Millisecond)
	}
	s.t.Log("a stream begins")
	defer s.t.Log("a stream ends")
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		for _, typeURL := range slices.Sorted(maps.Keys(s.types)) {
			if err := s.tell(typeURL); err != nil {
				return err
			}
		}
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return nil
		case <-ending:
			return status.Error(codes.Unavailable, "ending")
		case <-mischief:
			return status.Error(codes.Unavailable, "mischief")
		case <-changed:
		case r := <-requests:
			time.Sleep(time.Duration(s.intN(20)) * time.Millisecond)
			s.t.Logf("takes %v", r)
			if err := s.apply(r); err != nil {
				return err
			}
		}
		time.Sleep(time.Duration(s.intN(20)) * time.Millisecond)
	}
}

// replied checks a reply.
func (s *session[Q]) replied(a *typeSubscription, nonce string) {
	if len(a.sent) == 0 || a.sent[0] != nonce {
		s.t.Errorf("reply to %q, want one of %v, the first one first", nonce, a.sent)
		return
	}
	a.sent = a.sent[1:]
}

func (m *modelServer) introduced(node bool, id string) bool {
	if node == (id != "") {
		m.t.Errorf("the node comes with the first request and no other; introduced: %v, now %q", node, id)
	}
	return true
}

func (m *modelServer) count() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.streams++
}

// sotw serves a state-of-the-world stream.
func (m *modelServer) sotw(_ int, st xdstest.SotWStream) error {
	m.count()
	s := &session[*discoveryv3.DiscoveryRequest]{modelServer: m, types: map[string]*typeSubscription{}}
	send := func(typeURL string, only map[string]bool) error {
		a := s.types[typeURL]
		content, round := m.look(typeURL)
		a.nonce, a.round, a.behind = s.nextNonce(), round, false
		a.sent = append(a.sent, a.nonce)
		r := &discoveryv3.DiscoveryResponse{TypeUrl: typeURL, Nonce: a.nonce, VersionInfo: fmt.Sprint("v", round)}
		for _, name := range slices.Sorted(maps.Keys(content)) {
			if a.covers(name) && (only == nil || only[name]) {
				r.Resources = append(r.Resources, m.body(typeURL, name, content[name]))
			}
		}
		m.t.Logf("sends %v", r)
		return st.Send(r)
	}
	s.tell = func(typeURL string) error {
		a := s.types[typeURL]
		_, round := m.look(typeURL)
		if !a.wildcard && len(a.names) == 0 || round == a.round && !a.behind && !m.mischief(40) {
			return nil
		}
		if m.waits && len(a.sent) > 0 {
			return nil
		}
		if m.mischief(20) {
			if err := st.Send(&discoveryv3.DiscoveryResponse{TypeUrl: "un/asked/For", Nonce: "x"}); err != nil {
				return err
			}
		}
		return send(typeURL, nil)
	}
	s.apply = func(discoveryRequest *discoveryv3.DiscoveryRequest) error {
		s.node = m.introduced(s.node, discoveryRequest.GetNode().GetId())
		a := s.types[discoveryRequest.GetTypeUrl()]
		first := a == nil
		if first {
			a = &typeSubscription{round: -1}
			s.types[discoveryRequest.GetTypeUrl()] = a
			if discoveryRequest.GetResponseNonce() != "" {
				m.t.Errorf("a nonce of another stream: %v", discoveryRequest)
			}
		} else if len(a.sent) > 0 && a.sent[0] == discoveryRequest.GetResponseNonce() {
			s.replied(a, discoveryRequest.GetResponseNonce())
		}
		if !first && discoveryRequest.GetResponseNonce() != a.nonce {
			return nil // stale
		}
		before, wasWildcard := a.names, a.wildcard
		a.names, a.wildcard = map[string]bool{}, false
		added := map[string]bool{}
		for _, name := range discoveryRequest.GetResourceNames() {
			a.named = true
			if name == "*" {
				a.wildcard = true
				continue
			}
			a.names[name] = true
			if !before[name] {
				added[name] = true
			}
		}
		a.wildcard = a.wildcard || len(discoveryRequest.GetResourceNames()) == 0 && !a.named
		_, round := m.look(discoveryRequest.GetTypeUrl())
		switch {
		case first && discoveryRequest.GetVersionInfo() == fmt.Sprint("v", round):
			a.round = round // it has everything
			return nil
		case first:
			return nil // told by tell
		case a.wildcard && !wasWildcard:
			return send(discoveryRequest.GetTypeUrl(), nil)
		case len(added) > 0 && discoveryRequest.GetTypeUrl() == adsc.EndpointType && !a.wildcard:
			return send(discoveryRequest.GetTypeUrl(), added) // the others are had
		case len(added) > 0:
			return send(discoveryRequest.GetTypeUrl(), nil)
		}
		return nil
	}
	return s.run(st.Context(), st.Recv)
}

// delta serves a delta stream.
func (m *modelServer) delta(_ int, st xdstest.DeltaStream) error {
	if m.noDelta {
		return status.Error(codes.Unimplemented, "no delta")
	}
	m.count()
	if m.chunks {
		if err := st.SetHeader(chunked); err != nil {
			return err
		}
	}
	s := &session[*discoveryv3.DeltaDiscoveryRequest]{modelServer: m, types: map[string]*typeSubscription{}}
	// send sends the listed names, in several responses if it splits them.
	send := func(typeURL string, resources, removed []string) error {
		a := s.types[typeURL]
		content, round := m.look(typeURL)
		for {
			r := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: s.nextNonce()}
			n := len(resources)
			if m.chunks && n > 1 {
				n = 1 + m.intN(n)
			}
			for _, name := range resources[:n] {
				r.Resources = append(r.Resources, &discoveryv3.Resource{
					Name: name, Version: fmt.Sprint(content[name]), Resource: m.body(typeURL, name, content[name]),
				})
				a.versions[name] = content[name]
			}
			resources = resources[n:]
			if len(resources) == 0 {
				r.SystemVersionInfo, r.RemovedResources = fmt.Sprint("v", round), removed
				for _, name := range removed {
					a.versions[name] = 0
				}
			}
			a.sent = append(a.sent, r.GetNonce())
			m.t.Logf("sends %v", r)
			if err := st.Send(r); err != nil || len(resources) == 0 {
				return err
			}
			if m.mischief(8) {
				return status.Error(codes.Unavailable, "mischief in the middle")
			}
		}
	}
	// due returns the subscribed resources that differ, and the removed ones.
	due := func(typeURL string) (resources, removed []string) {
		a := s.types[typeURL]
		content, _ := m.look(typeURL)
		for name, version := range content {
			if a.covers(name) && a.versions[name] != version {
				resources = append(resources, name)
			}
		}
		for name, version := range a.versions {
			if _, exists := content[name]; !exists && version != 0 && a.covers(name) {
				removed = append(removed, name)
			}
		}
		for name := range a.names {
			_, reported := a.versions[name]
			if _, exists := content[name]; !exists && !reported {
				removed = append(removed, name)
			}
		}
		slices.Sort(resources)
		slices.Sort(removed)
		return resources, slices.Compact(removed)
	}
	s.tell = func(typeURL string) error {
		resources, removed := due(typeURL)
		content, _ := m.look(typeURL)
		for name := range content {
			if s.types[typeURL].covers(name) && m.mischief(200) && !slices.Contains(resources, name) {
				resources = append(resources, name) // again
			}
		}
		if len(resources)+len(removed) == 0 {
			return nil
		}
		return send(typeURL, resources, removed)
	}
	s.apply = func(r *discoveryv3.DeltaDiscoveryRequest) error {
		s.node = m.introduced(s.node, r.GetNode().GetId())
		a := s.types[r.GetTypeUrl()]
		if nonce := r.GetResponseNonce(); nonce != "" {
			if a == nil {
				m.t.Errorf("a nonce of another stream: %v", r)
				return nil
			}
			s.replied(a, nonce)
			if len(r.GetResourceNamesSubscribe())+len(r.GetResourceNamesUnsubscribe()) > 0 {
				m.t.Errorf("a reply that asks for something: %v", r)
			}
			return nil
		}
		if a == nil {
			a = &typeSubscription{names: map[string]bool{}, versions: map[string]int{}, wildcard: len(r.GetResourceNamesSubscribe()) == 0}
			s.types[r.GetTypeUrl()] = a
			for _, name := range r.GetResourceNamesSubscribe() {
				if name == "*" {
					a.wildcard = true
				} else {
					a.names[name] = true
				}
			}
			for name, version := range r.GetInitialResourceVersions() {
				if !a.covers(name) {
					m.t.Errorf("a version of %s, which is not asked for: %v", name, r)
				}
				v, err := strconv.Atoi(version)
				if err != nil {
					v = -1 // none that there ever is
				}
				if !m.forgets {
					a.versions[name] = v
				}
			}
			resources, removed := due(r.GetTypeUrl())
			return send(r.GetTypeUrl(), resources, removed) // the first answer comes also if it is empty
		}
		if len(r.GetInitialResourceVersions()) > 0 {
			m.t.Errorf("versions in a later request: %v", r)
		}
		content, _ := m.look(r.GetTypeUrl())
		var resources, removed []string
		answer := func(name string) {
			if _, exists := content[name]; exists {
				resources = append(resources, name)
			} else {
				removed = append(removed, name)
			}
		}
		for _, name := range r.GetResourceNamesUnsubscribe() {
			if name == "*" {
				if !a.wildcard {
					m.t.Errorf("unsubscribes from all, which it had not subscribed to: %v", r)
				}
				a.wildcard = false
				maps.DeleteFunc(a.versions, func(name string, _ int) bool { return !a.names[name] })
				continue
			}
			if !a.names[name] {
				m.t.Errorf("unsubscribes from %s, which it had not subscribed to: %v", name, r)
			}
			delete(a.names, name)
			delete(a.versions, name)
			if a.wildcard {
				answer(name)
			}
		}
		for _, name := range r.GetResourceNamesSubscribe() {
			if name == "*" {
				a.wildcard = true // told by tell
				continue
			}
			a.names[name] = true
			answer(name)
		}
		if len(resources)+len(removed) == 0 {
			return nil
		}
		return send(r.GetTypeUrl(), resources, removed)
	}
	return s.run(st.Context(), st.Recv)
}

// nameAndVersion is the inverse of body.
func nameAndVersion(t *testing.T, a *anypb.Any) (name string, version int) {
	message, err := a.UnmarshalNew()
	if err != nil {
		t.Errorf("a resource cannot be decoded: %v", err)
		return "", 0
	}
	switch m := message.(type) {
	case *endpointv3.ClusterLoadAssignment:
		return m.GetClusterName(), int(m.GetPolicy().GetOverprovisioningFactor().GetValue())
	case *wrapperspb.StringValue:
		name, text, _ := strings.Cut(m.GetValue(), "@")
		if version, err = strconv.Atoi(text); err != nil {
			t.Errorf("version %q: %v", text, err)
		}
		return name, version
	}
	t.Errorf("a resource of %T", message)
	return "", 0
}
