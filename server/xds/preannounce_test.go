package xds

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
)

// talk is a client on a stream without a network and with a clock of its own; the test chooses its requests. The types
// are those of the model of the order.
type talk struct {
	*model
	wildcard bool // of the clusters
	last     *message
	lasts    map[string]*message // of each type
}

// newTalk begins with a client that has route r to cluster c0, and the cluster.
func newTalk(t *testing.T, delta, wildcard bool) *talk {
	model := newModel(t, NewServer(nil, Options{AckTimeout: modelAckTimeout}), 1)
	model.group, model.delta, model.server.opts.Pacing = NewGroup(Debounce{}), delta, Pacing{Least: -1}
	for _, url := range modelTypes {
		model.colls[url] = model.group.Collection(orderTypeOf(t, url))
		model.colls[url].MarkSynced()
	}
	k := &talk{model: model, wildcard: wildcard, lasts: map[string]*message{}}
	k.swap("c0/1")
	k.connect(false)
	if wildcard {
		k.ask(ClusterURL, "*")
	} else {
		k.ask(ClusterURL, "c0")
	}
	k.hear(ClusterURL, "c0@1")
	k.ack()
	k.ask(EndpointURL, "c0")
	k.hear(EndpointURL, "c0@1")
	k.ack()
	k.ask(RouteURL, "r")
	k.hear(RouteURL, "r@c0/1")
	k.ack()
	k.rest()
	return k
}

// swap changes route r to another cluster, and deletes all others.
func (t *talk) swap(version string) {
	cluster := clustersIn(version)[0]
	t.group.Apply(map[*Collection]*Commit{
		t.colls[ClusterURL]:  {Reset: true, Put: []*Entry{padded(t.t, cluster, "1", "")}},
		t.colls[EndpointURL]: {Reset: true, Put: []*Entry{padded(t.t, cluster, "1", "")}},
		t.colls[RouteURL]:    {Put: []*Entry{padded(t.t, "r", version, "")}},
	})
}

// ask subscribes to names of a type; in SotW, to no others.
func (t *talk) ask(url string, names ...string) {
	request := t.request(url)
	if last := t.lasts[url]; last != nil && !t.delta {
		request.Nonce = last.nonce
	}
	if request.Names = names; t.delta {
		subscribed := func(name string) bool { return t.types[url].names[name] }
		request.Subscribe, request.Names = slices.DeleteFunc(slices.Clone(names), subscribed), nil
	}
	t.send(request)
	t.types[url].names = set(names)
}

func (t *talk) answer(err *rpcstatus.Status) {
	request := t.request(t.last.typ)
	request.Nonce, request.Err = t.last.nonce, err
	if !t.delta {
		request.Names = slices.Sorted(maps.Keys(t.types[t.last.typ].names))
	}
	t.send(request)
}

func (t *talk) ack() { t.answer(nil) }

// hear takes the next message, which must be due now.
func (t *talk) hear(url string, puts ...string) {
	t.t.Helper()
	sent, wait := t.pump()
	require.True(t.t, sent, "no response is due for %s", wait)
	t.last = t.inbox[0]
	t.inbox = nil
	t.lasts[url] = t.last
	var got []string
	for name, version := range t.last.puts {
		got = append(got, name+"@"+version)
	}
	for _, name := range t.last.removed {
		got = append(got, "-"+name)
	}
	require.Equal(t.t, url, t.last.typ)
	require.ElementsMatch(t.t, puts, got)
}

// waits checks that no response is due, and returns the time until the stream looks again.
func (t *talk) waits() time.Duration {
	t.t.Helper()
	sent, wait := t.pump()
	require.False(t.t, sent, "%s is sent", t.log[len(t.log)-1])
	return wait
}

// rest checks that no response is due.
func (t *talk) rest() {
	t.t.Helper()
	require.Zero(t.t, t.waits())
}

// preannounce changes the route to one with a new cluster, and expects the interim version.
func (t *talk) preannounce() {
	t.t.Helper()
	t.swap("c1/2")
	t.hear(RouteURL, "r@c0/1+c1")
}

// A client that resumes with an interim version is sent the next one.
func TestResumingWithAnInterimVersion(t *testing.T) {
	talk := newTalk(t, true, false)
	talk.swap("c1/2")
	talk.connect(false)
	request := talk.request(RouteURL)
	request.Subscribe, request.Initial = []string{"r"}, talk.initial(map[string]string{"r": "c0/1+c1"})
	talk.send(request)
	talk.hear(RouteURL, "r@c1/2")

	talk = newTalk(t, false, false)
	talk.preannounce()
	version := talk.last.version
	talk.connect(false)
	request = talk.request(RouteURL)
	request.Version = version // of everything, as a client of all routes has it
	talk.send(request)
	talk.hear(RouteURL, "r@c1/2")
	require.NotEqual(t, version, talk.last.version)
}

// Replicas agree on the version of the interim state, and compute it once for all of their clients.
func TestIntroduction_Shared(t *testing.T) {
	var versions []string
	for range 2 {
		calls := 0
		typ := Type{URL: "top", Rank: 2, Preannounce: func(current, _ *Entry) (*Entry, []Dependency) {
			calls++
			e := padded(t, current.Name, "", "")
			e.Version = ""
			return e, nil
		}}
		collection := NewCollection(typ, Debounce{})
		collection.Apply(Commit{Put: []*Entry{thing(t, "r@1"), thing(t, "s@1")}})
		from := collection.current.Load()
		collection.Apply(Commit{Put: []*Entry{thing(t, "r@2"), thing(t, "new@1")}})
		state := collection.current.Load()
		interim := state.differenceFrom(from).preannounce(from, state, typ.Preannounce).state
		require.Same(t, interim, state.differenceFrom(from).preannounce(from, state, typ.Preannounce).state)
		require.Equal(t, 1, calls)
		back := state.differenceFrom(interim)
		require.Equal(t, []string{"r"}, names(back.puts))
		require.Same(t, back, state.differenceFrom(interim), "and shared")
		versions = append(versions, interim.version)
	}
	require.Equal(t, versions[0], versions[1])
}

// Dependencies need not have children: then their own acknowledgement counts. The change also waits for the names that
// they need.
func TestIntroduction_OfDependencyWithoutChildren(t *testing.T) {
	k := newTalk(t, true, false)
	k.group = NewGroup(Debounce{})
	leaf, top := Type{URL: "leaf", Rank: 1}, orderTypeOf(t, RouteURL)
	leaf.Needs = func(e *Entry) []string {
		return map[string][]string{"c1": {"c0", "c2"}, "c2": {"c1", "c2", "gone"}}[e.Name]
	}
	top.URL, top.DependencyURL = "top", "leaf"
	k.colls = map[string]*Collection{"leaf": k.group.Collection(leaf), "top": k.group.Collection(top)}
	k.types["leaf"], k.types["top"] = &modelType{}, &modelType{}
	k.colls["leaf"].Apply(Commit{Put: []*Entry{thing(t, "c0@1"), thing(t, "c1@1"), thing(t, "c2@1")}})
	k.colls["top"].Apply(Commit{Put: []*Entry{thing(t, "r@c0/1")}})
	k.colls["leaf"].MarkSynced()
	k.colls["top"].MarkSynced()
	k.connect(false)
	k.ask("leaf", "c0")
	k.hear("leaf", "c0@1")
	k.ack()
	k.ask("top", "r")
	k.hear("top", "r@c0/1")
	k.ack()
	k.colls["top"].Apply(Commit{Put: []*Entry{thing(t, "r@c1/2")}})
	k.hear("top", "r@c0/1+c1")
	k.ack()
	for _, name := range []string{"c1", "c2"} {
		require.Positive(t, k.waits(), "for the client to ask for %s", name)
		k.ask("leaf", name)
		k.hear("leaf", name+"@1")
		require.Positive(t, k.waits(), "for its acknowledgement")
		k.ack()
	}
	k.hear("top", "r@c1/2")
}
