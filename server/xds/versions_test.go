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
	random := rand.New(rand.NewPCG(3, 4))
	name := func() string { return fmt.Sprintf("n%02d", random.IntN(80)) }
	version := func() string { return fmt.Sprint(random.IntN(2)) }
	for range 2000 {
		served := map[string]string{}
		var changes []change
		for range random.IntN(80) {
			e := &Entry{Name: name(), Version: version()}
			served[e.Name] = e.Version
			changes = append(changes, change{e.Name, e})
		}
		to := (&state{}).apply(changes)
		selection := subscriptionNames{wildcard: random.IntN(2) == 0}
		for range random.IntN(20) {
			selection.add(name(), initialState)
		}
		versions := map[string]string{}
		var items []string
		for range 1 + random.IntN(80) {
			n, v := name(), version()
			versions[n] = v // given twice, the last counts
			items = append(items, n+"@"+v)
		}
		client := clientState{state: initialState, brought: broughtVersions(t, items...)}
		if n := name(); random.IntN(3) == 0 && selection.includes(n) {
			client.mustAnswer(n)
			delete(versions, n)
			selection.add(n, initialState)
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
		responsePlan := plan(variant{delta: true}, &client, &selection, to, false)
		for _, e := range responsePlan.puts {
			gotPuts = append(gotPuts, e.Name)
		}
		require.Equal(t, wantPuts, gotPuts)
		require.ElementsMatch(t, wantRemoved, responsePlan.removed)
		require.Equal(t, clientState{state: to}, responsePlan.client)
	}
}

// Only the name is known of a resource that a resuming client has and that no longer exists. It cannot be sent, even if
// the client adds a wildcard before its removal is sent; the removal is sent once.
func TestResumedResource_DeletedIsNeverSent(t *testing.T) {
	goal := (&state{revision: 1}).apply([]change{{"a", thing(t, "a@1")}, {"b", thing(t, "b@1")}})
	v, named := variant{delta: true}, map[string]struct{}{"a": {}, "gone": {}}

	client := clientState{state: initialState, brought: broughtVersions(t, "gone@1")}
	responsePlan := plan(v, &client, &subscriptionNames{names: named}, goal, true)
	puts, removed := mentioned(t, &responsePlan, v)
	require.Equal(t, []string{"a@1"}, puts)
	require.Empty(t, removed, "no removal is due yet")

	client = responsePlan.client
	client.mustRespond, client.resendAll = true, true
	responsePlan = plan(v, &client, &subscriptionNames{wildcard: true, names: named}, goal, true)
	puts, removed = mentioned(t, &responsePlan, v)
	require.Equal(t, []string{"a@1", "b@1"}, puts)
	require.Empty(t, removed, "it has it by name")

	client = responsePlan.client
	responsePlan = plan(v, &client, &subscriptionNames{wildcard: true, names: named}, goal, false)
	puts, removed = mentioned(t, &responsePlan, v)
	require.Empty(t, puts)
	require.Equal(t, []string{"gone"}, removed)
	require.Equal(t, clientState{state: goal}, responsePlan.client)
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

// A client that resumes with a recent state of a collection is sent the changes since, without a lookup of each
// version.
func TestResumingFromARecentState(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	name := func() string { return fmt.Sprintf("n%d", random.IntN(200)) }
	collection := NewCollection(Type{URL: "t"}, Debounce{})
	states := []*state{collection.current.Load()}
	for range 2000 {
		var commit Commit
		for range random.IntN(4) + random.IntN(2)*random.IntN(150) {
			commit.Put = append(commit.Put, &Entry{Name: name(), Version: fmt.Sprint(random.IntN(3))})
			commit.Remove = append(commit.Remove, name())
		}
		commit.Reset = random.IntN(100) == 0
		collection.Apply(commit)
		to := collection.current.Load()
		states = append(states, to)
		resumed := states[max(len(states)-1-random.IntN(20)*random.IntN(20), 0)]
		if resumed.len == 0 {
			continue
		}
		var items []string
		for e := range resumed.entries() {
			items = append(items, e.Name+"@"+e.Version)
		}
		brought := broughtVersions(t, items...)
		require.Equal(t, resumed.fingerprint, brought.Fingerprint)
		client := clientState{state: initialState, brought: brought}
		if random.IntN(3) == 0 {
			client.mustAnswer(name())
			client.mustResend(name())
		}
		puts, removals := client.compareAll(to)
		looked := client
		initial := *brought
		looked.brought = &initial
		looked.brought.Fingerprint = wire.Fingerprint{}.Plus("?", "") // of no state
		wantPuts, wantGone := looked.compareAll(to)
		require.Equal(t, wantPuts, puts)
		require.Equal(t, wantGone, removals)
	}
	_, matches := collection.current.Load().replacedSince(states[len(states)-2].fingerprint)
	require.True(t, matches)
	_, matches = collection.current.Load().replacedSince(wire.Fingerprint{}.Plus("?", ""))
	require.False(t, matches)
}
