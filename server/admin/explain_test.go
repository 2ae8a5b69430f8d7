package admin_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/aggregate"
	"tributary/aggregate/conflicts"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/server/xds"
	"tributary/sources"
	"tributary/sources/guard"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// viewOf returns the view of synced sources, once it is synced.
func viewOf(t *testing.T, sources ...aggregate.Source) *aggregate.View {
	t.Helper()
	view := aggregate.New(sources...)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = view.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	for changed := view.Changed(); !view.Synced(); changed = view.Changed() {
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			require.FailNow(t, "the view is not synced")
		}
	}
	return view
}

// shop returns a server of two sources, one of them unreachable, and three clients.
func shop(t *testing.T) *admin.Server {
	t.Helper()
	rules, table := &memstore.Table{}, &memstore.Table{}
	reviews := entry(t, "reviews", "rules", "reviews.yaml:1")
	rules.Apply([]*resource.Resource{reviews, entry(t, "ratings", "rules", "ratings.yaml:1")}, nil)
	spec := &networking.ServiceEntry{Hosts: []string{"reviews.example"}, Ports: []*networking.ServicePort{{Number: 80}}}
	merged, err := resource.New(resource.Meta{Key: reviews.Key(), Origin: resource.Origin{Source: "dc1", Place: "dc1 service reviews"}}, spec)
	require.NoError(t, err)
	table.Apply([]*resource.Resource{merged}, nil)
	rules.MarkSynced()
	table.MarkSynced()

	view := viewOf(t, aggregate.Source{Name: "rules", Reader: rules}, aggregate.Source{Name: "dc1", Reader: table})
	w := &world{
		config: fakeConfig{status: admin.ConfigStatus{File: "tributary.yaml", Loaded: noon}},
		clients: parsed[[]xds.ClientStatus](t, `
- streamID: 1
  node: {id: istiod-1}
  peer: 10.0.0.1:5
  connected: "2026-01-02T12:00:00Z"
  types:
  - {typeURL: networking.istio.io/v1/ServiceEntry, wildcard: true, synced: true, responses: 1,
     sentVersion: v1, sentNonce: "1", sentAt: "2026-01-02T12:00:00Z",
     ackedVersion: v1, ackedNonce: "1", ackedAt: "2026-01-02T12:00:00Z"}
  - {typeURL: networking.istio.io/v1/Gateway, wildcard: true, responses: 1, nacks: 1,
     sentVersion: v1, sentNonce: "2", sentAt: "2026-01-02T12:00:00Z",
     nackNonce: "2", nackError: no such port, nackAt: "2026-01-02T12:00:00Z"}
- streamID: 2
  node: {id: istiod-canary}
  peer: 10.0.0.2:5
  connected: "2026-01-02T12:00:00Z"
  delta: true
  types: [{typeURL: networking.istio.io/v1beta1/ServiceEntry, wildcard: true}]
- {streamID: 3, peer: "10.0.0.3:5", connected: "2026-01-02T12:00:00Z"}
`),
		sources: parsed[[]sources.Status](t, `
- {name: dc1, address: "consul://dc1", message: connection refused, since: "2026-01-02T12:00:00Z", synced: true,
   objects: {ServiceEntry: 1}, lastPublish: "2026-01-02T11:59:00Z"}
- name: rules
  address: fs:///rules
  since: "2026-01-02T12:00:00Z"
  synced: true
  objects: {ServiceEntry: 2}
  lastPublish: "2026-01-02T11:59:00Z"
  quarantined:
  - {kind: ServiceEntry, namespace: shop, name: ratings, group: ratings.yaml, place: "ratings.yaml:1",
     reason: port number 80000, since: "2026-01-02T12:00:00Z", lastGoodServes: true}
  - {kind: Gateway, namespace: shop, name: front, group: front.yaml, place: "front.yaml:1", reason: no servers,
     since: "2026-01-02T12:00:00Z"}
  - {group: junk.yaml, place: "junk.yaml:3", reason: not YAML, since: "2026-01-02T12:00:00Z"}
  conflicts: [{kind: ServiceEntry, namespace: shop, name: reviews, winner: "reviews.yaml:1", losers: ["z.yaml:9"]}]
`),
	}
	w.sources[0].State, w.sources[1].State = sources.Unreachable, sources.Healthy
	return newServer(w, func(o *admin.Options) {
		o.View = view
		o.Visible = func(node *corev3.Node, _ *resource.Resource) bool { return node.GetId() != "istiod-canary" }
	})
}

func TestExplain_Answers(t *testing.T) {
	server := shop(t)
	for name, query := range map[string]string{
		"explain-winner.json":     "kind=se&namespace=shop&name=reviews",
		"explain-quarantine.json": "kind=ServiceEntry&namespace=shop&name=ratings",
		"explain-never-good.json": "kind=gateways&namespace=shop&name=front",
		"explain-nothing.json":    "kind=se&namespace=shopp&name=review",
		"explain-host.json":       "host=Ratings.example",
		"explain-no-host.json":    "host=ratings.shop.svc",
	} {
		status, body := get(t, server, "/debug/explain?"+query)
		assert.Equal(t, http.StatusOK, status, name)
		golden(t, name, body)
	}
	for _, query := range []string{"", "kind=se", "name=x", "kind=cheese&name=x", "host=x&name=x"} {
		status, _ := get(t, server, "/debug/explain?"+query)
		assert.Equal(t, http.StatusBadRequest, status, query)
	}
}

// Settings without an effect on Envoys are counted, listed and explained.
func TestWithoutEffect_CountedListedAndExplained(t *testing.T) {
	reviews := entry(t, "reviews", "rules", "reviews.yaml:1")
	server := newServer(&world{}, serving(t, "rules", reviews), func(o *admin.Options) {
		o.WithoutEffect = func(*resource.Resource) []string { return []string{"spec.x has no effect on Envoys: why"} }
		o.Affected = func() []resource.Key { return []resource.Key{reviews.Key(), {Kind: resource.Sidecar, Name: "gone"}} }
	})
	_, body := get(t, server, "/debug/no-effect")
	assert.JSONEq(t, `[{"kind": "ServiceEntry", "namespace": "shop", "name": "reviews", "origin": "rules: reviews.yaml:1", "what": `+
		`["spec.x has no effect on Envoys: why"]}]`, body)
	_, body = get(t, server, "/debug/status")
	assert.Contains(t, body, `"without_effect": 2`)
	_, body = get(t, server, "/debug/explain?kind=se&namespace=shop&name=reviews")
	assert.Contains(t, body, "spec.x has no effect on Envoys")
}

// Rejected resources appear on the page of all clients, and in the explanation of an object that changed before.
func TestRejected_ListedAndExplained(t *testing.T) {
	web := resource.Key{Kind: resource.VirtualService, Namespace: "shop", Name: "web"}
	object, err := resource.New(resource.Meta{Key: web}, &networking.VirtualService{Hosts: []string{"web"}})
	require.NoError(t, err)
	rejects := func(id string, moment time.Time) xds.ClientStatus {
		return xds.ClientStatus{Node: &corev3.Node{Id: id}, Peer: "10.0.0.1:5", Types: []xds.TypeStatus{
			{TypeURL: xds.RouteURL, Rejected: []xds.Rejection{{
				Name: "80", Version: "v2", Acked: "v1", Revision: 7,
				Error: "too large", Since: moment,
			}}},
			{TypeURL: "networking.istio.io/v1alpha3/ServiceEntry", Rejected: []xds.Rejection{{Name: "shop/" + id, Error: "no"}}},
		}}
	}
	w := &world{clients: []xds.ClientStatus{rejects("late", noon.Add(time.Hour)), rejects("early", noon)}}
	server := newServer(w, serving(t, "rules", object), func(o *admin.Options) {
		o.ChangedSince = func(_ *xds.Collection, r xds.Rejection) ([]resource.Key, bool) {
			return []resource.Key{web}, r.Revision == 7
		}
	})
	list := page[[]admin.Rejected](t, server, "/debug/rejected")
	require.Len(t, list, 3)
	assert.Equal(t, []conflicts.Ref{{Kind: resource.ServiceEntry, Namespace: "shop", Name: "early"}}, list[0].Changed)
	route := list[2] // after the rejections since the zero time
	assert.Equal(t, admin.Rejected{
		TypeURL: xds.RouteURL, Resource: "80", Version: "v2", Acked: "v1", Error: "too large", Node: "early", Peer: "10.0.0.1:5", Since: noon,
		Clients: 2,
		Changed: []conflicts.Ref{conflicts.Ref(web)},
	}, route)
	status := page[admin.Status](t, server, "/debug/status")
	assert.Equal(t, list, status.Rejected)
	last := status.Troubles()[len(status.Troubles())-1]
	assert.Equal(t, "early at 10.0.0.1:5 and 1 more reject RouteConfiguration 80: too large; "+
		"changed since the client last acknowledged it: VirtualService shop/web", last.Text)
	_, body := get(t, server, "/debug/explain?kind=vs&namespace=shop&name=web")
	assert.Contains(t, body, "too large")
}

// The rejections of one client or one address hide none of others, whatever their number; resources that most addresses
// reject come first.
func TestRejected_NoClientHidesOthers(t *testing.T) {
	const thing = "example.com/v1/Thing"
	client := func(peer string, moment time.Time, names ...string) xds.ClientStatus {
		rejected := xds.TypeStatus{TypeURL: thing}
		for _, name := range names {
			rejected.Rejected = append(rejected.Rejected, xds.Rejection{Name: name, Version: "of " + peer, Error: "no", Since: moment})
		}
		return xds.ClientStatus{Node: &corev3.Node{Id: peer}, Peer: peer, Types: []xds.TypeStatus{rejected}}
	}
	var many []string
	for i := range 150 {
		many = append(many, fmt.Sprintf("n%03d", i))
	}
	w := &world{clients: []xds.ClientStatus{client("10.0.0.1:1", noon, many...)}}
	for i := range 50 {
		w.clients = append(w.clients, client(fmt.Sprint("10.0.0.1:", i+2), noon.Add(time.Minute), "n000", fmt.Sprint("conn", i)))
	}
	w.clients = append(w.clients,
		client("10.0.0.1:99", noon.Add(time.Hour), "same address"),
		client("10.0.0.2:5", noon.Add(time.Hour), "other address"),
		client("10.0.0.3:5", noon.Add(time.Hour), "common"),
		client("[2001:db8::1]:5", noon.Add(2*time.Hour), "common"),
	)
	status := page[admin.Status](t, newServer(w), "/debug/status")
	require.Len(t, status.Rejected, 100)
	assert.Equal(t, 150+50+3-100, status.RejectedUnlisted)
	assert.Equal(t, "common", status.Rejected[0].Resource)
	assert.Equal(t, 2, status.Rejected[0].Clients)
	assert.Equal(t, "of 10.0.0.3:5", status.Rejected[0].Version)
	position := map[string]int{}
	for i, r := range status.Rejected {
		position[r.Resource] = i
	}
	assert.Equal(t, 1, position["n000"])
	assert.Equal(t, 2, position["other address"])
	assert.Equal(t, 53, position["same address"], "after the rejections of other connections of its address")
	troubles := status.Troubles()
	assert.Equal(t, "clients reject 103 more resources that are not listed", troubles[len(troubles)-1].Text)
}

func TestRejected_Causes(t *testing.T) {
	refs := []conflicts.Ref{{Kind: "A", Name: "a"}}
	for want, rejected := range map[string]admin.Rejected{
		"the client has acknowledged no version of it":                                   {Incomplete: true},
		"the client has acknowledged no version of it; it is made of A a":                {Changed: refs, Incomplete: true},
		"the changes since the client last acknowledged it are unknown":                  {Acked: "v", Incomplete: true},
		"no object of it changed since the client last acknowledged it":                  {Acked: "v"},
		"changed since the client last acknowledged it: A a":                             {Acked: "v", Changed: refs},
		"changed since the client last acknowledged it: A a, and perhaps others earlier": {Acked: "v", Changed: refs, Incomplete: true},
		"changed since the client last acknowledged it: A a, A a, A a, A a, A a, others": {Acked: "v", Changed: slices.Repeat(refs, 6)},
	} {
		assert.Equal(t, want, rejected.Causes())
	}
}

func TestExplain_ExcludedByTransform(t *testing.T) {
	w := &world{excluding: []sources.Excluded{{Source: "rules", Place: "rules/secret.yaml:3"}}}
	explanation := page[admin.Explanation](t, newServer(w), "/debug/explain?kind=se&namespace=shop&name=secret")
	assert.Equal(t, w.excluding, explanation.Excluded)
}

// TestExplain_DocumentsWithRequestedName lists the invalid documents with the requested name, of any kind.
func TestExplain_DocumentsWithRequestedName(t *testing.T) {
	document := func(kind resource.Kind, name, place string) sources.Quarantined {
		return sources.Quarantined{Ref: resource.Ref{Kind: kind, Namespace: "shop", Name: name}, Place: place, Reason: "no"}
	}
	w := &world{sources: []sources.Status{{Name: "rules", Quarantined: []sources.Quarantined{
		document("ServiceEntri", "c5", "c5.yaml:2:7"), document("ServiceEntri", "c6", "c6.yaml:2:7"),
	}}}}
	explanation := newServer(w).Explain(resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "c5"})
	require.Len(t, explanation.PossibleDocuments, 1)
	assert.Equal(t, "c5.yaml:2:7", explanation.PossibleDocuments[0].Place)
}

func TestExplain_HeldObject(t *testing.T) {
	broken := sources.Quarantined{Group: "a.yaml", Place: "a.yaml:7", Reason: "not YAML", Keeps: []string{"ServiceEntry shop/gone"}}
	hold := &guard.Status{Summary: admin.Hold{ID: "h1", Why: "60 of 100 objects", Begun: noon}}
	absent := resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: "gone"}
	w := &world{
		sources: []sources.Status{
			{
				Name: "rules", Foreign: 2, Unsure: 1, Unread: 4, Warnings: []string{"w"}, Held: hold,
				Quarantined: []sources.Quarantined{broken, broken},
			},
		},
		serving: map[resource.Key][]sources.Serving{absent: {{
			Source: "rules", Held: true, Unread: "permission denied", Unconfirmed: "it lost its data",
			Unsure: []sources.Quarantined{broken}, Warnings: []string{"a.yaml:3: odd"},
		}}},
	}
	check := func(query string) {
		explanation := page[admin.Explanation](t, newServer(w), "/debug/explain?"+query)
		require.Len(t, explanation.Objects, 1)
		x := explanation.Objects[0]
		require.Len(t, x.Unsure, 1)
		assert.Equal(t, "a.yaml:7", x.Unsure[0].Place)
		assert.Equal(t, []admin.Remark{{Source: "rules", Text: "permission denied"}}, x.ReadErrors)
		assert.Equal(t, []admin.Remark{{Source: "rules", Text: "it lost its data"}}, x.Unconfirmed)
		assert.Equal(t, []admin.Remark{{Source: "rules", Text: "a.yaml:3: odd"}}, x.Warnings)
		assert.Equal(t, []admin.Held{{Source: "rules", Hold: hold.Summary}}, x.Held)
	}
	check("kind=se&namespace=shop&name=gone")
	w.merged = &aggregate.Merged{Members: []aggregate.Member{{Name: "gone"}, {Name: "gone"}}}
	check("host=gone.example") // by their names in the sources
	w.sources[0].Quarantined[0] = sources.Quarantined{Ref: resource.Ref(absent), Reason: "bad"}
	explanation := page[admin.Explanation](t, newServer(w), "/debug/explain?host=gone.example")
	assert.Len(t, explanation.Objects[0].Quarantined, 1)

	status := page[admin.Status](t, newServer(w), "/debug/status")
	assert.Equal(t, []int{1, 4, 1}, []int{status.Unsure, status.Unread, status.Warnings})
	assert.Equal(t, 2, status.Sources[0].Foreign)
}

func TestStatus_ShowsFaults(t *testing.T) {
	status := page[admin.Status](t, shop(t), "/debug/status")
	assert.WithinDuration(t, time.Now(), status.Started, time.Hour)
	assert.NotEmpty(t, status.Uptime)
	status.Started, status.Uptime = noon, "1m"
	text, err := json.MarshalIndent(status, "", "  ")
	require.NoError(t, err)
	golden(t, "status.json", string(text)+"\n")
}
