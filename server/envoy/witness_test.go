package envoy

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
	"tributary/server/xds"
)

// Who accepts what he is told does not speak for what he is not told: routes without hosts, to a client on demand, or those of another namespace.
func TestWhoIsNotToldTheBadPartIsNoWitness(t *testing.T) {
	direct := func(text string, match ...*networking.HTTPMatchRequest) *networking.HTTPRoute {
		return &networking.HTTPRoute{Match: match, DirectResponse: &networking.HTTPDirectResponse{
			Status: 200, Body: &networking.HTTPBody{Specifier: &networking.HTTPBody_String_{String_: text}},
		}}
	}
	for name, c := range map[string]struct {
		other *corev3.Node
		bad   []*networking.HTTPRoute
	}{
		"on demand":         {stranger(), []*networking.HTTPRoute{direct("bad.")}}, // which has not asked for the host
		"another namespace": {node("shop", "NONE", ""), []*networking.HTTPRoute{direct("bad.", &networking.HTTPMatchRequest{SourceNamespace: "default"}), direct("good.")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, answering(t, "vs3", "old."), answering(t, "vs4", "innocent, old."))
			honest := s.critic(nodes[0], disliked("bad."))
			other := s.critic(c.other, contented)
			s.eventually(func() bool { return honest.hasRoutes("innocent, old.") && other.hasRoutes() }, "")
			s.table.Apply([]*resource.Resource{
				virtual(t, "vs3", &networking.VirtualService{Hosts: []string{"vs3.internal"}, Http: c.bad}), answering(t, "vs4", "innocent, new."),
			}, nil)
			s.eventually(func() bool { return honest.hasRoutes("innocent, new.") }, "the rest goes on")
			require.True(t, honest.hasRoutes("old."), "and what is rejected is as it was")
			s.eventually(func() bool { return s.ended(endedQuarantined) == 1 }, "")
			require.Equal(t, []string{"vs3"}, s.quarantined())
		})
	}
}

// Who asks for a domain that another host has speaks for that one, and not for a host that would have it, too.
func TestADomainOfAnotherHostIsNoWitness(t *testing.T) {
	const service = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %[1]s, namespace: default}\n" +
		"spec: {hosts: [%[1]s.internal], addresses: [10.0.0.1], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}\n---\n"
	c := catalogOf(t, fmt.Sprintf(service, "a")+fmt.Sprintf(service, "b")+
		"apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: b, namespace: default}\nspec: {hosts: [b.internal], http: [{directResponse: {status: 200}}]}\n")
	p := profileOf(nodes[0])
	p.onDemand = true
	s := c.newScope(p)
	h := hearing{Catalog: c, scope: s, rejected: []xds.Resource{{Name: "80/b.internal"}}}
	h.about.TypeURL = xds.VHostURL
	names := h.within(s, xds.VHostURL, h.piecesOf(suspect{&trial{key: keyOf("b")}, map[string]struct{}{"b.internal": {}}}))
	require.Contains(t, names, "80/b.internal")
	require.NotContains(t, names, "80/10.0.0.1")
}
