package envoy

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tributary/memstore"
	"tributary/server/envoy/model"
	"tributary/server/xds"
)

func nodeAt(region, zone, subZone string) *corev3.Node {
	n := proto.CloneOf(nodes[0])
	n.Locality = &corev3.Locality{Region: region, Zone: zone, SubZone: subZone}
	return n
}

// somewhere is a part of a place, of few.
func somewhere(random *rand.Rand, some ...string) string { return some[random.IntN(len(some))] }

func randomPlaces(random *rand.Rand) string {
	var text strings.Builder
	part := func(also ...string) string { return somewhere(random, append(also, "a", "b", "c")...) }
	place := func() string {
		return strings.Join([]string{part(), part(), part("a/b", "")}[:1+random.IntN(3)], "/")
	}
	for i := range 3 {
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: s%d, namespace: default}\nspec: "+
			"{hosts: [s%d.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC", i, i)
		if i == 0 {
			text.WriteString(", workloadSelector: {labels: {app: s}}}\n")
		} else {
			text.WriteString(", endpoints: [")
			for j := range random.IntN(4) {
				if random.IntN(4) == 0 {
					fmt.Fprintf(&text, "{address: 10.0.0.%d, labels: {istio-locality: %s}},", j, strings.ReplaceAll(place(), "/", "."))
				} else {
					fmt.Fprintf(&text, "{address: 10.0.0.%d, locality: %s},", j, place())
				}
			}
			text.WriteString("]}\n")
		}
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: w%d, namespace: default}\nspec: "+
			"{address: 10.0.1.%d, labels: {app: s}, locality: %s}\n", i, i, place())
		setting := ""
		switch random.IntN(4) {
		case 0:
			pattern := func() string {
				return strings.Join([]string{part("'*'"), part("'*'"), part("'*'")}[:1+random.IntN(3)], "/")
			}
			setting = fmt.Sprintf(", loadBalancer: {localityLbSetting: {distribute: [{from: %q, to: {%q: 60, %q: 40}}]}}",
				strings.ReplaceAll(pattern(), "'", ""), place(), "d/"+part())
		case 1:
			setting = fmt.Sprintf(", loadBalancer: {localityLbSetting: {failover: [{from: %s, to: %s}]}}", part("d"), part())
		case 2:
			continue
		}
		fmt.Fprintf(&text, "---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: d%d, namespace: default}\nspec: "+
			"{host: s%d.internal, trafficPolicy: {outlierDetection: {}%s}}\n", i, i, setting)
	}
	return strings.TrimPrefix(text.String(), "---\n")
}

// What is left of a client's place tells it from others as the whole does, wherever endpoints are and whatever rules say.
func TestWhatIsLeftOfAPlaceIsAllThatMatters(t *testing.T) {
	if testing.Short() {
		t.Skip("much work of one goroutine")
	}
	reduced := 0
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's
		text := randomPlaces(random)
		var table memstore.Table
		table.Apply(decoded(t, text), nil)
		c := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
		c.update(nil, table.Snapshot(), false, true)
		if random.IntN(2) == 0 { // and is something else then
			text = randomPlaces(random)
			table.Apply(decoded(t, text), nil)
			c.update(nil, table.Snapshot(), false, true)
		}
		for range 8 {
			part := func() string { return somewhere(random, "a", "b", "c", "d", "x", "", "a/b") }
			p := model.ProfileOf(nodeAt(part(), part(), part()))
			whole := p
			c.narrow(&p)
			if whole.Place != p.Place {
				reduced++
			}
			whole.Labels, whole.Labelled, whole.Namespace, whole.Credentials = p.Labels, p.Labelled, p.Namespace, p.Credentials
			want, got := versionsIn(c.newScope(whole).endpoints), versionsIn(c.newScope(p).endpoints)
			require.True(t, maps.Equal(want, got), "seed %d: %+v and %+v\n%s", seed, whole.Place, p.Place, text)
		}
	}
	require.Greater(t, reduced, 500)
}

// However many places clients make up, they are told what one of them is.
func TestMadeUpPlacesAreOneProfile(t *testing.T) {
	var table memstore.Table
	table.Apply(decoded(t, `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: default}
spec: {hosts: [a.internal], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1, locality: eu/a/1}, {address: 10.0.0.2, locality: us/b}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: a, namespace: default}
spec: {host: a.internal, trafficPolicy: {outlierDetection: {}, loadBalancer: {localityLbSetting: {failover: [{from: as, to: us}]}}}}
`), nil)
	c := New(&table, Options{Log: slog.New(slog.DiscardHandler)})
	c.update(nil, table.Snapshot(), false, true)
	for i := range 300 {
		for _, n := range []*corev3.Node{
			nodeAt(fmt.Sprint("made up", i), "a", "1"), nodeAt("eu", fmt.Sprint("made up", i), "1"), nodeAt("eu", "a", fmt.Sprint("made up", i)),
			nodeAt("as", "", fmt.Sprint(i)),
		} {
			_, _, err := c.Collection(t.Context(), n, xds.EndpointURL)
			require.NoError(t, err)
		}
	}
	require.Len(t, c.following, 4)
}
