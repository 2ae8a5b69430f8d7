package xds

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tributary/server/xds/wire"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// A resumed client ends up with exactly its subscription, whatever versions it sent, and gets no current resource
// again.
func TestResumption_AgreesWithModel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	name := func() string { return fmt.Sprintf("n%02d", r.IntN(80)) }
	version := func() string { return fmt.Sprint(r.IntN(2)) }
	for range 2000 {
		served := map[string]string{}
		var changes []change
		for range r.IntN(80) {
			e := &Entry{Name: name(), Version: version()}
			served[e.Name] = e.Version
			changes = append(changes, change{e.Name, e})
		}
		to := (&state{}).with(changes)
		selection := subscriptionNames{wildcard: r.IntN(2) == 0}
		for range r.IntN(20) {
			selection.add(name(), nothing)
		}
		versions := map[string]string{}
		var encoded []byte
		for range 1 + r.IntN(80) {
			n, v := name(), version()
			versions[n] = v // given twice, the last counts
			request, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", InitialResourceVersions: map[string]string{n: v}})
			require.NoError(t, err)
			encoded = append(encoded, request...)
		}
		req := wire.Request{Delta: true}
		require.NoError(t, req.Decode(encoded))
		client := clientState{state: nothing, brought: req.Initial}
		if n := name(); r.IntN(3) == 0 && selection.includes(n) {
			client.mustAnswer(n)
			delete(versions, n)
			selection.add(n, nothing)
		}

		var wantPuts, wantRemoved, gotPuts []string
		for i := range 80 {
			n := fmt.Sprintf("n%02d", i)
			if !selection.includes(n) {
				continue
			}
			now, exists := served[n]
			before, knew := versions[n]
			_, subscribed := selection.names[n]
			switch {
			case exists && (!knew || before != now):
				wantPuts = append(wantPuts, n)
			case !exists && (knew || subscribed):
				wantRemoved = append(wantRemoved, n)
			}
		}
		p := plan(variant{delta: true}, &client, &selection, to, false)
		for _, e := range p.puts {
			gotPuts = append(gotPuts, e.Name)
		}
		require.Equal(t, wantPuts, gotPuts)
		require.ElementsMatch(t, wantRemoved, p.removed)
		require.Equal(t, clientState{state: to}, p.client)
	}
}

// Only the name is known of a resource that a resuming client has and that no longer exists. It cannot be sent, even if
// the client adds a wildcard before its removal is sent; the removal is sent once.
func TestResumedResource_DeletedIsNeverSent(t *testing.T) {
	encoded, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", InitialResourceVersions: map[string]string{"gone": "1"}})
	require.NoError(t, err)
	req := wire.Request{Delta: true}
	require.NoError(t, req.Decode(encoded))
	goal := (&state{revision: 1}).with([]change{{"a", thing(t, "a", "1", "")}, {"b", thing(t, "b", "1", "")}})
	v, named := variant{delta: true}, map[string]struct{}{"a": {}, "gone": {}}

	client := clientState{state: nothing, brought: req.Initial}
	p := plan(v, &client, &subscriptionNames{names: named}, goal, true)
	puts, removed := mentioned(t, &p, v)
	require.Equal(t, []string{"a@1"}, puts)
	require.Empty(t, removed, "no removal is due yet")

	client = p.client
	client.mustRespond, client.resendAll = true, true
	p = plan(v, &client, &subscriptionNames{wildcard: true, names: named}, goal, true)
	puts, removed = mentioned(t, &p, v)
	require.Equal(t, []string{"a@1", "b@1"}, puts)
	require.Empty(t, removed, "it has it by name")

	client = p.client
	p = plan(v, &client, &subscriptionNames{wildcard: true, names: named}, goal, false)
	puts, removed = mentioned(t, &p, v)
	require.Empty(t, puts)
	require.Equal(t, []string{"gone"}, removed)
	require.Equal(t, clientState{state: goal}, p.client)
}

// mentioned returns the puts and removals of a response to a delta client.
func mentioned(t *testing.T, p *responsePlan, v variant) (puts, removed []string) {
	for _, b := range p.bodies(v) {
		var r discoveryv3.DeltaDiscoveryResponse
		require.NoError(t, proto.Unmarshal(newFrame(nil, b, false).data.Materialize(), &r))
		for _, res := range r.Resources {
			require.NotNil(t, res.Resource, "%s has no body", res.Name)
			puts = append(puts, res.Name+"@"+res.Version)
		}
		removed = append(removed, r.RemovedResources...)
	}
	return puts, removed
}

func TestGivenVersionsOnly(t *testing.T) {
	w := newFixture(t, Options{})
	w.coll(ClusterURL).Apply(Commit{Put: []*Entry{thing(t, "c1", "1", ""), thing(t, "c2", "1", "")}, Version: "one"})
	w.coll(ClusterURL).MarkSynced()
	w.set(ListenerURL, "l")
	c := w.sotw(ClusterURL)
	c.ask(ClusterURL)
	a := c.expectAck(ClusterURL, nil, "c1@1", "c2@1")
	require.Equal(t, "one", a.version)
	c.ask(ListenerURL)
	c.expectAck(ListenerURL, nil, "l@1")
	w.coll(ClusterURL).Apply(Commit{Remove: []string{"c2"}, Version: "two"})
	a = c.expectAck(ClusterURL, nil, "c1@1")
	require.Equal(t, "two", a.version)
}

func TestVersionWithNames_ResendsAllToWildcard(t *testing.T) {
	w := newFixture(t, Options{})
	w.coll(testType).Apply(Commit{Put: []*Entry{thing(t, "a", "1", ""), thing(t, "b", "1", "")}})
	c := w.sotw(testType)
	require.NoError(t, c.send(&discoveryv3.DiscoveryRequest{
		TypeUrl: testType, VersionInfo: w.coll(testType).Version(),
		ResourceNames: []string{"a"},
	}))
	c.ask(testType, "*")
	w.awaitSubscription(true, 0)
	w.coll(testType).MarkSynced()
	c.expect(testType, "a@1", "b@1")
}

// A client that resumes with a recent state of a collection is sent the changes since, without a lookup of each
// version.
func TestResumingFromARecentState(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	name := func() string { return fmt.Sprintf("n%d", r.IntN(200)) }
	c := NewCollection(Type{URL: "t"}, Debounce{})
	states := []*state{c.current.Load()}
	for range 2000 {
		var commit Commit
		for range r.IntN(4) + r.IntN(2)*r.IntN(150) {
			commit.Put = append(commit.Put, &Entry{Name: name(), Version: fmt.Sprint(r.IntN(3))})
			commit.Remove = append(commit.Remove, name())
		}
		commit.Reset = r.IntN(100) == 0
		c.Apply(commit)
		to := c.current.Load()
		states = append(states, to)
		resumed := states[max(len(states)-1-r.IntN(20)*r.IntN(20), 0)]
		if resumed.len == 0 {
			continue
		}
		var encoded []byte
		for e := range resumed.all() {
			request, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{e.Name: e.Version}})
			require.NoError(t, err)
			encoded = append(encoded, request...)
		}
		req := wire.Request{Delta: true}
		require.NoError(t, req.Decode(encoded))
		require.Equal(t, resumed.fingerprint, req.Initial.Fingerprint)
		client := clientState{state: nothing, brought: req.Initial}
		if r.IntN(3) == 0 {
			client.mustAnswer(name())
			client.mustResend(name())
		}
		puts, removals := client.compareAll(to)
		looked := client
		initial := *req.Initial
		looked.brought = &initial
		looked.brought.Fingerprint = wire.Fingerprint{}.With("?", "") // of no state
		wantPuts, wantGone := looked.compareAll(to)
		require.Equal(t, wantPuts, puts)
		require.Equal(t, wantGone, removals)
	}
	_, matches := c.current.Load().replacedSince(states[len(states)-2].fingerprint)
	require.True(t, matches)
	_, matches = c.current.Load().replacedSince(wire.Fingerprint{}.With("?", ""))
	require.False(t, matches)
}
