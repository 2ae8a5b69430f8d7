package kube_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/kube"
	"tributary/sources/kube/kubetest"
	"tributary/sources/kube/mapping"
)

var (
	historySeeds = flag.Uint64("history.seeds", 8, "how many random histories TestHistory goes through")
	historyFirst = flag.Uint64("history.first", 0, "the seed of the first one")
	historySteps = flag.Int("history.steps", 150, "how many steps a history has")
)

// The kinds of the cluster, by resource. Those of rules are published as they are; others have something made of them.
var (
	rules = map[string]string{
		"virtualservices.networking.istio.io": "VirtualService", "serviceentries.networking.istio.io": "ServiceEntry",
		"authorizationpolicies.security.istio.io": "AuthorizationPolicy",
	}
	clusterScoped = []string{"Node", "Namespace", "GatewayClass", "IngressClass"}
	resources     = slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(rules)),
		"services", slicesAPI, "nodes", "namespaces",
		"serviceexports.multicluster.x-k8s.io", "gateways.gateway.networking.k8s.io", routes, grants,
		"gatewayclasses.gateway.networking.k8s.io", "ingresses.networking.k8s.io", "ingressclasses.networking.k8s.io")))
	crds = slices.DeleteFunc(slices.Clone(resources), func(r string) bool { return !kubetest.IsCRD(r) })
)

const (
	entries   = "serviceentries.networking.istio.io"
	slicesAPI = "endpointslices.discovery.k8s.io"
	routes    = "httproutes.gateway.networking.k8s.io"
	grants    = "referencegrants.gateway.networking.k8s.io"
)

// history is a cluster, its source, and the expected published objects, over time.
type history struct {
	*kubetest.Server
	t        *testing.T
	started  time.Time
	ops      *rand.Rand
	settings kube.Settings
	out      *published
	stop     func()
	config   string   // the kubeconfig
	steps    []string // for people, the last ones

	mu     sync.Mutex                   // held while the cluster changes and the expected objects with it
	now    map[string]string            // the expected objects, by name
	wanted map[string][]string          // all objects that were ever expected; "" if absent
	from   map[string]int               // where in wanted that is which is published, or later
	held   map[string]time.Time         // the end of the hold of an object that a restore lost
	roles  bool                         // only Roles exist: cluster-wide objects are not read
	lax    bool                         // a published object may be older than before, until the next rest
	slack  time.Duration                // until all is well once the faults are over
	memos  map[string]map[string]string // see memo
	calm   time.Time                    // the end of all holds
	first  [2]int                       // the version and the troubles at the start of the run
	stale  bool                         // the source may have to find out that the cluster went back in time, or that a kind was missing
}

func (h *history) fail(format string, args ...any) {
	h.t.Helper()
	h.t.Errorf("%s\n%s\n%+v", fmt.Sprintf(format, args...), strings.Join(h.steps, "\n"), h.settings)
}

// note computes the expected objects. mu is held.
func (h *history) note() {
	now := h.expected()
	for name := range h.now {
		if _, exists := now[name]; !exists {
			h.wanted[name] = append(h.wanted[name], "")
		}
	}
	for name, text := range now {
		if h.now[name] != text {
			h.wanted[name] = append(h.wanted[name], text)
		}
	}
	h.now = now
}

// has returns the objects of a kind that the source may read, in order.
func (h *history) has(resource string) (all []map[string]any) {
	if len(h.Versions(resource)) == 0 || h.roles && slices.Contains(clusterScoped, kubetest.KindOf(resource)) {
		return nil
	}
	objects := h.Objects(resource)
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		namespace, _, _ := strings.Cut(key, "/")
		if namespace == "" || len(h.settings.Namespaces) == 0 || slices.Contains(h.settings.Namespaces, namespace) {
			all = append(all, objects[key])
		}
	}
	return all
}

func decoded[T any](o map[string]any) *T {
	text, value := encode(o), new(T)
	if err := json.Unmarshal(text, value); err != nil {
		panic(err)
	}
	return value
}

func encode(o any) []byte {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return text
}

// memo returns the earlier result for a text.
func (h *history) memo(text string, make func() map[string]string) map[string]string {
	if _, cached := h.memos[text]; !cached {
		h.memos[text] = make()
	}
	return h.memos[text]
}

// expected is the pure function of the cluster that the source should be.
func (h *history) expected() map[string]string {
	expected := make(map[string]string)
	for r, kind := range rules {
		if !h.reads(kind) {
			continue
		}
		for _, o := range h.has(r) {
			set, _ := o["metadata"].(object)["labels"].(object)
			rev := set["istio.io/rev"]
			if h.selects(o) && (h.settings.Revision == "" || rev == nil || rev == h.settings.Revision) {
				text := encode(o)
				suffix := h.settings.DomainSuffix
				maps.Copy(expected, h.memo(suffix+string(text), func() map[string]string { return ruleOf(kind, o, text, suffix) }))
			}
		}
	}
	objects := func(wanted bool, resource string) []map[string]any {
		if !wanted {
			return nil
		}
		return h.has(resource)
	}
	if s := h.settings.Services; s != nil {
		inputs := [][]map[string]any{
			h.has("services"), objects(s.Endpoints != mapping.EndpointsLoadBalancer, "endpointslices.discovery.k8s.io"),
			objects(s.Nodes || s.Endpoints == mapping.EndpointsNodePorts, "nodes"), h.has("serviceexports.multicluster.x-k8s.io"),
		}
		maps.Copy(expected, h.memo(fmt.Sprint(string(encode(inputs)), s), func() map[string]string { return h.ofServices(s.Options, inputs) }))
	}
	if d := h.settings.Derive; d != nil {
		inputs := make([][]map[string]any, len(derive.Kinds))
		for i, k := range derive.Kinds {
			r := strings.TrimSuffix(k.Plural+"."+k.Group, ".")
			reads := slices.Contains(resources, r) && (k.Kind != "Service" || d.AllServices)
			inputs[i] = slices.DeleteFunc(objects(reads, r), func(o object) bool {
				return k.Kind == "ServiceEntry" && h.reads(k.Kind) && !h.selects(o)
			})
		}
		maps.Copy(expected, h.memo(fmt.Sprint(string(encode(inputs)), d), func() map[string]string { return derived(*d, inputs) }))
	}
	return expected
}

func (h *history) selects(o object) bool { return kubetest.Selects(o, "", h.settings.LabelSelector) }

// reads reports whether the objects of a kind are published as they are.
func (h *history) reads(kind string) bool {
	return len(h.settings.Kinds) == 0 || slices.Contains(h.settings.Kinds, kind)
}

func ruleOf(kind string, o map[string]any, text []byte, suffix string) map[string]string {
	options, _ := sources.Texts{UnknownFields: "warn", DomainSuffix: cmp.Or(suffix, "cluster.local")}.Options()
	options.Validate = false
	meta := o["metadata"].(map[string]any)
	content := sources.Decode(fmt.Sprintf("%s/%v/%v", kind, meta["namespace"], meta["name"]), ".json", text, options)
	if len(content.Rejects) > 0 {
		content.Rejects[0].Key = resource.Key{Kind: resource.Kind(kind), Namespace: meta["namespace"].(string), Name: meta["name"].(string)}
	}
	return namesOf(content)
}

func derived(options derive.Options, inputs [][]map[string]any) map[string]string {
	set := derive.NewSet(options)
	for i, kind := range derive.Kinds {
		for _, o := range inputs[i] {
			meta := o["metadata"].(map[string]any)
			namespace, _ := meta["namespace"].(string)
			key := resource.Key{Kind: resource.Kind(kind.Kind), Namespace: namespace, Name: meta["name"].(string)}
			object := resource.Other{APIVersion: strings.TrimPrefix(kind.Group+"/"+kind.Versions[0], "/"), JSON: encode(o)}
			c := sources.Content{Others: []sources.Other{{Other: object, Key: key}}}
			if set.Replace(key.String(), &c); len(c.Rejects) > 0 {
				panic(c.Rejects[0].Err)
			}
		}
	}
	content, _ := set.Content(func() string { return "" })
	return namesOf(content)
}

// ofServices maps services, EndpointSlices, nodes and ServiceExports.
func (h *history) ofServices(options mapping.Options, objects [][]map[string]any) map[string]string {
	mapper, err := mapping.New(options, nil, "")
	require.NoError(h.t, err)
	expected, inputs, nodes := make(map[string]string), make(map[string]*mapping.Input), make(map[string]*mapping.Node)
	for _, o := range objects[2] {
		nodes[fmt.Sprint(o["metadata"].(map[string]any)["name"])] = decoded[mapping.Node](o)
	}
	for _, o := range objects[0] {
		input := &mapping.Input{Service: decoded[mapping.Service](o), Nodes: nodes}
		inputs[input.Service.Meta.Namespace+"/"+input.Service.Meta.Name] = input
	}
	for _, o := range objects[1] {
		slice := decoded[mapping.Slice](o)
		if input := inputs[fmt.Sprint(o["metadata"].(map[string]any)["namespace"], "/", slice.Meta.Labels.Service)]; input != nil {
			input.Slices = append(input.Slices, slice)
		}
	}
	for _, o := range objects[3] {
		meta := o["metadata"].(map[string]any)
		if input := inputs[fmt.Sprint(meta["namespace"], "/", meta["name"])]; input != nil {
			input.Exported = true
		}
	}
	for key, input := range inputs {
		content := mapper.Map(*input)
		content.Group = "Service/" + key
		maps.Copy(expected, namesOf(content))
	}
	return expected
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// writeKubeconfig says where the cluster is.
func (h *history) writeKubeconfig() {
	require.NoError(h.t, os.WriteFile(h.config, []byte(h.Kubeconfig("{}")), 0o600))
}

// run starts a run of the source, with other settings or the same.
func (h *history) run(settings kube.Settings) {
	h.writeKubeconfig()
	source, err := kube.New("k8s://"+h.config, settings)
	require.NoError(h.t, err)
	h.locked(func() {
		h.settings, h.out.ended, h.out.synced, h.first = settings, false, false, [2]int{h.Version(), h.Troubles()}
		h.note()
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := source.Run(ctx, h.out); ctx.Err() == nil {
			h.fail("the source ends: %v", err)
		}
		h.mu.Lock()
		h.out.ended = true
		h.mu.Unlock()
	}()
	h.stop = sync.OnceFunc(func() { cancel(); <-ended })
}

func (h *history) say(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf("%-12s v%d ", time.Since(h.started), h.Version())+fmt.Sprintf(format, args...))
}

// rest ends all faults, and waits until the published objects are those of the cluster.
func (h *history) rest() {
	h.mu.Lock()
	h.say("rest for %s", h.slack)
	h.endFaults()
	h.note()
	began := time.Now()
	h.Requests()
	h.mu.Unlock()
	slack := max(h.slack, time.Until(h.calm))
	h.calm = began.Add(slack) // equality before that time does not prove that no hold is left
	synctest.Wait()           // an answer that is under way may be of a moment before the last change
	for time.Since(began) < slack && len(h.lacks()) > 0 {
		time.Sleep(time.Second)
		synctest.Wait()
	}
	if lacks := h.lacks(); len(lacks) > 0 {
		h.fail("%s after all is well again: %s", slack, strings.Join(lacks, "\n"))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n, most := len(h.Requests()), 4000+int(time.Since(began)/time.Second)*30; n > most {
		h.fail("%d requests in %s", n, time.Since(began))
	}
	h.lax, h.slack = false, time.Minute
	for name := range h.wanted {
		h.from[name] = len(h.wanted[name]) - 1
	}
}

// lacks describes how the published objects differ from the expected ones.
func (h *history) lacks() (lacks []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	published := h.out.all()
	for name, text := range h.now {
		if published[name] != text {
			lacks = append(lacks, fmt.Sprintf("%s is %q, want %q", name, published[name], text))
		}
	}
	for name := range published {
		if _, exists := h.now[name]; !exists {
			lacks = append(lacks, name+" is there, and should not be")
		}
	}
	if !h.out.synced {
		lacks = append(lacks, "the run is not synced")
	}
	if h.out.health.State != sources.Healthy && !h.roles {
		lacks = append(lacks, fmt.Sprintf("it is %s: %s", h.out.health.State, h.out.health.Message))
	}
	return lacks
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		Server: kubetest.StartPiped(t, rand.New(rand.NewPCG(seed, 2)), resources...), t: t, started: time.Now(),
		ops: rand.New(rand.NewPCG(seed, 1)), now: map[string]string{},
		wanted: map[string][]string{}, from: map[string]int{}, held: map[string]time.Time{}, memos: map[string]map[string]string{},
		slack: time.Minute, config: filepath.Join(t.TempDir(), "kubeconfig"),
	}
	h.out = &published{history: h, groups: make(map[string]map[string]string)}
	t.Cleanup(func() { h.stop() })
	return h
}

// TestHistory draws random histories of clusters. No object goes that was not deleted, no rule is published in an older
// version, and at rest the published objects are those of the cluster.
func TestHistory(t *testing.T) {
	for seed := *historyFirst; seed < *historyFirst+*historySeeds && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				history := newHistory(t, seed)
				for range 20 {
					history.change()
				}
				history.roles = history.ops.IntN(4) == 0
				history.deny()
				if history.ops.IntN(3) == 0 { // rights and discovery are missing at the first start
					var hidden []string
					for range 5 {
						hidden = append(hidden, pick(history.ops, resources...))
						history.Deny(pick(history.ops, resources...))
					}
					history.Hide(slices.DeleteFunc(hidden, func(r string) bool { return !kubetest.IsCRD(r) })...)
				}
				history.run(history.draw())
				time.Sleep(time.Duration(history.ops.IntN(60)) * time.Second)
				history.Hide()
				history.rest()
				for range *historySteps {
					if history.step(); t.Failed() {
						return
					}
					_ = history.lacks()
				}
				history.rest()
			})
		})
	}
}
