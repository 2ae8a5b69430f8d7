package kube

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/guard"
	"tributary/sources/kube/kubetest"
	"tributary/sources/kube/mapping"
	"tributary/sources/sourcetest"
)

// rig runs a source of a server as the program does.
type rig struct {
	*sourcetest.Running

	server *kubetest.Server
	table  *table
}

// table notes which objects go.
type table struct {
	memstore.Table
	mu      sync.Mutex
	deleted []resource.Key
}

func (t *table) Apply(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot) {
	t.mu.Lock() // a reader of the table also sees its deletions
	defer t.mu.Unlock()
	changes, now := t.Table.Apply(puts, deletes)
	for _, c := range changes {
		if c.Event() == memstore.Deleted {
			t.deleted = append(t.deleted, c.Key())
		}
	}
	return changes, now
}

// went returns the deleted keys since the last call.
func (t *table) went() []resource.Key {
	t.mu.Lock()
	defer t.mu.Unlock()
	deleted := t.deleted
	t.deleted = nil
	return deleted
}

func start(t *testing.T, server *kubetest.Server, s *Source) *rig {
	t.Helper()
	table := new(table)
	running := sourcetest.Start(t, sources.Spec{Name: "k", Source: s, Table: table, Guard: guard.Settings{Off: true}})
	return &rig{Running: running, server: server, table: table}
}

// startQuick starts a quick source of the server.
func startQuick(t *testing.T, server *kubetest.Server, settings Settings) *rig {
	t.Helper()
	return start(t, server, quick(t, server, settings))
}

// awaitLimit is how long a test waits for a condition. It is no measure of speed: other tests may load the machine.
const awaitLimit = time.Minute

func (r *rig) synced() *rig {
	r.T.Helper()
	r.AwaitSync()
	return r
}

// served returns the served objects as kind namespace/name.
func (r *rig) served() (names []string) {
	for o := range r.table.Snapshot().All() {
		names = append(names, o.Key().String())
	}
	return names
}

func (r *rig) serves(names ...string) {
	r.T.Helper()
	r.Await("it serves "+strings.Join(names, ", "), func() bool { return strings.Join(r.served(), ", ") == strings.Join(names, ", ") })
}

// awaitServed waits until an object with that in its key is served.
func (r *rig) awaitServed(part string) {
	r.T.Helper()
	r.Await(part, func() bool { return strings.Contains(fmt.Sprint(r.served()), part) })
}

func (r *rig) requireNoDeletion() {
	r.T.Helper()
	require.Empty(r.T, r.table.went())
}

// TestKindWithoutRights_DelaysNoOther also has the right given and taken while it runs.
func TestKindWithoutRights_DelaysNoOther(t *testing.T) {
	server := istioServer(t)
	put(server, 1, "a", "b")
	server.Put(virtuals, "shop", "v", nil, virtual("a"))
	deny(server, virtuals)
	rig := startQuick(t, server, Settings{}).synced()
	rig.serves("ServiceEntry shop/a", "ServiceEntry shop/b")
	rig.AwaitState(sources.Degraded, "no right to list and watch "+virtuals+" (403 Forbidden: as the test wants it)")
	allow(server, virtuals)
	rig.serves("ServiceEntry shop/a", "ServiceEntry shop/b", "VirtualService shop/v")
	rig.AwaitState(sources.Healthy, "")
	deny(server, entries)
	server.Delete(entries, "shop", "b")
	rig.AwaitState(sources.Degraded, "no right to list and watch "+entries)
	rig.requireNoDeletion()
	allow(server, entries)
	rig.serves("ServiceEntry shop/a", "VirtualService shop/v")
}

// TestStatus_NamesPlacesOfProblems has an object that cannot be read, one that breaks a rule of Istio, and one with a
// field of a newer version.
func TestStatus_NamesPlacesOfProblems(t *testing.T) {
	server := istioServer(t)
	server.Put(entries, "shop", "a", nil, object("spec: {hosts: 7}"))
	server.Put(entries, "shop", "b", nil, object("spec: {resolution: DNS}"))
	newer := virtual("c")
	newer["spec"].(map[string]any)["later"] = true
	server.Put(virtuals, "shop", "c", nil, newer)
	r := startQuick(t, server, Settings{})
	r.serves("VirtualService shop/c")
	place := "k8s://" + server.Host()
	require.Equal(t, []string{place + ` VirtualService shop/c: VirtualService shop/c: spec: unknown field "later"`}, r.Status().Warnings)
	require.Len(t, r.Status().Quarantined, 2)
	for i, want := range []string{"spec.hosts: want a list", "host"} {
		q := r.Status().Quarantined[i]
		require.Equal(t, place+" ServiceEntry shop/"+q.Name, q.Place)
		require.Contains(t, q.Reason, want)
		require.NotContains(t, q.Reason, ".json")
	}
}

func virtual(host string) map[string]any {
	return map[string]any{"spec": map[string]any{
		"hosts": []string{host}, "http": []any{object("route: [{destination: {host: short}}]")},
	}}
}

// TestSelection_NamespacesLabelsAndRevision has the namespaces, kinds, labels, revisions and short names of the
// settings.
func TestSelection_NamespacesLabelsAndRevision(t *testing.T) {
	server := istioServer(t)
	labels := func(kv ...string) map[string]any {
		return map[string]any{"labels": map[string]string{kv[0]: kv[1], kv[2]: kv[3]}}
	}
	server.Put(virtuals, "shop", "v", labels("mesh", "yes", "istio.io/rev", "blue"), virtual("a"))
	server.Put(virtuals, "shop", "w", labels("mesh", "yes", "istio.io/rev", "green"), virtual("b"))
	server.Put(virtuals, "shop", "x", labels("mesh", "no", "istio.io/rev", "blue"), virtual("c"))
	server.Put(virtuals, "bank", "y", labels("mesh", "yes", "a", "b"), virtual("d"))
	server.Put(virtuals, "other", "z", labels("mesh", "yes", "a", "b"), virtual("e"))
	put(server, 1, "a")
	settings := Settings{Namespaces: []string{"shop", "bank"}, LabelSelector: "mesh=yes", Revision: "blue", Kinds: []string{"vs"}}
	r := start(t, server, quick(t, server, settings)).synced()
	r.serves("VirtualService bank/y", "VirtualService shop/v")
	text, err := resource.MarshalYAML(r.table.Snapshot().Get(resource.Key{Kind: resource.VirtualService, Namespace: "shop", Name: "v"}))
	require.NoError(t, err)
	require.Contains(t, string(text), "short.shop.svc.cluster.local")
	for _, request := range server.Requests() {
		require.NotContains(t, request, "/v1beta1/virtualservices", "only namespaces are read")
	}
	server.Put(virtuals, "shop", "v", labels("mesh", "yes", "istio.io/rev", "green"), virtual("a"))
	r.serves("VirtualService bank/y")
	server.Put(virtuals, "bank", "y", labels("mesh", "no", "a", "b"), virtual("d"))
	r.serves()
}

// TestWrongAnswers_DeleteNoObject: wrong answers delete no object, and objects deleted meanwhile go afterwards.
func TestWrongAnswers_DeleteNoObject(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]kubetest.Fault{
		"denied":              {Status: http.StatusForbidden},
		"logged out":          {Status: http.StatusUnauthorized},
		"not found":           {Status: http.StatusNotFound},
		"too many requests":   {Status: http.StatusTooManyRequests, RetryAfter: 1},
		"an error":            {Status: http.StatusInternalServerError},
		"gone":                {Status: http.StatusGone},
		"a partial list":      {Partial: true, GoneEvent: true},
		"an expired list":     {NoContinue: true, GoneEvent: true},
		"a list that is old":  {Behind: 3, GoneEvent: true},
		"watches that expire": {GoneEvent: true, Partial: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := istioServer(t)
			for _, o := range []string{"a", "b", "c", "d", "e"} {
				put(server, 1, o)
			}
			s := quick(t, server, Settings{})
			s.settle = time.Hour
			r := start(t, server, s).synced()
			server.Put(virtuals, "shop", "v", nil, virtual("a")) // an old list is then older than the highest version
			r.serves("ServiceEntry shop/a", "ServiceEntry shop/b", "ServiceEntry shop/c", "ServiceEntry shop/d", "ServiceEntry shop/e",
				"VirtualService shop/v")
			if fault.GoneEvent {
				server.Compact()
			}
			server.Fault(entries, fault)
			for _, o := range []string{"a", "b", "c"} {
				put(server, 2, o)
			}
			server.Delete(entries, "shop", "d")
			server.Requests()
			r.Await("it has tried", func() bool {
				tried := 0
				for _, q := range server.Requests() {
					if strings.Contains(q, "/serviceentries?") {
						tried++
					}
				}
				return tried > 0
			})
			r.requireNoDeletion()
			allow(server, entries)
			r.serves("ServiceEntry shop/a", "ServiceEntry shop/b", "ServiceEntry shop/c", "ServiceEntry shop/e", "VirtualService shop/v")
			r.AwaitState(sources.Healthy, "")
			require.Equal(t, []resource.Key{{Kind: resource.ServiceEntry, Namespace: "shop", Name: "d"}}, r.table.went())
		})
	}
}

// TestRestoredCluster_HoldsLostObjects: its objects are served, and lost objects stay for the hold, also over a restart
// of the source.
func TestRestoredCluster_HoldsLostObjects(t *testing.T) {
	server := istioServer(t)
	put(server, 1, "a")
	saved := server.Snapshot()
	put(server, 2, "a")
	put(server, 1, "b", "c")
	s := quick(t, server, Settings{Hold: time.Hour})
	rig := start(t, server, s).synced()
	key := entryKey("shop", "a")
	newer := rig.table.Snapshot().Get(key).Version()
	server.Restore(saved)
	rig.AwaitState(sources.Degraded, "2 objects are held until ")
	rig.AwaitState(sources.Degraded, "the server went back in time, as after a restore")
	rig.Await("the restored content", func() bool { return rig.table.Snapshot().Get(key).Version() != newer })
	put(server, 1, "b")
	rig.AwaitState(sources.Degraded, "1 object is held until ")
	server.Delete(entries, "shop", "b")
	rig.serves("ServiceEntry shop/a", "ServiceEntry shop/c")
	restarted := quick(t, server, Settings{Hold: time.Hour})
	rig.Use(restarted)
	rig.AwaitState(sources.Degraded, "1 object is held until ")
	require.NotContains(t, rig.table.went(), entryKey("shop", "c"))
	put(server, 1, "c")
	rig.AwaitState(sources.Healthy, "")
}

// TestRestoredCluster_HoldEnds: objects that a restored cluster lost go at the end of the hold.
func TestRestoredCluster_HoldEnds(t *testing.T) {
	t.Parallel()
	server := istioServer(t)
	saved := server.Snapshot()
	put(server, 1, "a", "b")
	rig := startQuick(t, server, Settings{Hold: 300 * time.Millisecond}).synced()
	server.Restore(saved)
	put(server, 1, "b")
	rig.serves("ServiceEntry shop/b")
	rig.AwaitState(sources.Healthy, "")
}

// TestCRD_DeletedAndCreated also has one that was not there from the start.
func TestCRD_DeletedAndCreated(t *testing.T) {
	server := kubetest.Start(t, map[string]string{virtuals: istio()[virtuals]})
	rig := startQuick(t, server, Settings{Hold: time.Hour}).synced()
	rig.serves()
	server.Serve(entries, istio()[entries])
	put(server, 1, "a", "b")
	rig.serves("ServiceEntry shop/a", "ServiceEntry shop/b")
	server.Serve(entries, "")
	rig.AwaitState(sources.Degraded, entries+": 2 objects are held until ")
	server.Serve(entries, istio()[entries])
	put(server, 2, "a")
	rig.AwaitState(sources.Degraded, entries+": 1 object is held until ")
	rig.requireNoDeletion()
	put(server, 1, "b")
	rig.AwaitState(sources.Healthy, "")
	server.Delete(entries, "shop", "b")
	rig.serves("ServiceEntry shop/a")
}

// TestCRD_StaysDeleted: its objects go when the hold is over.
func TestCRD_StaysDeleted(t *testing.T) {
	server := istioServer(t)
	put(server, 1, "a")
	rig := startQuick(t, server, Settings{Hold: 100 * time.Millisecond}).synced()
	rig.serves("ServiceEntry shop/a")
	server.Serve(entries, "")
	rig.serves()
	rig.AwaitState(sources.Healthy, "")
}

// TestSilentWatch_Ends ends, and the next watch sends the events that it withheld.
func TestSilentWatch_Ends(t *testing.T) {
	t.Parallel()
	server := istioServer(t)
	put(server, 1, "a")
	server.Fault(entries, kubetest.Fault{Silent: true})
	rig := startQuick(t, server, Settings{}).synced()
	put(server, 1, "b")
	server.Delete(entries, "shop", "a")
	put(server, 1, "c")
	server.Quietly(entries, kubetest.Fault{})
	rig.serves("ServiceEntry shop/b", "ServiceEntry shop/c")
}

// TestServices has Services with slices that may not be read, and all changes.
func TestServices(t *testing.T) {
	served := istio()
	served["services"], served["nodes"] = "v1/Service", "v1/Node"
	served["endpointslices.discovery.k8s.io"] = "discovery.k8s.io/v1/EndpointSlice"
	server := kubetest.Start(t, served)
	server.Put("services", "shop", "web", nil, object("spec: {clusterIP: '10.96.0.1', ports: [{name: http, port: 80}]}"))
	slice := func(name string, addresses ...string) {
		var endpoints []any
		for _, a := range addresses {
			endpoints = append(endpoints, map[string]any{"addresses": []string{a}, "nodeName": "n"})
		}
		labels := map[string]string{"kubernetes.io/service-name": "web"}
		server.Put("endpointslices.discovery.k8s.io", "shop", name, map[string]any{"labels": labels},
			map[string]any{"addressType": "IPv4", "endpoints": endpoints, "ports": []any{object("{name: http, port: 8080}")}})
	}
	slice("web-1", "10.0.0.1")
	server.Put("nodes", "", "n", object("labels: {topology.kubernetes.io/region: west}"), nil)
	deny(server, "endpointslices.discovery.k8s.io")
	r := startQuick(t, server, Settings{Services: &Services{Nodes: true, Options: mapping.Options{}}}).synced()
	r.AwaitState(sources.Degraded, "no right to list and watch endpointslices.discovery.k8s.io")
	r.serves()
	allow(server, "endpointslices.discovery.k8s.io")
	key := entryKey("shop", "web.shop.svc")
	awaitTexts := func(goal string, texts ...string) {
		t.Helper()
		r.Await(goal, func() bool {
			o := r.table.Snapshot().Get(key)
			if o == nil {
				return false
			}
			text, err := resource.MarshalYAML(o)
			require.NoError(t, err)
			for _, want := range texts {
				if absent := strings.HasPrefix(want, "!"); absent == strings.Contains(string(text), strings.TrimPrefix(want, "!")) {
					return false
				}
			}
			return true
		})
	}
	awaitTexts("the endpoint with the region of its node", "10.0.0.1", "west", "web.shop.svc.cluster.local")
	slice("web-2", "10.0.0.2")
	awaitTexts("both endpoints", "10.0.0.1", "10.0.0.2")
	server.Delete("endpointslices.discovery.k8s.io", "shop", "web-1")
	awaitTexts("one endpoint", "!10.0.0.1", "10.0.0.2")
	server.Put("nodes", "", "n", object("labels: {topology.kubernetes.io/region: east}"), nil)
	awaitTexts("the other region", "east")
	deny(server, "endpointslices.discovery.k8s.io")
	r.Use(quick(t, server, Settings{Services: &Services{Nodes: true}}))
	r.AwaitState(sources.Degraded, "no right to list and watch endpointslices.discovery.k8s.io")
	awaitTexts("the objects from before the right was revoked", "10.0.0.2", "east")
	allow(server, "endpointslices.discovery.k8s.io")
	server.Delete("services", "shop", "web")
	r.serves()
}

// TestRights has the rights that are missing named, with the roles that give them.
func TestRights(t *testing.T) {
	server := istioServer(t)
	source := quick(t, server, Settings{})
	lacks, roles, err := source.Rights(t.Context())
	require.NoError(t, err)
	require.Empty(t, lacks+roles)
	deny(server, virtuals)
	lacks, roles, err = source.Rights(t.Context())
	require.NoError(t, err)
	require.Equal(t, "no right to list and watch "+virtuals, lacks)
	require.Contains(t, roles, "kind: ClusterRole\nmetadata: {name: tributary-read}\nrules:\n"+
		"- {apiGroups: [\"networking.istio.io\"], resources: [serviceentries], verbs: [list, watch]}\n")
	require.Contains(t, roles, "kind: ClusterRoleBinding")
	require.Contains(t, roles, "kind: User, name: NAME}")
	lacks, roles, err = quick(t, server, Settings{Namespaces: []string{"shop", "bank"}}).Rights(t.Context())
	require.NoError(t, err)
	require.Equal(t, "no right to list and watch "+virtuals+" in namespace bank, "+virtuals+" in namespace shop",
		lacks)
	require.Contains(t, roles, "kind: Role\nmetadata: {name: tributary-read, namespace: shop}\n")
}

// TestKubeconfig reads the server and the token from a kubeconfig, and again when they change.
func TestKubeconfig(t *testing.T) {
	server, away := istioServer(t), istioServer(t)
	away.Down(true)
	put(server, 1, "a")
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write := func(host string) {
		text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://" + host + "'}}]\n" +
			"users: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	source, err := New("k8s://"+file+"?context=x", Settings{})
	require.NoError(t, err)
	q := quick(t, server, Settings{})
	source.newBackOff, source.lookEvery, source.delay = q.newBackOff, q.lookEvery, q.delay
	rig := start(t, server, source)
	rig.AwaitState(sources.Unreachable, "read the kubeconfig: ")
	write(away.Host())
	rig.AwaitState(sources.Unreachable, "look for the kinds: ")
	write(server.Host())
	rig.synced().serves("ServiceEntry shop/a")
}

// TestTokens has a program give the token, and the server want another one later.
func TestTokens(t *testing.T) {
	server, dir := kubetest.StartTLS(t, istio()), t.TempDir()
	put(server, 1, "a")
	server.Require("one")
	token := func(value string) {
		text := `{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "` + value + `"}}`
		require.NoError(t, os.WriteFile(dir+"/token", []byte(text), 0o600))
	}
	token("one")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: x\n" +
		"clusters: [{name: c, cluster: {insecure-skip-tls-verify: true, server: 'https://" + server.Host() + "'}}]\n" +
		"users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: cat, args: ['" + dir + "/token'],\n" +
		"  interactiveMode: Never}}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
	require.NoError(t, os.WriteFile(dir+"/kubeconfig", []byte(text), 0o600))
	source, err := New("k8s://"+dir+"/kubeconfig", Settings{})
	require.NoError(t, err)
	q := quick(t, server, Settings{})
	source.newBackOff, source.lookEvery, source.delay = q.newBackOff, q.lookEvery, q.delay
	rig := start(t, server, source).synced()
	rig.serves("ServiceEntry shop/a")
	server.Require("two")
	put(server, 1, "b")
	rig.AwaitState(sources.Denied, "401 Unauthorized: Unauthorized")
	token("two")
	rig.serves("ServiceEntry shop/a", "ServiceEntry shop/b")
	rig.AwaitState(sources.Healthy, "")
}

func TestNew(t *testing.T) {
	const form = "address: want k8s://, k8s:///path/to/kubeconfig?context=NAME or k8s://host:6443, without a user and other parameters, got \""
	for address, want := range map[string]string{
		"k8s://me:secret@h":            form + `k8s://h`,
		"k8s://h?context=a":            form + `k8s://h?context=a`,
		"k8s:///f?ctx=a":               form + `k8s:///f`,
		"kube://h":                     form + `kube://h`,
		"k8s://h:1 namespaces":         "namespaces: ",
		"k8s://h:1 labelSelector":      "labelSelector: ",
		"k8s://h:1 kinds":              `kinds: unknown kind "Pod"; want kinds of Istio that are objects in a cluster, or none alone`,
		"k8s://h:1 unknownFields":      `unknownFields: want "error" or "warn", got "x"`,
		"k8s:///f tokenFile":           "address: with tlsSettings or tokenFile, want one such as k8s://host:6443; a kubeconfig has its own",
		"k8s://h:1 services":           "services.endpoints: ",
		"k8s://h:1 hold":               "hold: ",
		"k8s:///f?context=a&context=b": form + `k8s:///f?context=a&context=b`,
	} {
		address, setting, _ := strings.Cut(address, " ")
		var settings Settings
		switch setting {
		case "namespaces":
			settings.Namespaces = []string{"-"}
		case "labelSelector":
			settings.LabelSelector = "a in"
		case "kinds":
			settings.Kinds = []string{"Pod"}
		case "unknownFields":
			settings.UnknownFields = "x"
		case "tokenFile":
			settings.TokenFile = "t"
		case "services":
			settings.Services = &Services{Options: mapping.Options{Endpoints: "x"}}
		case "hold":
			settings.Hold = -1
		}
		_, err := New(address, settings)
		require.ErrorContains(t, err, want, address)
	}
	for _, address := range []string{"k8s://", "k8s:///etc/kubeconfig", "k8s:///etc/kubeconfig?context=a", "k8s://h:6443", "k8s://h/prefix"} {
		_, err := New(address, Settings{Kinds: []string{NoKinds}})
		require.NoError(t, err, address)
	}
}

// TestWatch_OutweighsDiscovery: while a watch goes on, the kind is there, whatever the server says of its kinds.
func TestWatch_OutweighsDiscovery(t *testing.T) {
	server := istioServer(t)
	put(server, 1, "a")
	s := quick(t, server, Settings{Hold: time.Millisecond})
	s.watchFor = time.Hour
	rig := start(t, server, s).synced()
	put(server, 1, "b")
	rig.serves("ServiceEntry shop/a", "ServiceEntry shop/b")
	server.Unlist(entries)
	server.Requests()
	rig.Await("it has looked several times", func() bool { return server.Looks() > 5 })
	put(server, 1, "c")
	rig.serves("ServiceEntry shop/a", "ServiceEntry shop/b", "ServiceEntry shop/c")
	rig.requireNoDeletion()
}
