package kube

import (
	"fmt"
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

func start(t *testing.T, server *kubetest.Server, s sources.Source) *rig {
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
	server.Put(virtuals, "shop", "v", virtual("a"))
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
	server.Put(entries, "shop", "a", "spec: {hosts: 7}")
	server.Put(entries, "shop", "b", "spec: {resolution: DNS}")
	server.Put(virtuals, "shop", "c", strings.Replace(virtual("c"), "{", "{later: true, ", 1))
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

// virtual returns a VirtualService.
func virtual(host string) string {
	return "spec: {hosts: [" + host + "], http: [{route: [{destination: {host: short}}]}]}"
}

// TestNamespaces_OnlyTheirObjectsAreRead has a kind under its short name, too.
func TestNamespaces_OnlyTheirObjectsAreRead(t *testing.T) {
	server := istioServer(t)
	put(server, 1, "a")
	for _, namespace := range []string{"shop", "bank", "other"} {
		server.Put(virtuals, namespace, "v", virtual("a"))
	}
	rig := startQuick(t, server, Settings{Namespaces: []string{"shop", "bank"}, Kinds: []string{"vs"}}).synced()
	rig.serves("VirtualService bank/v", "VirtualService shop/v")
	require.NotContains(t, strings.Join(server.Requests(), " "), "/v1/virtualservices")
}

// TestRestoredCluster_HoldsLostObjects: its objects are served, and lost objects stay for the hold.
func TestRestoredCluster_HoldsLostObjects(t *testing.T) {
	server := istioServer(t)
	put(server, 1, "a")
	saved := server.Version()
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
	put(server, 1, "c")
	rig.AwaitState(sources.Healthy, "")
}

// TestCRD_DeletedAndCreated also has one that was not there from the start.
func TestCRD_DeletedAndCreated(t *testing.T) {
	server := kubetest.Start(t, virtuals)
	rig := startQuick(t, server, Settings{Hold: time.Hour}).synced()
	rig.serves()
	server.Serve(entries)
	put(server, 1, "a", "b")
	rig.serves("ServiceEntry shop/a", "ServiceEntry shop/b")
	server.Remove(entries)
	rig.AwaitState(sources.Degraded, entries+": 2 objects are held until ")
	server.Serve(entries)
	put(server, 2, "a")
	rig.AwaitState(sources.Degraded, entries+": 1 object is held until ")
	rig.requireNoDeletion()
	put(server, 1, "b")
	rig.AwaitState(sources.Healthy, "")
	server.Delete(entries, "shop", "b")
	rig.serves("ServiceEntry shop/a")
}

// TestServices_WithoutRightToSlices: without endpoints, no Service is published.
func TestServices_WithoutRightToSlices(t *testing.T) {
	server := istioServer(t, "services", "nodes", apiSlices)
	server.Put("services", "shop", "web", "spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}")
	deny(server, apiSlices)
	rig := startQuick(t, server, Settings{Services: &Services{Nodes: true}}).synced()
	rig.AwaitState(sources.Degraded, "no right to list and watch "+apiSlices)
	rig.serves()
	allow(server, apiSlices)
	rig.serves("ServiceEntry shop/web.shop.svc")
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
	write := func(server *kubetest.Server) {
		text := strings.Replace(server.Kubeconfig("{token: t}"), "current-context: x,", "", 1)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	rig := start(t, server, quickAt(t, "k8s://"+file+"?context=x", Settings{}))
	rig.AwaitState(sources.Unreachable, "read the kubeconfig: ")
	write(away)
	rig.AwaitState(sources.Unreachable, "look for the kinds: ")
	write(server)
	rig.synced().serves("ServiceEntry shop/a")
}

// TestTokens has a program give the token, and the server want another one later.
func TestTokens(t *testing.T) {
	server, dir := kubetest.StartTLS(t, entries, virtuals), t.TempDir()
	put(server, 1, "a")
	server.Require("one")
	token := func(value string) {
		text := `{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "` + value + `"}}`
		require.NoError(t, os.WriteFile(dir+"/token", []byte(text), 0o600))
	}
	token("one")
	text := server.Kubeconfig("{exec: {apiVersion: client.authentication.k8s.io/v1, command: cat, args: [" + dir +
		"/token], interactiveMode: Never}}")
	require.NoError(t, os.WriteFile(dir+"/kubeconfig", []byte(text), 0o600))
	rig := start(t, server, quickAt(t, "k8s://"+dir+"/kubeconfig", Settings{})).synced()
	rig.serves("ServiceEntry shop/a")
	server.Require("two")
	put(server, 1, "b")
	rig.AwaitState(sources.Denied, "401 Unauthorized: as the test wants it")
	token("two")
	rig.serves("ServiceEntry shop/a", "ServiceEntry shop/b")
	rig.AwaitState(sources.Healthy, "")
}

func TestNew(t *testing.T) {
	const form = "address: want k8s://, k8s:///path/to/kubeconfig?context=NAME or k8s://host:6443, without a user and other parameters, got \""
	for _, row := range []struct {
		address  string
		settings Settings
		want     string
	}{
		{"k8s://me:secret@h", Settings{}, form + "k8s://h"},
		{"k8s://h?context=a", Settings{}, form + "k8s://h?context=a"},
		{"k8s:///f?ctx=a", Settings{}, form + "k8s:///f"},
		{"k8s:///f?context=a&context=b", Settings{}, form + "k8s:///f?context=a&context=b"},
		{"kube://h", Settings{}, form + "kube://h"},
		{"k8s://h:1", Settings{Namespaces: []string{"-"}}, "namespaces: "},
		{"k8s://h:1", Settings{LabelSelector: "a in"}, "labelSelector: "},
		{
			"k8s://h:1",
			Settings{Kinds: []string{"Pod"}},
			`kinds: unknown kind "Pod"; want kinds of Istio that are objects in a cluster, or none alone`,
		},
		{"k8s://h:1", Settings{UnknownFields: "x"}, `unknownFields: want "error" or "warn", got "x"`},
		{
			"k8s:///f",
			Settings{TokenFile: "t"},
			"address: with tlsSettings or tokenFile, want one such as k8s://host:6443; a kubeconfig has its own",
		},
		{"k8s://h:1", Settings{Services: &Services{Options: mapping.Options{Endpoints: "x"}}}, "services.endpoints: "},
		{"k8s://h:1", Settings{Hold: -1}, "hold: "},
	} {
		_, err := New(row.address, row.settings)
		require.ErrorContains(t, err, row.want)
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
	s.maxWatch = time.Hour
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

// A silent watch ends, and the next one sends the events that it withheld.
func TestSilentWatch_Ends(t *testing.T) {
	t.Parallel()
	server := istioServer(t)
	put(server, 1, "a")
	server.Fault(entries, kubetest.Fault{Silent: true})
	rig := startQuick(t, server, Settings{}).synced()
	put(server, 1, "b")
	server.Delete(entries, "shop", "a")
	put(server, 1, "c")
	server.Fault(entries, kubetest.Fault{})
	rig.serves("ServiceEntry shop/b", "ServiceEntry shop/c")
}
