package envoy

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

// served is a catalog with an engine in front of it.
type served struct {
	*testing.T
	table   memstore.Table
	catalog *Catalog
	addr    string
	from    net.Addr // of clients to come; any if nil
}

func serve(t *testing.T, first ...*resource.Resource) *served {
	t.Helper()
	return serveWith(t, Options{}, first...)
}

// serveKept is serve with what is in quarantine kept in a file.
func serveKept(t *testing.T, file string, first ...*resource.Resource) *served {
	t.Helper()
	return serveWith(t, Options{File: file}, first...)
}

func serveWith(t *testing.T, opts Options, first ...*resource.Resource) *served {
	t.Helper()
	s := &served{T: t}
	s.table.Apply(first, nil)
	s.table.MarkSynced()
	quiet := slog.New(slog.DiscardHandler)
	opts.Log, opts.Hearing = quiet, 20*time.Millisecond
	s.catalog = New(&s.table, opts)
	engine := xds.NewServer(s.catalog, xds.Options{Log: quiet, Hooks: xds.Hooks{Answer: s.catalog.Answered}})
	s.catalog.HearOf(engine)
	g := grpc.NewServer(engine.ServerOptions()...)
	engine.Register(g)
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr = lis.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = s.catalog.Run(ctx) })
	all.Go(func() { _ = g.Serve(lis) })
	s.eventually(func() bool {
		s.catalog.mu.RLock()
		defer s.catalog.mu.RUnlock()
		return s.catalog.synced
	}, "what is there from the start")
	t.Cleanup(func() {
		g.Stop()
		engine.Close()
		stop()
		all.Wait()
	})
	return s
}

// ended is how many complaints ended so.
func (s *served) ended(end string) int {
	return int(testutil.ToFloat64(s.catalog.metrics.complaints.WithLabelValues(end)))
}

func (s *served) eventually(ok func() bool, what string) {
	s.Helper()
	require.Eventually(s, ok, 20*time.Second, 5*time.Millisecond, what)
}

func (s *served) ends() map[string]int {
	all := make(map[string]int)
	for _, end := range []string{endedQuarantined, endedContradicted, endedMachine, endedUnheard, endedUnexplained, endedLimit, endedAgain} {
		all[end] = s.ended(end)
	}
	return all
}

// open are the complaints that there are.
func (s *served) open() (all []string) {
	s.catalog.judge.mu.Lock()
	defer s.catalog.judge.mu.Unlock()
	for who, c := range s.catalog.judge.docket.open {
		all = append(all, fmt.Sprintf("%v: %+v", who, *c))
	}
	return all
}

// quarantined are the names of what is in quarantine.
func (s *served) quarantined() []string {
	names := []string{}
	for _, q := range s.catalog.Quarantined() {
		names = append(names, q.Key.Name)
	}
	return names
}

// critic is a client that takes the routes of port 80, and all clusters, and all of other types, as far as it likes them. As an Envoy does, it goes on with what it had of a response
// of which it does not like something.
type critic struct {
	mu    sync.Mutex
	has   map[string][]byte // by type and name
	nacks int
	lost  []string // what it had and was told to remove
	leave func()   // hangs up
	// dislikes says why a resource is rejected, or nothing
	dislikes func(typeURL, name string, body []byte) string
}

const bad = "BAD"

// disliking dislikes what is bad, and says nothing else.
func disliking(_, _ string, body []byte) string {
	if bytes.Contains(body, []byte(bad)) {
		return "something is wrong with it"
	}
	return ""
}

func (s *served) critic(n *corev3.Node, dislikes func(typeURL, name string, body []byte) string, types ...string) *critic {
	s.Helper()
	return s.slowCritic(n, dislikes, func(string) {}, types...)
}

// slowCritic is one that calls thinks with the type of a response before it answers.
func (s *served) slowCritic(n *corev3.Node, dislikes func(typeURL, name string, body []byte) string, thinks func(typeURL string), types ...string) *critic {
	s.Helper()
	c := &critic{has: make(map[string][]byte), dislikes: dislikes}
	dialer := net.Dialer{LocalAddr: s.from}
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", addr)
	}))
	require.NoError(s, err)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(context.Background())
	require.NoError(s, err)
	var all sync.WaitGroup
	c.leave = func() {
		_ = conn.Close()
		all.Wait()
	}
	s.Cleanup(c.leave)
	require.NoError(s, stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: xds.ClusterURL}))
	require.NoError(s, stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.RouteURL, ResourceNamesSubscribe: []string{"80"}}))
	for _, url := range types {
		require.NoError(s, stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: []string{"*"}}))
	}
	if wantsOnDemand(n.GetMetadata().GetFields()) {
		require.NoError(s, stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.VHostURL, ResourceNamesSubscribe: []string{"80/vs0.internal", "80/vs1.internal"}}))
	}
	all.Go(func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			thinks(r.GetTypeUrl())
			req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
			if why := c.take(r); why != "" {
				req.ErrorDetail = &rpcstatus.Status{Message: why}
			}
			if stream.Send(req) != nil {
				return
			}
		}
	})
	return c
}

func (c *critic) take(r *discoveryv3.DeltaDiscoveryResponse) (why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, res := range r.GetResources() {
		if why = c.dislikes(r.GetTypeUrl(), res.GetName(), res.GetResource().GetValue()); why != "" {
			c.nacks++
			return why
		}
	}
	for _, res := range r.GetResources() {
		c.has[r.GetTypeUrl()+"/"+res.GetName()] = res.GetResource().GetValue()
	}
	for _, name := range r.GetRemovedResources() {
		if why = c.dislikes(r.GetTypeUrl(), "", nil); why != "" {
			c.nacks++
			return why
		}
		if c.has[r.GetTypeUrl()+"/"+name] != nil {
			c.lost = append(c.lost, r.GetTypeUrl()+"/"+name)
		}
		delete(c.has, r.GetTypeUrl()+"/"+name)
	}
	return ""
}

// hasRoutes says whether the routes of port 80 have all of the texts.
func (c *critic) hasRoutes(texts ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(texts, func(text string) bool { return !bytes.Contains(c.has[xds.RouteURL+"/80"], []byte(text)) })
}

// answering is a VirtualService of a host of its own that answers with a text.
func answering(t *testing.T, name, text string) *resource.Resource {
	t.Helper()
	return virtual(t, name, &networking.VirtualService{Hosts: []string{name + ".internal"}, Http: []*networking.HTTPRoute{{
		DirectResponse: &networking.HTTPDirectResponse{Status: 200, Body: &networking.HTTPBody{Specifier: &networking.HTTPBody_String_{String_: text}}},
	}}})
}

func keyOf(name string) resource.Key {
	return resource.Key{Kind: resource.VirtualService, Namespace: "default", Name: name}
}

// several are VirtualServices with the same text at the end.
func several(t *testing.T, n int, text string) (all []*resource.Resource, texts []string) {
	t.Helper()
	for i := range n {
		texts = append(texts, fmt.Sprintf("vs%d-%s.", i, text))
		all = append(all, answering(t, fmt.Sprintf("vs%d", i), texts[i]))
	}
	return all, texts
}

func TestTheObjectThatIsRejectedIsFoundAndTheRestGoesOn(t *testing.T) {
	for name, broken := range map[string][]int{"the first": {0}, "the last": {8}, "one": {3}, "two": {2, 7}, "neighbours": {4, 5}, "all": {0, 1, 2, 3, 4, 5, 6, 7, 8}} {
		t.Run(name, func(t *testing.T) {
			first, before := several(t, 9, "before")
			s := serve(t, first...)
			c := s.critic(nodes[0], disliking)
			s.eventually(func() bool { return c.hasRoutes(before...) }, "it has what there is")

			next, now := several(t, 9, "now")
			want := []string{}
			for _, i := range broken {
				next[i] = answering(t, fmt.Sprintf("vs%d", i), bad)
				now[i] = before[i]
				want = append(want, fmt.Sprintf("vs%d", i))
			}
			s.table.Apply(next, nil)
			s.eventually(func() bool { return slices.Equal(s.quarantined(), want) && c.hasRoutes(now...) }, "what is bad is what it was before, and the rest is new")
			q := s.catalog.Quarantined()[0]
			require.Equal(t, "something is wrong with it", q.Error)
			require.Equal(t, []string{"80"}, q.Resources)
			require.Equal(t, next[broken[0]].Version(), q.Version)
			require.Equal(t, first[broken[0]].Version(), q.Serves)

			again := s.critic(nodes[0], disliking) // a newcomer is served the same, and so is one of another profile
			s.eventually(func() bool { return again.hasRoutes(now...) }, "a newcomer")
			other := s.critic(nodes[1], disliking)
			s.eventually(func() bool { return other.hasRoutes(now...) }, "of another namespace")

			for _, i := range broken {
				now[i] = "repaired."
				s.table.Apply([]*resource.Resource{answering(t, fmt.Sprintf("vs%d", i), now[i])}, nil)
			}
			s.eventually(func() bool { return len(s.quarantined()) == 0 && c.hasRoutes(now...) }, "it is released when it changes")
		})
	}
}

func TestAnObjectThatWasNotThereBeforeIsLeftOut(t *testing.T) {
	s := serve(t, answering(t, "old", "old."))
	c := s.critic(nodes[0], disliking)
	s.eventually(func() bool { return c.hasRoutes("old.") }, "")
	s.table.Apply([]*resource.Resource{answering(t, "new", bad), answering(t, "newer", "newer.")}, nil)
	s.eventually(func() bool { return slices.Equal(s.quarantined(), []string{"new"}) && c.hasRoutes("old.", "newer.") }, "")
	require.Empty(t, s.catalog.Quarantined()[0].Serves)
	s.table.Apply(nil, []resource.Key{keyOf("new")})
	s.eventually(func() bool { return len(s.quarantined()) == 0 }, "it is gone")
}

func TestOfSeveralVersionsTheLastGoodOneIsServed(t *testing.T) {
	s := serve(t, answering(t, "a", "good."))
	held := make(chan struct{})
	c := s.critic(nodes[0], func(url, name string, body []byte) string {
		if bytes.Contains(body, []byte("-2.")) {
			<-held // it is slow to say what it thinks of that
		}
		return disliking(url, name, body)
	})
	s.eventually(func() bool { return c.hasRoutes("good.") }, "")
	s.table.Apply([]*resource.Resource{answering(t, "a", bad+"-1."), answering(t, "b", "-2.")}, nil)
	s.table.Apply([]*resource.Resource{answering(t, "a", bad+"-2.")}, nil)
	close(held)
	s.eventually(func() bool { return slices.Equal(s.quarantined(), []string{"a"}) && c.hasRoutes("good.", "-2.") }, "")
}

func TestWhatAnotherAcceptsIsNotSetAside(t *testing.T) {
	s := serve(t, answering(t, "a", "one."))
	var other *critic
	odd := s.critic(nodes[0], after(&other))
	other = s.critic(nodes[0], func(string, string, []byte) string { return "" })
	s.eventually(func() bool { return odd.hasRoutes("one.") && other.hasRoutes("one.") }, "")
	s.table.Apply([]*resource.Resource{answering(t, "a", bad)}, nil)
	s.eventually(func() bool { return s.ended(endedContradicted) == 1 && other.hasRoutes(bad) }, "")
	require.Empty(t, s.quarantined())
	require.True(t, odd.hasRoutes("one."))
}

// A client that says something of itself that nobody else says is told of objects in another way, and cannot be contradicted by the letter. But what others
// accept of an object under the same name speaks for it.
func TestWhatOthersAcceptOfAnObjectSpeaksForIt(t *testing.T) {
	s := serve(t, answering(t, "a", "one."), labelled(t, "other."))
	n := node("default", "NONE", "")
	n.GetMetadata().GetFields()[metadataLabels].GetStructValue().GetFields()["app"] = structpb.NewStringValue("odd")
	var other *critic
	odd := s.critic(n, after(&other))
	other = s.critic(nodes[0], func(string, string, []byte) string { return "" })
	s.eventually(func() bool { return odd.hasRoutes("one.") && other.hasRoutes("one.", "other.") }, "")
	require.False(t, odd.hasRoutes("other."))
	s.table.Apply([]*resource.Resource{answering(t, "a", bad)}, nil)
	s.eventually(func() bool { return s.ended(endedContradicted) == 1 && other.hasRoutes(bad) }, "")
	require.Empty(t, s.quarantined())
	require.True(t, odd.hasRoutes("one."))
}

// labelled is a VirtualService that answers to some with a text.
func labelled(t *testing.T, text string) *resource.Resource {
	t.Helper()
	return virtual(t, "labelled", &networking.VirtualService{Hosts: []string{"labelled.internal"}, Http: []*networking.HTTPRoute{{
		Match:          []*networking.HTTPMatchRequest{{SourceLabels: map[string]string{"app": "one"}}},
		DirectResponse: &networking.HTTPDirectResponse{Status: 200, Body: &networking.HTTPBody{Specifier: &networking.HTTPBody_String_{String_: text}}},
	}, {DirectResponse: &networking.HTTPDirectResponse{Status: 404}}}})
}

// after is disliking that says so when another has accepted what is bad.
func after(other **critic) func(string, string, []byte) string {
	return func(url, name string, body []byte) string {
		why := disliking(url, name, body)
		for why != "" && !(*other).hasRoutes(bad) {
			time.Sleep(time.Millisecond)
		}
		return why
	}
}

// Who asks for single virtual hosts complains of those.
func TestQuarantineOnDemand(t *testing.T) {
	first, before := several(t, 3, "before")
	s := serve(t, first...)
	n := node("default", "NONE", "")
	n.GetMetadata().GetFields()[metadataOnDemand] = structpb.NewBoolValue(true)
	c := s.critic(n, disliking)
	has := func(host, text string) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return bytes.Contains(c.has[xds.VHostURL+"/80/"+host+".internal"], []byte(text))
	}
	s.eventually(func() bool { return has("vs0", before[0]) && has("vs1", before[1]) }, "")
	next, now := several(t, 3, "now")
	next[1] = answering(t, "vs1", bad)
	s.table.Apply(next, nil)
	s.eventually(func() bool {
		return slices.Equal(s.quarantined(), []string{"vs1"}) && has("vs0", now[0]) && has("vs1", before[1])
	}, "")
}

func TestQuarantineOutlivesARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "quarantine")
	broken := []*resource.Resource{answering(t, "a", bad), answering(t, "new", bad), answering(t, "b", "b.")}
	t.Run("before", func(t *testing.T) {
		s := serveKept(t, file, answering(t, "a", "good."))
		c := s.critic(nodes[0], disliking)
		s.eventually(func() bool { return c.hasRoutes("good.") }, "")
		s.table.Apply(broken, nil)
		s.eventually(func() bool { return slices.Equal(s.quarantined(), []string{"a", "new"}) && c.hasRoutes("good.", "b.") }, "")
		s.eventually(func() bool { data, _ := os.ReadFile(file); return bytes.Contains(data, []byte(`"new"`)) }, "it is written")
	})
	t.Run("after", func(t *testing.T) {
		s := serveKept(t, file, broken...)
		c := s.critic(nodes[0], disliking) // which knows nothing of before
		s.eventually(func() bool { return slices.Equal(c.texts(t), []string{"b.", "good."}) }, "")
		require.Equal(t, []string{"a", "new"}, s.quarantined())
		require.Equal(t, "something is wrong with it", s.catalog.Quarantined()[0].Error)
		require.Empty(t, s.catalog.Quarantined()[1].Serves)
		s.table.Apply([]*resource.Resource{answering(t, "a", bad+"-again")}, []resource.Key{keyOf("new")})
		s.eventually(func() bool { return slices.Equal(s.quarantined(), []string{"a"}) && s.ended(endedQuarantined) == 1 }, "the next version is not better")
		require.True(t, c.hasRoutes("b.", "good."))
		s.eventually(func() bool { data, _ := os.ReadFile(file); return !bytes.Contains(data, []byte(`"new"`)) }, "it is written")
	})
	t.Run("changed meanwhile", func(t *testing.T) {
		s := serveKept(t, file, answering(t, "a", bad+"-other"))
		c := s.critic(nodes[0], disliking)
		s.eventually(func() bool { return slices.Equal(s.quarantined(), []string{"a"}) && c.hasRoutes("good.") }, "")
	})
	t.Run("gone", func(t *testing.T) {
		s := serveKept(t, file)
		require.Empty(t, s.quarantined())
	})
	t.Run("damaged", func(t *testing.T) {
		require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
		s := serveKept(t, file, broken...)
		require.Empty(t, s.quarantined())
	})
}

// Whatever moment the program is killed at, what is served in the place of what is rejected is known to the next one: it is kept before anybody is told.
func TestWhatIsSetAsideIsKeptBeforeAnybodyIsTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "quarantine")
	s := serveKept(t, file, answering(t, "a", "good."))
	var changing, told, kept atomic.Bool
	other := s.slowCritic(nodes[1], func(url, _ string, body []byte) string {
		if url == xds.RouteURL && bytes.Contains(body, []byte("b.")) && !bytes.Contains(body, []byte(bad)) && !told.Swap(true) {
			data, _ := os.ReadFile(file)
			kept.Store(bytes.Contains(data, []byte(`"a"`)))
		}
		return ""
	}, func(url string) { // it says nothing of what is bad before that is set aside
		for url == xds.RouteURL && changing.Load() && len(s.quarantined()) == 0 {
			time.Sleep(time.Millisecond)
		}
	})
	c := s.critic(nodes[0], disliking)
	s.eventually(func() bool { return c.hasRoutes("good.") && other.hasRoutes("good.") }, "")
	changing.Store(true)
	s.table.Apply([]*resource.Resource{answering(t, "a", bad), answering(t, "b", "b.")}, nil)
	s.eventually(told.Load, "")
	require.True(t, kept.Load())
}

func TestWhoRejectsEverythingIsNotBelieved(t *testing.T) {
	s := serve(t, answering(t, "a", "one."))
	var sulks atomic.Bool
	odd := s.critic(nodes[0], func(string, string, []byte) string { return map[bool]string{true: "no"}[sulks.Load()] })
	s.eventually(func() bool { return odd.hasRoutes("one.") }, "")
	s.table.Apply([]*resource.Resource{answering(t, "a", "next.")}, nil)
	s.eventually(func() bool { return odd.hasRoutes("next.") }, "")
	sulks.Store(true)
	s.table.Apply([]*resource.Resource{answering(t, "a", "two."), answering(t, "b", "three.")}, nil)
	s.eventually(func() bool { return s.ended(endedUnexplained) == 1 }, "it is not content with what was there before")
	s.table.Apply([]*resource.Resource{answering(t, "b", "four.")}, nil)
	s.eventually(func() bool { return s.ended(endedUnheard) > 0 }, "")
	require.Empty(t, s.quarantined())
	honest := s.critic(nodes[1], disliking)
	s.eventually(func() bool { return honest.hasRoutes("two.", "four.") }, "")
	unheard := s.ended(endedUnheard)
	s.table.Apply([]*resource.Resource{answering(t, "b", "five.")}, nil)
	s.eventually(func() bool { return honest.hasRoutes("two.", "five.") && s.ended(endedUnheard) > unheard }, "")
	require.Empty(t, s.quarantined())
}

// Who never had anything may have something wrong in all that there is, and is heard on; it is of no use to reject everything all the same.
func TestWhoRejectsEverythingFromTheStartTakesNothingAway(t *testing.T) {
	s := serve(t, answering(t, "a", "one."))
	s.critic(nodes[0], func(string, string, []byte) string { return "no" })
	s.eventually(func() bool { return s.ended(endedUnexplained) > 0 }, "")
	s.table.Apply([]*resource.Resource{answering(t, "a", "two."), answering(t, "b", "three.")}, nil)
	s.eventually(func() bool { return s.ended(endedUnexplained) > 1 }, fmt.Sprint(s.ends()))
	honest := s.critic(nodes[1], disliking)
	s.eventually(func() bool { return honest.hasRoutes("two.", "three.") }, "")
	require.Empty(t, s.quarantined())
	require.Zero(t, s.ended(endedUnheard))
}

// gRPC clients take other things than Envoys do.
func TestGRPCClientsAreNotHeard(t *testing.T) {
	s := serve(t)
	c := s.critic(nodes[3], func(url, _ string, _ []byte) string {
		if url == xds.ClusterURL {
			return "no"
		}
		return ""
	})
	s.table.Apply([]*resource.Resource{serviceEntry(t, "a")}, nil)
	s.eventually(func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.nacks > 0 }, "")
	s.table.Apply([]*resource.Resource{serviceEntry(t, "b")}, nil)
	envoy := s.critic(nodes[0], disliking)
	s.eventually(func() bool {
		envoy.mu.Lock()
		defer envoy.mu.Unlock()
		return envoy.has[xds.ClusterURL+"/outbound|80||a.internal"] != nil
	}, "")
	require.Empty(t, s.quarantined())
	require.Zero(t, s.ended(endedUnexplained)+s.ended(endedQuarantined))
}

func serviceEntry(t *testing.T, name string) *resource.Resource {
	t.Helper()
	r, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: name}}, &networking.ServiceEntry{
		Hosts: []string{name + ".internal"}, Ports: []*networking.ServicePort{{Number: 80, Protocol: "HTTP"}}, Resolution: networking.ServiceEntry_STATIC,
	})
	require.NoError(t, err)
	return r
}

func TestReasonsOfAMachineAreNoObjectsFault(t *testing.T) {
	s := serve(t, answering(t, "a", "one."))
	c := s.critic(nodes[0], func(url, name string, body []byte) string {
		if disliking(url, name, body) != "" {
			return "cannot bind '127.0.0.1:80': Address already in use"
		}
		return ""
	})
	s.eventually(func() bool { return c.hasRoutes("one.") }, "")
	s.table.Apply([]*resource.Resource{answering(t, "a", bad)}, nil)
	s.eventually(func() bool { return s.ended(endedMachine) == 1 }, "")
	require.Empty(t, s.quarantined())
}

func TestWhoIsAtOneAddressBringsOnlySomeIntoQuarantine(t *testing.T) {
	s := serve(t)
	s.critic(nodes[0], disliking)
	var objects []*resource.Resource
	for i := range maxOfComplainer + 3 {
		objects = append(objects, answering(t, fmt.Sprintf("vs%02d", i), bad))
	}
	s.table.Apply(append(objects, answering(t, "good", "good.")), nil)
	s.eventually(func() bool {
		return len(s.quarantined()) == maxOfComplainer && s.ended(endedQuarantined)+s.ended(endedLimit) > 0
	}, "")
}

// A cluster that is named is the fault of whoever has a part in it.
func TestWhatIsNamedNeedsNoSearch(t *testing.T) {
	rule := func(name string, retries int32) *resource.Resource {
		r, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.DestinationRule, Namespace: "default", Name: name}}, &networking.DestinationRule{
			Host: name + ".internal", TrafficPolicy: &networking.TrafficPolicy{ConnectionPool: &networking.ConnectionPoolSettings{Http: &networking.ConnectionPoolSettings_HTTPSettings{MaxRetries: retries}}},
		})
		require.NoError(t, err)
		return r
	}
	s := serve(t, serviceEntry(t, "a"), serviceEntry(t, "b"), serviceEntry(t, "c"))
	var mu sync.Mutex
	seen := make(map[string]map[string]bool) // versions of clusters
	c := s.critic(nodes[0], func(url, name string, body []byte) string {
		if url != xds.ClusterURL {
			return ""
		}
		mu.Lock()
		if seen[name] == nil {
			seen[name] = make(map[string]bool)
		}
		seen[name][string(body)] = true
		mu.Unlock()
		if name == "outbound|80||b.internal" && bytes.Contains(body, []byte{0x08, 99}) {
			return "Error adding/updating cluster(s) outbound|80||b.internal: no"
		}
		return ""
	})
	s.eventually(func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.has) >= 5 }, "")
	s.table.Apply([]*resource.Resource{rule("a", 7), rule("b", 99), rule("c", 7)}, nil)
	s.eventually(func() bool { return slices.Equal(s.quarantined(), []string{"b"}) }, "")
	require.Equal(t, resource.DestinationRule, s.catalog.Quarantined()[0].Key.Kind)
	require.Equal(t, []string{"outbound|80||b.internal"}, s.catalog.Quarantined()[0].Resources)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, seen["outbound|80||a.internal"], 2)
}

// Whatever the history, clients come to have of each object what it is, or, where they do not like that, what it was when they last did.
func TestQuarantineHistories(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's
			s := serve(t)
			critics := []*critic{s.critic(nodes[0], disliking), s.critic(nodes[1], disliking)}
			want, broken := map[string]string{}, map[string]bool{} // what is to be served, and what is in quarantine, by name
			for step := range 30 {
				var puts []*resource.Resource
				var deletes []resource.Key
				for _, i := range random.Perm(6)[:1+random.IntN(4)] {
					name := fmt.Sprintf("vs%d", i)
					switch random.IntN(8) {
					case 0:
						deletes = append(deletes, keyOf(name))
						delete(want, name)
						delete(broken, name)
					case 1, 2, 3:
						puts = append(puts, answering(t, name, fmt.Sprint(bad, step)))
						broken[name] = true
					default:
						want[name] = fmt.Sprintf("%s-%d.", name, step)
						puts = append(puts, answering(t, name, want[name]))
						delete(broken, name)
					}
				}
				s.table.Apply(puts, deletes)
				s.eventually(func() bool {
					s.catalog.mu.RLock()
					defer s.catalog.mu.RUnlock()
					return s.catalog.last.Revision() == s.table.Snapshot().Revision()
				}, "the catalog has seen it")
				if random.IntN(2) == 0 {
					continue // the next change comes before they have said what they think
				}
				settled := func(c *assert.CollectT) {
					assert.Equal(c, append([]string{}, slices.Sorted(maps.Keys(broken))...), s.quarantined())
					for _, one := range critics {
						assert.Equal(c, slices.Sorted(maps.Values(want)), one.texts(t))
					}
				}
				if !assert.EventuallyWithT(t, settled, 40*time.Second, 10*time.Millisecond, "step %d", step) {
					t.Fatalf("ended %v, open %v", s.ends(), s.open())
				}
			}
		})
	}
}

// texts are those with which the routes of port 80 answer, in order.
func (c *critic) texts(t *testing.T) (all []string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var routes routev3.RouteConfiguration
	require.NoError(t, proto.Unmarshal(c.has[xds.RouteURL+"/80"], &routes))
	for _, v := range routes.GetVirtualHosts() {
		for _, r := range v.GetRoutes() {
			if d := r.GetDirectResponse(); d != nil {
				all = append(all, d.GetBody().GetInlineString())
			}
		}
	}
	slices.Sort(all)
	return all
}

func TestNamed(t *testing.T) {
	all := []xds.Resource{{Name: "outbound|80||a.b"}, {Name: "80"}, {Name: "0.0.0.0_80"}, {Name: "b"}}
	for text, want := range map[string][]string{
		"Error adding/updating cluster(s) outbound|80||a.b: no":   {"outbound|80||a.b"},
		"Error adding/updating cluster(s) outbound|80||a.b.c: no": nil,
		"error adding listener '0.0.0.0_80': no":                  {"0.0.0.0_80"},
		"program size of 80 > max program size of 20":             nil,
		"a.b":                    nil,
		"it is b.":               {"b"},
		"x: outbound|80||a.b, b": {"outbound|80||a.b", "b"},
	} {
		some, isNamed := named(all, text)
		require.Equal(t, want != nil, isNamed, text)
		if want == nil {
			require.Equal(t, all, some)
			continue
		}
		var got []string
		for _, r := range some {
			got = append(got, r.Name)
		}
		require.Equal(t, want, got, text)
	}
}

// What came in one response with what is bad, and is none of its object's doing, arrives when that is found, at all who rejected it.
func TestWhatWasRejectedWithSomethingBadArrives(t *testing.T) {
	s := serve(t, serviceEntry(t, "first"))
	dislikes := func(url, name string, _ []byte) string {
		if url == xds.ClusterURL && name == "outbound|80||bad.internal" {
			return "cluster " + name + " is wrong"
		}
		return ""
	}
	has := func(c *critic, name string) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.has[xds.ClusterURL+"/outbound|80||"+name+".internal"] != nil
	}
	one, two := s.critic(nodes[0], dislikes, xds.EndpointURL), s.critic(nodes[1], dislikes, xds.EndpointURL)
	s.eventually(func() bool { return has(one, "first") && has(two, "first") }, "")
	s.table.Apply([]*resource.Resource{serviceEntry(t, "good"), serviceEntry(t, "bad"), serviceEntry(t, "better")}, []resource.Key{serviceEntry(t, "first").Key()})
	s.eventually(func() bool { return slices.Equal(s.quarantined(), []string{"bad"}) }, "")
	for _, c := range []*critic{one, two} {
		s.eventually(func() bool { return has(c, "good") && has(c, "better") && !has(c, "first") }, "")
	}
}
