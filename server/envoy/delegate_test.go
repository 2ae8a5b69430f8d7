package envoy

import (
	"log/slog"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/xds"
)

func virtual(t *testing.T, name string, spec *networking.VirtualService) *resource.Resource {
	t.Helper()
	r, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.VirtualService, Namespace: "default", Name: name}}, spec)
	require.NoError(t, err)
	return r
}

func prefix(p string) []*networking.HTTPMatchRequest {
	return []*networking.HTTPMatchRequest{{Uri: &networking.StringMatch{MatchType: &networking.StringMatch_Prefix{Prefix: p}}}}
}

// A delegate's routes stand at the position of the delegation and match the conditions of both; findings name circles
// and missing delegates, and the remaining routes are served.
func TestDelegates(t *testing.T) {
	answer := func(status uint32, match []*networking.HTTPMatchRequest) *networking.HTTPRoute {
		return &networking.HTTPRoute{Match: match, DirectResponse: &networking.HTTPDirectResponse{Status: status}}
	}
	to := func(name, p string) *networking.HTTPRoute {
		return &networking.HTTPRoute{Match: prefix(p), Delegate: &networking.Delegate{Name: name}}
	}
	var table memstore.Table
	root := virtual(t, "root", &networking.VirtualService{Hosts: []string{"a.internal"}, Http: []*networking.HTTPRoute{
		to("team", "/team"), to("lost", "/lost"), answer(204, nil),
	}})
	team := func(status uint32) *resource.Resource {
		return virtual(t, "team", &networking.VirtualService{Http: []*networking.HTTPRoute{
			answer(status, prefix("/team/x")), answer(404, prefix("/elsewhere")), to("root", "/team/circle"), answer(203, nil),
		}})
	}
	table.Apply([]*resource.Resource{root, team(201)}, nil)
	catalog := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	catalog.update(nil, table.Snapshot(), false, true)
	routes := func() map[string]uint32 {
		got := make(map[string]uint32)
		for _, v := range dump(t, catalog, nodes[0])[xds.RouteURL+"/80"].(*routev3.RouteConfiguration).GetVirtualHosts() {
			for _, r := range v.GetRoutes() {
				if r.GetDirectResponse() != nil {
					got[r.GetMatch().GetPrefix()] = r.GetDirectResponse().GetStatus()
				}
			}
		}
		return got
	}
	require.Equal(t, map[string]uint32{"/team/x": 201, "/team": 203, "/": 204}, routes())
	revision := table.Snapshot().Revision()
	table.Apply([]*resource.Resource{team(202)}, nil)
	keys, snap, ok := table.Changes(revision)
	require.True(t, ok)
	catalog.update(keys, snap, true, true)
	require.Equal(t, map[string]uint32{"/team/x": 202, "/team": 203, "/": 204}, routes())

	require.Equal(t, []string{
		"spec.http[1].delegate has no effect on Envoys: there is no VirtualService default/lost without hosts that is exported here: the route " +
			"is left out",
	}, catalog.WithoutEffect(root))
	require.Equal(t, []string{
		"spec.http[2].delegate has no effect on Envoys: a delegate does not delegate any further: the route is left out",
		"spec.http[1] has no effect on Envoys: some match of it is none of the route of VirtualService default/root that delegates to it",
	}, catalog.WithoutEffect(team(202)))
}

// As with istiod, each condition of a delegate's route has to lie within one of the route that delegates to it, or it
// is left out; and names are completed by the namespace of the object that has them.
func TestDelegatesAsIstiodMergesThem(t *testing.T) {
	c := catalogOf(t, `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: root, namespace: default}
spec:
  hosts: [root.internal]
  http: [{match: [{uri: {prefix: /a}}, {uri: {prefix: /b}}], delegate: {name: team, namespace: other}, mirror: {host: mirror}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: team, namespace: other}
spec:
  http:
  - {name: outside, match: [{uri: {prefix: /a/b}}, {uri: {prefix: /c}}], route: [{destination: {host: own}}]}
  - {name: within, match: [{uri: {prefix: /b/x}}, {uri: {prefix: /a/x}}], route: [{destination: {host: own}}]}
  - {name: all, route: [{destination: {host: own}}]}
`)
	var got []string
	for _, r := range dump(t, c, nodes[0])[xds.RouteURL+"/80"].(*routev3.RouteConfiguration).GetVirtualHosts()[0].GetRoutes() {
		got = append(got, r.GetName()+" "+r.GetMatch().GetPathSeparatedPrefix()+r.GetMatch().GetPrefix())
		require.Equal(t, "outbound|80||own.other", r.GetRoute().GetCluster())
		require.Equal(t, "outbound|80||mirror.default", r.GetRoute().GetRequestMirrorPolicies()[0].GetCluster())
	}
	require.Equal(t, []string{"within /b/x", "within /a/x", "all /a", "all /b"}, got)
}
