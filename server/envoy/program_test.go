package envoy

import (
	"log/slog"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/model"
)

const (
	uuid    = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
	tenants = "/tenants/" + uuid + "/orders/" + uuid
)

// An Envoy gets no regular expression that its runtime does not allow: the route answers 500 and is named.
func TestLargeRegex_OnlyForEnvoysThatAllowIt(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, shared+strings.Replace(`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: large, namespace: default}
spec:
  hosts: [two.internal]
  http:
  - {match: [{uri: {regex: "%"}}], directResponse: {status: 201}}
  - {directResponse: {status: 202}}
`, "%", tenants, 1)), nil)
	catalog := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	catalog.update(nil, table.Snapshot(), false, true)
	large := table.Snapshot().Get(resource.Key{Kind: resource.VirtualService, Namespace: "default", Name: "large"})
	istio, ours := node("default", "", ""), node("default", "", "")
	istio.Metadata.Fields[model.MetadataIstio] = structpb.NewStringValue("1.27.9")
	ours.Metadata.Fields[model.MetadataProgram] = structpb.NewStringValue("32768")
	statuses := func(routes []*routev3.Route) (list []uint32) {
		for _, r := range routes {
			list = append(list, r.GetDirectResponse().GetStatus())
		}
		return list
	}
	for name, tt := range map[string]struct {
		routes []*routev3.Route
		want   []uint32
	}{
		"Istio's": {routesFor(t, catalog, istio, "two.internal"), []uint32{201, 202}},
		"ours":    {routesFor(t, catalog, ours, "two.internal"), []uint32{201, 202}},
		"gRPC":    {routesFor(t, catalog, node("default", "", "gRPC Go"), "two.internal"), []uint32{201, 202}},
	} {
		require.Equal(t, tt.want, statuses(tt.routes), name)
	}
	require.Empty(t, catalog.WithoutEffect(large))
	plain := routesFor(t, catalog, node("default", "", ""), "two.internal")
	require.Equal(t, []uint32{500, 202}, statuses(plain))
	require.Equal(t, "/tenants/", plain[0].GetMatch().GetPrefix())
	named := catalog.WithoutEffect(large)
	require.Len(t, named, 1)
	require.Contains(t, named[0], "spec.http[0].match.uri has no effect on Envoys: compiles to about 157 RE2 instructions; "+
		"Envoy's re2.max_program_size.error_level allows 100")
	find, err := Findings(&table)
	require.NoError(t, err)
	require.Len(t, find(large), 1)
}

// routesFor returns the routes of a host.
func routesFor(t *testing.T, c *Catalog, n *corev3.Node, host string) []*routev3.Route {
	t.Helper()
	for _, m := range dump(t, c, n) {
		r, _ := m.(*routev3.RouteConfiguration)
		for _, v := range r.GetVirtualHosts() {
			if v.GetDomains()[0] == host {
				return v.GetRoutes()
			}
		}
	}
	return nil
}

// Envoy's regular expressions match bytes, not characters: Envoy refuses an escape of more than a byte, with all routes
// of the port.
func TestEscapesBeyondBytes(t *testing.T) {
	for _, re := range []string{`[\x{D800}-\x{DFFF}]|.*`, `\x{100}`, `\x{1F600}`, `a|\777`, `\Q\x{41}\E\x{E000}`, `\\\x{100}`} {
		require.NotEmpty(t, model.RegexProblem(re, model.LargeProgram), re)
	}
	for _, re := range []string{`\x{41}`, `\x{0FF}`, `[^\x{FF}]`, `\0777`, `\177`, `\xFF`, `[é-ö]|é`, `\Q\x{100}\E`, `\\x{100}`, `\pL`} {
		require.Empty(t, model.RegexProblem(re, model.LargeProgram), re)
	}
}
