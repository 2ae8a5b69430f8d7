package xds

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"tributary/server/xds/wire"

	"github.com/stretchr/testify/require"
)

// The model of the order: a client that behaves like Envoy, or like gRPC, against commits that each move routes to other clusters.
// Each commit is consistent: its routes use clusters that exist and have endpoints. The client's state must be consistent, too,
// after each message, as long as it acknowledges in time.

func TestModelOfTheOrder(t *testing.T) {
	seeds, from := fromEnv(t, "XDS_MODEL_SEEDS", 300), fromEnv(t, "XDS_MODEL_FROM", 1)
	for seed := from; seed < from+seeds; seed++ {
		orderModel := newOrderModel(t, uint64(seed)) //nolint:gosec // a seed
		for orderModel.steps < modelSteps {
			orderModel.step()
		}
		orderModel.rest()
	}
}

type orderModel struct {
	*model
	grpc           bool // asks by name, from the top: listener, route, cluster, endpoints
	clusters       int
	slow           bool                 // much time passes, while routes keep changing
	removedAt      map[string]time.Time // clusters that the client had when they were removed from the server
	insists        bool                 // gRPC: asks for clusters as long as they are there, and not only while it needs them
	routes         map[string]string    // of the server, each with the cluster that it leads to
	version        int
	out            []*wire.Request   // on their way to the server
	applied        map[string]string // gRPC: the clusters that are in use, by route
	balancerRoutes map[string]string // gRPC: the version of each route that its balancer has been told of
	returns        bool              // gRPC: keeps its resources when the stream ends, as grpc-go does from 1.75 on
	versions       map[string]string // gRPC: of the last response, by type
	lost           map[string]bool   // gRPC: clusters that a response deleted
	direct         map[string]string // gRPC: the client's routes whose next change the server cannot introduce
}

const orderRoutes = 3

// orderTypeOf is TypeOf for the things of the model: the version of a route is its cluster, a number, and, if it is an interim
// version, the new cluster.
func orderTypeOf(t *testing.T, url string) Type {
	typ := TypeOf(url)
	typ.Preannounce = nil
	if url == RouteURL {
		typ.Preannounce = func(current, next *Entry) (*Entry, []Dependency) {
			used, will := clustersIn(current.Version), clustersIn(next.Version)
			if slices.Contains(used, will[0]) {
				return nil, nil
			}
			return padded(t, current.Name, current.Version+"+"+will[0], ""), []Dependency{{used, will}}
		}
	}
	return typ
}

// clustersIn returns the cluster of a version of a route, and those that it preannounces.
func clustersIn(version string) []string {
	first, introduced, _ := strings.Cut(version, "+")
	cluster, _, _ := strings.Cut(first, "/")
	if introduced == "" {
		return []string{cluster}
	}
	return append([]string{cluster}, strings.Split(introduced, "+")...)
}

func newOrderModel(t *testing.T, seed uint64) *orderModel {
	m := newModel(t, NewServer(nil, Options{AckTimeout: modelAckTimeout}), seed)
	o := &orderModel{model: m, routes: make(map[string]string), applied: make(map[string]string), balancerRoutes: make(map[string]string)}
	m.r = rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // not for secrets
	m.group = NewGroup(Debounce{})
	for _, url := range modelTypes {
		m.colls[url] = m.group.Collection(orderTypeOf(m.t, url))
		m.colls[url].MarkSynced()
	}
	m.server.opts.Pacing = Pacing{Least: -1}
	if o.grpc = m.chance(2); o.grpc {
		m.delta, o.insists, o.returns = false, m.chance(3), m.chance(2)
	}
	o.versions, o.lost, o.direct = make(map[string]string), make(map[string]bool), make(map[string]string)
	o.clusters, o.removedAt = 8, make(map[string]time.Time)
	if o.slow = m.chance(4); o.slow {
		o.clusters = 50 // which seldom come back
	}
	o.move()
	o.open()
	return o
}

// open begins a stream. A returning client keeps its resources.
func (o *orderModel) open() {
	if o.stream != nil {
		o.stream.close()
	}
	o.stream = &stream{
		server: o.server, grpc: silentStream{ctx: o.t.Context()}, delta: o.delta, wakeup: make(wakeup, 1), drain: make(chan struct{}),
	}
	o.inbox, o.out, o.cut = nil, nil, false
	clear(o.removedAt)
	o.note("open grpc=%t delta=%t", o.grpc, o.delta)
	if o.returns && len(o.types[ListenerURL].names) > 0 {
		o.comeBack()
		return
	}
	for _, url := range []string{ClusterURL, EndpointURL, ListenerURL, RouteURL} {
		ty := o.types[url]
		ty.subscribed, ty.nonce, ty.names = false, "", map[string]bool{}
		if !o.delta { // it cannot send its resource versions, and loses deleted resources at once
			ty.resources, o.applied, o.balancerRoutes = map[string]string{}, map[string]string{}, map[string]string{}
		}
	}
	if o.grpc {
		o.want(ListenerURL, "l")
	} else {
		o.want(ClusterURL, "*")
	}
	o.follow()
}

// comeBack sends the first requests of a gRPC client that keeps its resources, in any order. The server may not
// recognize the versions, as after a restart: then the client gets no interim routes, and can lose calls for as long as
// its balancer takes.
func (o *orderModel) comeBack() {
	if o.chance(2) {
		clear(o.versions)
	}
	clusters := o.colls[ClusterURL].shown.Load().former(o.versions[ClusterURL])
	canIntroduce := o.colls[RouteURL].shown.Load().former(o.versions[RouteURL]) != initialState
	for name := range o.types[ClusterURL].names {
		canIntroduce = canIntroduce && clusters.get(name) != nil
	}
	if !canIntroduce {
		maps.Copy(o.direct, o.types[RouteURL].resources)
		clear(o.lost) // of two restarts in a row, the second cannot know of them
	}
	urls := []string{ClusterURL, EndpointURL, ListenerURL, RouteURL}
	o.r.Shuffle(len(urls), func(i, j int) { urls[i], urls[j] = urls[j], urls[i] })
	for _, url := range urls {
		ty := o.types[url]
		if ty.subscribed, ty.nonce = len(ty.names) > 0, ""; ty.subscribed {
			req := o.request(url)
			req.Names, req.Version = slices.Sorted(maps.Keys(ty.names)), cmp.Or(o.versions[url], "unknown")
			o.out = append(o.out, req)
		}
	}
	for !canIntroduce && len(o.out) > 0 { // it sends them at once
		o.deliver()
	}
	o.follow()
}

func (o *orderModel) routeNames() (names []string) {
	for i := range orderRoutes {
		names = append(names, fmt.Sprintf("r%d", i))
	}
	return names
}

// clustersOf returns the clusters that a gRPC client needs: those in use, and those that its routes lead to.
func (o *orderModel) clustersOf() []string {
	needed := o.routesHad()
	for route, version := range o.types[RouteURL].resources {
		for _, cluster := range clustersIn(version)[1:] {
			needed[cluster+" introduced by "+route] = cluster
		}
	}
	for route, cluster := range o.applied {
		needed["in use by "+route] = cluster
	}
	if o.insists {
		for cluster := range o.types[ClusterURL].resources {
			needed["had: "+cluster] = cluster
		}
	}
	return slices.Compact(slices.Sorted(maps.Values(needed)))
}

// routesHad returns the clusters of the routes that the client has.
func (o *orderModel) routesHad() map[string]string {
	clusterByRoute := make(map[string]string)
	for route, version := range o.types[RouteURL].resources {
		clusterByRoute[route], _, _ = strings.Cut(version, "/")
	}
	return clusterByRoute
}

// want sends a request for names, unless the client wants just these already.
func (o *orderModel) want(url string, names ...string) {
	modelType := o.types[url]
	if modelType.subscribed && maps.Equal(modelType.names, set(names)) {
		return
	}
	request := o.request(url)
	switch {
	case !o.delta:
		request.Names, request.Nonce = names, modelType.nonce
	case !modelType.subscribed:
		request.Subscribe = names
		if len(modelType.resources) > 0 {
			request.Initial = o.initial(modelType.resources)
		}
	default:
		for _, name := range names {
			if !modelType.names[name] {
				request.Subscribe = append(request.Subscribe, name)
			}
		}
		for name := range modelType.names {
			if !slices.Contains(names, name) {
				request.Unsubscribe = append(request.Unsubscribe, name)
			}
		}
	}
	modelType.subscribed, modelType.names = true, set(names)
	if o.grpc {
		modelType.drop(0)
	}
	o.out = append(o.out, request)
}

func set(names []string) map[string]bool {
	s := make(map[string]bool)
	for _, name := range names {
		s[name] = true
	}
	return s
}

func (o *orderModel) step() {
	o.steps++
	if o.insists {
		o.checkGone()
	}
	restful := 97
	if o.slow {
		restful = 88
	}
	switch n := o.r.IntN(100); {
	case n < 12:
		o.move()
	case n < 50:
		o.pump()
	case n < 70:
		o.look()
	case n < restful:
		o.deliver()
	case n < 99:
		most := 100 * time.Millisecond
		if o.slow { // the client does not delay acknowledgements
			o.sayAll()
			most = modelAckTimeout / 2
		}
		o.pass(time.Duration(o.r.Int64N(int64(most))))
	default:
		o.open()
	}
}

// move changes some routes to other clusters, and deletes the clusters that no route uses any more.
func (o *orderModel) move() {
	o.version++
	for _, route := range o.routeNames() {
		if o.routes[route] == "" || o.chance(2) {
			o.routes[route] = fmt.Sprintf("c%d", o.r.IntN(o.clusters))
		}
	}
	used := set(slices.Collect(maps.Values(o.routes)))
	commits := make(map[*Collection]*Commit)
	for _, url := range []string{ClusterURL, EndpointURL, RouteURL, ListenerURL} {
		commits[o.colls[url]] = &Commit{}
	}
	for i := range o.clusters {
		name := fmt.Sprintf("c%d", i)
		for _, url := range []string{ClusterURL, EndpointURL} {
			commit := commits[o.colls[url]]
			switch old := o.colls[url].Get(name); {
			case !used[name]:
				commit.Remove = append(commit.Remove, name)
			case old == nil || o.chance(4):
				commit.Put = append(commit.Put, padded(o.t, name, fmt.Sprint(o.version), ""))
			}
		}
	}
	for route, cluster := range o.routes {
		c := commits[o.colls[RouteURL]]
		if old := o.colls[RouteURL].Get(route); old == nil || !strings.HasPrefix(old.Version, cluster+"/") {
			c.Put = append(c.Put, padded(o.t, route, fmt.Sprintf("%s/%d", cluster, o.version), ""))
		}
	}
	commits[o.colls[ListenerURL]].Put = []*Entry{padded(o.t, "l", fmt.Sprint(o.version/5), "")}
	o.note("commit %v", o.routes)
	o.group.Apply(commits)
}

// sayAll sends all that can be sent now.
func (o *orderModel) sayAll() {
	for range 100 {
		switch sent, _ := o.pump(); {
		case sent:
		case len(o.inbox) > 0:
			o.look()
		case len(o.out) > 0:
			o.deliver()
		default:
			return
		}
	}
	o.require(false, "no rest after 100 messages")
}

// deliver hands the oldest request to the server.
func (o *orderModel) deliver() {
	if len(o.out) > 0 {
		req := o.out[0]
		o.out = o.out[1:]
		o.send(req)
	}
}

// look makes the client apply a message, subscribe to the names that follow from it, and acknowledge it, in the order
// of the real clients.
func (o *orderModel) look() {
	if len(o.inbox) == 0 {
		return
	}
	msg := o.inbox[0]
	o.inbox = o.inbox[1:]
	modelType := o.types[msg.typ]
	modelType.nonce = msg.nonce
	before := maps.Clone(modelType.resources)
	o.versions[msg.typ] = msg.version
	if msg.typ == RouteURL {
		maps.DeleteFunc(o.direct, func(name, version string) bool { return msg.puts[name] == version && o.balancerRoutes[name] == version })
	}
	switch {
	case o.delta:
		maps.Copy(modelType.resources, msg.puts)
		for _, name := range msg.removed {
			delete(modelType.resources, name)
		}
	case TypeOf(msg.typ).Partial && !modelType.names["*"]:
		maps.Copy(modelType.resources, msg.puts)
	default:
		modelType.resources, modelType.ver = msg.puts, msg.version
	}
	if o.grpc {
		modelType.drop(0) // resources that arrived too late
	}
	if msg.typ == ClusterURL {
		o.clustersChanged(before)
	}
	o.check()
	request := o.request(msg.typ)
	request.Nonce = msg.nonce
	if !o.delta {
		request.Names = slices.Sorted(maps.Keys(modelType.names))
	}
	if o.grpc { // it acknowledges the response, and then its watchers subscribe to more
		o.out = append(o.out, request)
		o.follow()
		return
	}
	o.follow()
	o.out = append(o.out, request)
}

// clustersChanged drops the endpoints of deleted clusters.
func (o *orderModel) clustersChanged(before map[string]string) {
	clusters := o.types[ClusterURL].resources
	endpoints := o.types[EndpointURL].resources
	for name := range before {
		if _, ok := clusters[name]; !ok {
			delete(endpoints, name)
			o.lost[name] = true
		}
	}
	maps.DeleteFunc(o.lost, func(name string, _ bool) bool { _, ok := clusters[name]; return ok })
}

// follow subscribes to the names that the client needs now.
func (o *orderModel) follow() {
	if o.grpc {
		ready := true
		for _, version := range o.types[RouteURL].resources {
			for _, cluster := range clustersIn(version) {
				_, hasCluster := o.types[ClusterURL].resources[cluster]
				_, endpoints := o.types[EndpointURL].resources[cluster]
				ready = ready && (hasCluster && endpoints || o.returns && o.lost[cluster])
			}
		}
		if ready { // it switches to new routes when it has their clusters
			o.apply()
		}
		if len(o.types[ListenerURL].resources) > 0 {
			o.want(RouteURL, o.routeNames()...)
		}
		if clusters := o.clustersOf(); len(clusters) > 0 {
			maps.DeleteFunc(o.lost, func(name string, _ bool) bool { return !slices.Contains(clusters, name) })
			o.want(ClusterURL, clusters...)
		}
	}
	if clusters := slices.Sorted(maps.Keys(o.types[ClusterURL].resources)); len(clusters) > 0 {
		o.want(EndpointURL, clusters...)
	}
	if !o.grpc { // it begins with clusters, and goes on when it has their endpoints; a returning client sends all requests at once
		if len(o.types[ClusterURL].resources) > 0 && len(o.types[EndpointURL].resources) == len(o.types[ClusterURL].resources) ||
			len(o.types[ListenerURL].resources) > 0 {
			o.want(ListenerURL, "l")
		}
		if len(o.types[ListenerURL].resources) > 0 {
			o.want(RouteURL, o.routeNames()...)
		}
	}
}

// apply makes a gRPC client use the routes that it has: each at once, before its balancer knows the clusters.
func (o *orderModel) apply() {
	o.applied = o.routesHad()
	for route, cluster := range o.applied {
		if former, ok := o.direct[route]; ok {
			if former != o.types[RouteURL].resources[route] {
				delete(o.direct, route)
			}
		} else if version, ok := o.balancerRoutes[route]; ok {
			o.require(slices.Contains(clustersIn(version), cluster), "route %s leads to %s, a cluster that is missing in the balancer",
				route, cluster)
		}
	}
	o.balancerRoutes = maps.Clone(o.types[RouteURL].resources)
	if o.returns {
		o.checkRoutes(o.applied)
	}
}

// check checks that each route in use has a cluster with endpoints. A gRPC client that keeps its resources goes on
// using a deleted cluster until it has the clusters of its next routes: it is checked when it switches.
func (o *orderModel) check() {
	switch {
	case !o.grpc:
		o.checkRoutes(o.routesHad())
	case !o.returns:
		o.checkRoutes(o.applied)
	}
}

func (o *orderModel) checkRoutes(routes map[string]string) {
	for route, cluster := range routes {
		_, hasCluster := o.types[ClusterURL].resources[cluster]
		_, endpoints := o.types[EndpointURL].resources[cluster]
		o.require(hasCluster && endpoints, "route %s leads to %s: the client has the cluster: %t, its endpoints: %t",
			route, cluster, hasCluster, endpoints)
	}
}

// checkGone checks that deleted clusters do not stay with a client for ever because routes keep changing.
func (o *orderModel) checkGone() {
	for i := range o.clusters {
		name := fmt.Sprintf("c%d", i)
		if _, hasCluster := o.types[ClusterURL].resources[name]; !hasCluster || o.colls[ClusterURL].Get(name) != nil {
			delete(o.removedAt, name)
		} else if removedAt, ok := o.removedAt[name]; !ok {
			o.removedAt[name] = o.now
		} else {
			o.require(o.now.Sub(removedAt) < (removalTimeouts+3)*modelAckTimeout, "the client has %s, which is gone since %s",
				name, o.now.Sub(removedAt))
		}
	}
}

// rest sends everything. The client ends up with the routes of the server and all that they need.
func (o *orderModel) rest() {
	messages, waits := 0, 0
	for {
		o.steps++
		sent, wait := o.pump()
		switch {
		case sent:
			messages++
		case len(o.inbox) > 0:
			o.look()
		case len(o.out) > 0:
			o.deliver()
		case o.stream.idle():
			o.require(maps.Equal(o.routes, o.routesHad()), "at rest the routes are %v, on the server %v", o.routesHad(), o.routes)
			if !o.grpc {
				o.require(len(o.types[ClusterURL].resources) == o.colls[ClusterURL].Len(), "at rest the client has clusters %v",
					o.types[ClusterURL].resources)
			}
			return
		default:
			require.Positive(o.t, wait, "the stream is not at rest, but has no timer")
			waits++
			o.pass(wait)
		}
		o.require(messages < 100, "no rest after %d messages", messages)
		o.require(waits < 20, "no rest after %d waits", waits)
	}
}
