package envoy

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

// nodeWith returns a node with labels: name, value, and so on.
func nodeWith(node *corev3.Node, labels ...string) *corev3.Node {
	node = proto.CloneOf(node)
	fields := make(map[string]*structpb.Value)
	for i := 0; i < len(labels); i += 2 {
		fields[labels[i]] = structpb.NewStringValue(labels[i+1])
	}
	node.GetMetadata().GetFields()[model.MetadataLabels] = structpb.NewStructValue(&structpb.Struct{Fields: fields})
	return node
}

const selecting0 = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: canary, namespace: default}
spec: {hosts: [one.internal], http: [{match: [{sourceLabels: {pod-index: "0"}}], route: [{destination: {host: two.internal}}]}, ` +
	`{route: [{destination: {host: one.internal}}]}]}
`

// Clients that no object tells apart have one profile, whatever their number and locality.
func TestIndistinguishableClients_ShareProfile(t *testing.T) {
	for name, tt := range map[string]struct {
		objects  string
		profiles int
	}{"no rule reads the label": {shared, 1}, "one reads whether it is a certain one": {shared + "---" + selecting0, 2}} {
		t.Run(name, func(t *testing.T) {
			var table memstore.Table
			table.Apply(decoded(t, tt.objects), nil)
			c := catalogOfTable(&table)
			var before, after runtime.MemStats
			for i := range 5000 {
				if i == 2 {
					runtime.GC()
					runtime.ReadMemStats(&before)
				}
				_, _, err := c.Collection(t.Context(), nodeWith(nodes[0], "app", "one", "pod-index", fmt.Sprint(i)), xds.ClusterURL)
				require.NoError(t, err, "node %d", i)
			}
			require.Len(t, c.following, tt.profiles)
			runtime.GC()
			runtime.ReadMemStats(&after)
			t.Logf("%d bytes more with 4,998 nodes more", int64(after.HeapAlloc)-int64(before.HeapAlloc)) //nolint:gosec // they are not that many
		})
	}
}

// sight holds the resources of clients that stay connected, as the streams of an engine do.
type sight struct {
	*testing.T
	catalog     *Catalog
	nodes       []*corev3.Node
	collections []map[string]*xds.Collection
	release     []func()
}

func see(t *testing.T, c *Catalog, nodes []*corev3.Node) *sight {
	s := &sight{T: t, catalog: c, nodes: nodes}
	c.SetReview(s.Review)
	s.Review()
	return s
}

func (s *sight) Review() {
	var collections []map[string]*xds.Collection
	var release []func()
	for i, n := range s.nodes {
		byURL := make(map[string]*xds.Collection)
		for _, url := range dumped {
			coll, releaseCollection, err := s.catalog.Collection(context.Background(), n, url)
			require.NoError(s, err)
			byURL[url] = coll
			release = append(release, releaseCollection)
			if s.collections != nil {
				require.Equal(s, versionsIn(s.collections[i][url]), versionsIn(coll),
					"a client that moves to another profile gets equal resources first")
			}
		}
		collections = append(collections, byURL)
	}
	old := s.release
	s.collections, s.release = collections, release
	for _, releaseOld := range old {
		releaseOld()
	}
}

func versionsIn(c *xds.Collection) map[string]string {
	versions := make(map[string]string)
	for e := range c.All() {
		versions[e.Name] = e.Version
	}
	return versions
}

const gatewayFor = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: gateway, namespace: default}
spec: {selector: {%s}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: routes, namespace: default}
spec: {hosts: [one.internal], gateways: [gateway], http: [{route: [{destination: {host: one.internal}}]}]}
`

// A gateway that is selected by one label, and then by another, keeps its listener in between: its profile changes
// before an object selects by the label.
func TestSelectedLabels_ComeAndGo(t *testing.T) {
	served := serve(t, decoded(t, shared+"---"+fmt.Sprintf(gatewayFor, "app: one"))...)
	router := nodeWith(gatewayNode("default"), "app", "one", "version", "v1", "pod-index", "7")
	c := served.critic(router, func(string, string, []byte) string { return "" }, xds.ListenerURL)
	otherGateway := served.critic(nodeWith(gatewayNode("default"), "app", "one", "version", "v2"),
		func(string, string, []byte) string { return "" },
		xds.ListenerURL)
	hasListener := func(c *critic) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.resources[xds.ListenerURL+"/0.0.0.0_80"]) > 0
	}
	served.eventually(func() bool { return hasListener(c) && hasListener(otherGateway) }, "both are selected")
	served.catalog.mu.RLock()
	require.Len(t, served.catalog.following, 1)
	served.catalog.mu.RUnlock()
	for i, selector := range []string{"version: v1", `pod-index: "7"`, "app: one, version: v1", `version: v1`} {
		served.table.Apply(decoded(t, fmt.Sprintf(gatewayFor, selector)), nil)
		served.eventually(func() bool { return !hasListener(otherGateway) }, selector)
		name := fmt.Sprintf("mark%d", i)
		served.table.Apply([]*resource.Resource{serviceEntry(t, name)}, nil)
		served.eventually(func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.resources[xds.ClusterURL+"/outbound|80||"+name+".internal"] != nil
		}, "it follows")
	}
	require.True(t, hasListener(c))
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Empty(t, c.lost)
}
