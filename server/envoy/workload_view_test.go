package envoy

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"tributary/internal/testutil"
	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// Clients that serve different ports share a scope. A change of an endpoint reviews no workload view, a change of a
// policy those of the clients that it selects, and a change of a rule those of its service.
func TestWorkloadViews_UpdatedByRelevantChanges(t *testing.T) {
	const policy = `---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: p, namespace: shop}
spec: {selector: {matchLabels: {app: two}}, action: %s, rules: [{to: [{operation: {paths: [/x]}}]}]}
`
	const rule = `---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: d, namespace: shop}
spec: {host: s1.internal, trafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}}}
`
	var text strings.Builder
	for i := range 3 {
		text.WriteString(serviceAt(fmt.Sprint("s", i), 80+i, fmt.Sprintf("{address: 10.0.0.%d}", i)))
	}
	text.WriteString(serviceAt("s9", 80, "{address: 10.0.9.1}"))
	steps := newSteps(Options{}, decoded(t, text.String()+fmt.Sprintf(policy, "ALLOW"))...)
	for i := range 3 {
		for _, app := range []string{"one", "two"} {
			n := nodeWith(nodeAt(fmt.Sprint("10.0.0.", i), node("shop", "REDIRECT", "")), "app", app)
			_, release, err := steps.c.Collection(t.Context(), n, xds.ListenerURL)
			require.NoError(t, err)
			defer release()
		}
	}
	require.Len(t, steps.c.following, 2)
	steps.apply(decoded(t, fmt.Sprintf(rule, 1)))
	concerned := func(change string) (updated []string) {
		for followed := range steps.c.following {
			require.Len(t, followed.workloadViews, 3)
			for _, v := range followed.workloadViews {
				v.inbound = model.InboundText(change, nil) // so that the next look finds a difference
			}
		}
		before := make(map[*scope]map[string]any)
		for followed := range steps.c.following {
			before[followed] = make(map[string]any)
			for unit := range followed.workloadViews {
				before[followed][unit] = followed.translations[unit]
			}
		}
		steps.apply(decoded(t, change))
		for followed := range steps.c.following {
			for unit, v := range followed.workloadViews {
				if before[followed][unit] != any(followed.translations[unit]) {
					updated = append(updated, model.LabelMapOf(followed.profile.Labels)["app"]+" "+v.servedPorts[0].Host)
				}
			}
		}
		return updated
	}
	require.Empty(t, concerned(serviceAt("s9", 80, "{address: 10.0.9.1}, {address: 10.0.9.2}")), "an endpoint more")
	require.ElementsMatch(t, []string{"two s0.internal", "two s1.internal", "two s2.internal"}, concerned(fmt.Sprintf(policy, "DENY")))
	require.ElementsMatch(t, []string{" s1.internal", "two s1.internal"}, concerned(fmt.Sprintf(rule, 2)))
}

// The number of port sets that clients serve is limited because clients may invent addresses.
func TestWorkloadViews_Limited(t *testing.T) {
	testutil.OneGoroutine(t)
	s := newSteps(Options{}, decoded(t, `
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: in, namespace: shop}
spec: {ingress: [{port: {number: 9080, protocol: HTTP, name: a}, defaultEndpoint: "0.0.0.0:8080"}]}
`)...)
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}})
	var err error
	for i := 0; i <= model.MaxWorkloadViewsOfHost && err == nil; i++ {
		var release func()
		_, release, err = s.c.Collection(ctx, nodeAt(fmt.Sprintf("10.0.%d.%d", i/250, i%250), node("shop", "NONE", "")), xds.ListenerURL)
		if err == nil {
			defer release()
		}
	}
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.ErrorContains(t, err, "too many different sets of ports that workloads serve in use by 192.0.2.1")
	require.Len(t, s.c.following, 1)
	for followed := range s.c.following {
		require.Len(t, followed.workloadViews, model.MaxWorkloadViewsOfHost)
		require.Equal(t, int64(model.MaxWorkloadViewsOfHost), followed.clients.Load(), "the one that is refused has left")
	}
}

// A client that comes while most services go has its inbound listeners.
func TestClientConnect_DuringServiceDeletions(t *testing.T) {
	passing := services(t, 300, "10.0.9.1")
	s := newSteps(Options{}, append(decoded(t, serviceAt("one", 80, "{address: 10.0.0.1}")+serviceAt("two", 90, "{address: 10.0.0.2}")),
		passing...)...)
	var keys []resource.Key
	for _, r := range passing {
		keys = append(keys, r.Key())
	}
	_, release, err := s.c.Collection(t.Context(), nodeAt("10.0.0.1", node("shop", "REDIRECT", "")), xds.ListenerURL)
	require.NoError(t, err)
	defer release()
	profile := model.ProfileOf(nodeAt("10.0.0.2", node("shop", "REDIRECT", "")))
	defer s.c.selectProfile(&profile, nodeAt("10.0.0.2", node("shop", "REDIRECT", "")), nil)()
	var changes sync.WaitGroup
	for followed := range s.c.following {
		workloadView := newWorkloadView(followed, profile)
		before := s.c.meshView().Revision()
		ctx := &hooked{Context: t.Context(), hook: func() {
			changes.Go(func() { s.apply(nil, keys...) })
			for s.c.meshView().Revision() == before {
			}
		}}
		require.NoError(t, s.c.makeWorkloadView(ctx, workloadView))
		changes.Wait()
		require.Negative(t, ctx.calls)
		require.NotNil(t, workloadView.listeners.Get("virtualInbound"))
	}
}

// The rules of a policy are translated once, and not for each set of ports: clients may make up a thousand.
func TestPolicy_TranslatedOnce(t *testing.T) {
	const variants = 20
	policy := func(action string, rules int) []*resource.Resource {
		return decoded(t, "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: p, namespace: shop}\n"+
			"spec:\n  action: "+action+"\n  rules:\n"+strings.Repeat("  - {to: [{operation: {paths: [/x, /y]}}]}\n", rules))
	}
	ofRules := func(clients int) float64 {
		var text strings.Builder
		for i := range variants {
			text.WriteString(serviceAt(fmt.Sprint("s", i), 80+i, fmt.Sprintf("{address: 10.0.0.%d}", i)))
		}
		s := newSteps(Options{}, decoded(t, text.String())...)
		for i := range clients {
			_, release, err := s.c.Collection(t.Context(), nodeAt(fmt.Sprint("10.0.0.", i), node("shop", "REDIRECT", "")), xds.ListenerURL)
			require.NoError(t, err)
			defer release()
		}
		allocated := func(rules int) float64 {
			deny, allow := policy("DENY", rules), policy("ALLOW", rules)
			return testing.AllocsPerRun(1, func() { s.apply(deny); s.apply(allow) })
		}
		return allocated(201) - allocated(1)
	}
	require.Less(t, ofRules(variants), 3*ofRules(1))
}
