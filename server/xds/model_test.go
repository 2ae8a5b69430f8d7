package xds

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tributary/internal/xdstest"
	"tributary/server/xds/wire"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// The model: a client of random behaviour on a stream of the real engine, without a network and with a clock of its
// own, against random commits. It models the protocol and not the engine: the permitted content of a response, and the
// client's required resources when no response is due any more. One seed is one history; XDS_MODEL_SEEDS and
// XDS_MODEL_FROM choose others.

const modelSteps = 250

var modelTypes = []string{testType, SecretURL, ClusterURL, EndpointURL, ListenerURL, RouteURL}

func TestModel(t *testing.T) {
	defer func(n int) { maxChunk = n }(maxChunk)
	maxChunk = 200 // a few resources
	seeds, from := fromEnv(t, "XDS_MODEL_SEEDS", 300), fromEnv(t, "XDS_MODEL_FROM", 1)
	server := NewServer(nil, Options{AckTimeout: modelAckTimeout, Log: slog.New(slog.DiscardHandler)})
	responses := 0
	for seed := from; seed < from+seeds; seed++ {
		model := newModel(t, server, uint64(seed)) //nolint:gosec // a seed
		for model.steps < modelSteps {
			model.step()
		}
		model.rest()
		responses += model.responses
	}
	t.Logf("%d histories of %d steps, %d responses", seeds, modelSteps, responses)
}

func fromEnv(t *testing.T, name string, otherwise int) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
	require.NoError(t, err)
	return n
}

const (
	modelAckTimeout = 10 * time.Second
	modelNames      = 7 // of each type
)

// model is one history.
type model struct {
	t      *testing.T
	seed   uint64
	r      *rand.Rand
	server *Server
	colls  map[string]*Collection
	group  *Group
	now    time.Time
	steps  int
	log    []string

	delta     bool
	given     bool // collections have a Commit.Version, and a new one is a change
	stream    *stream
	inbox     []*message // sent, and not yet looked at by the client
	sent      int        // messages
	planned   int        // the number of the message with which the last response began
	cut       bool       // that response has more to come
	types     map[string]*modelType
	responses int
}

// modelType is the client's state of one type.
type modelType struct {
	subscribed   bool // on this stream
	wildcard     bool
	named        bool     // SotW: a name was given on this stream
	sent         string   // the nonce of the last response that is on its way, or was looked at
	accepted     []string // SotW: the names that the server has taken
	insist       bool     // SotW: the server did not take the last names
	lost         bool     // SotW: names that the server has taken were dropped meanwhile
	names        map[string]bool
	resources    map[string]string
	nonce        string          // of the last response looked at
	ver          string          // SotW: its version, if it spoke of everything that is wanted
	knownMissing map[string]bool // delta: wanted names that are known to be missing
	repeatable   map[string]int  // names that a response may repeat, each with the number of messages sent before the request
	repeat       int             // SotW: likewise, for a response without changes; -1 forbids it
}

// message is a response.
type message struct {
	number              int
	typ, nonce, version string
	puts                map[string]string
	removed             []string
}

// silentStream is all of gRPC that the engine needs to take requests.
type silentStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s silentStream) Context() context.Context { return s.ctx }

func newModel(t *testing.T, server *Server, seed uint64) *model {
	m := &model{
		t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_000_000, 0), //nolint:gosec // not for secrets
		colls: make(map[string]*Collection), group: NewGroup(Debounce{Quiet: time.Hour}),
		types: make(map[string]*modelType),
	}
	m.group.Log = server.log
	m.delta, m.given = m.chance(2), m.chance(4)
	opts := server.opts
	opts.Pacing = Pacing{Least: -1}
	if m.chance(3) {
		opts.Pacing = Pacing{}
		opts.Pacing.setDefaults()
	}
	m.server = &Server{
		catalog: m, opts: opts, log: server.log, metrics: server.metrics, logged: server.logged, connectionLog: server.connectionLog,
	}
	for _, url := range modelTypes {
		m.colls[url] = m.group.Collection(modelTypeOf(m.t, url))
		m.types[url] = &modelType{
			names: map[string]bool{}, resources: map[string]string{}, repeatable: map[string]int{},
			knownMissing: map[string]bool{},
		}
	}
	for range 3 {
		m.commit()
	}
	for _, url := range modelTypes {
		if !m.chance(8) {
			m.colls[url].MarkSynced()
		}
	}
	m.connect(false)
	return m
}

// modelTypeOf is TypeOf for the things of the model. By name and version, some have interim versions, and some clusters
// need others.
func modelTypeOf(t *testing.T, url string) Type {
	typ := TypeOf(url)
	if url == ClusterURL {
		typ.Needs = func(e *Entry) (needs []string) {
			if hash := crc32.ChecksumIEEE([]byte(e.Name + e.Version)); hash%3 == 0 {
				needs = append(needs, fmt.Sprintf("n%d", hash>>3%modelNames))
			}
			return needs
		}
	}
	if typ.Preannounce == nil {
		return typ
	}
	typ.Preannounce = func(current, next *Entry) (*Entry, []Dependency) {
		version := current.Version + ">" + next.Version
		hash := crc32.ChecksumIEEE([]byte(current.Name + version))
		if hash%4 == 0 || strings.Contains(current.Version, ">") {
			return nil, nil
		}
		name := func(shift int) string { return fmt.Sprintf("n%d", hash>>shift%modelNames) }
		return padded(t, current.Name, version, ""), []Dependency{{[]string{name(2)}, []string{name(5), name(9)}}}
	}
	return typ
}

// Collection implements Catalog.
func (m *model) Collection(_ context.Context, _ *corev3.Node, typeURL string) (*Collection, func(), error) {
	return m.colls[typeURL], nil, nil
}

func (m *model) chance(oneIn int) bool { return m.r.IntN(oneIn) == 0 }

func (m *model) name() string { return fmt.Sprintf("n%d", m.r.IntN(modelNames)) }

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

// require fails with the seed and the last events.
func (m *model) require(ok bool, format string, args ...any) {
	if ok {
		return
	}
	m.t.Helper()
	last := m.log[max(len(m.log)-200, 0):]
	m.t.Fatalf("seed %d, step %d: %s\n%s", m.seed, m.steps, fmt.Sprintf(format, args...), strings.Join(last, "\n"))
}

func (m *model) step() {
	m.steps++
	url := modelTypes[m.r.IntN(len(modelTypes))]
	switch n := m.r.IntN(100); {
	case n < 20:
		m.commit()
	case n < 35:
		m.show()
	case n < 60:
		m.pump()
	case n < 80:
		m.look(m.chance(8))
	case n < 92:
		m.ask(url)
	case n < 94:
		m.junk(url)
	case n < 97:
		m.pass(time.Duration(m.r.Int64N(int64(modelAckTimeout * 3 / 2))))
	case n < 98:
		m.colls[url].MarkSynced()
		m.note("synced %s", short(url))
	default:
		m.connect(m.chance(2))
	}
}

func short(url string) string { return url[strings.LastIndexAny(url, "./")+1:] }

// commit changes some collections at once.
func (m *model) commit() {
	commits := make(map[*Collection]*Commit)
	for range 1 + m.r.IntN(3) {
		url := modelTypes[m.r.IntN(len(modelTypes))]
		commit := commits[m.colls[url]]
		if commit == nil {
			commit = &Commit{}
			commits[m.colls[url]] = commit
		}
		for range m.r.IntN(4) {
			if name := m.name(); m.chance(3) {
				commit.Remove = append(commit.Remove, name)
			} else {
				commit.Put = append(commit.Put, padded(m.t, name, strconv.Itoa(m.r.IntN(3)), ""))
			}
		}
		if m.given && m.chance(3) {
			commit.Version = fmt.Sprintf("by hand %d", m.r.IntN(3))
		}
		m.note("commit %s -%v +%v %s", short(url), commit.Remove, names(commit.Put), commit.Version)
	}
	m.group.Apply(commits)
}

func (m *model) show() {
	m.note("show")
	m.group.mu.Lock()
	m.group.show()
	m.group.mu.Unlock()
	for url, modelType := range m.types {
		if !m.delta && TypeOf(url).Partial { // removals cannot be sent, and a client that resumes does not have them
			for i := range modelNames {
				if name := fmt.Sprintf("n%d", i); m.colls[url].Get(name) == nil {
					modelType.repeatable[name] = m.sent
					if TypeOf(url).Rank > 0 { // a stream may come to this cut much later
						modelType.repeatable[name] = math.MaxInt
					}
				}
			}
		}
	}
}

func (m *model) pass(d time.Duration) {
	m.note("%s pass", d)
	m.now = m.now.Add(d)
}

// connect begins a stream. If the client resumes, it sends its versions; else it forgets its resources.
func (m *model) connect(resumes bool) {
	m.note("connect delta=%t resumes=%t", m.delta, resumes)
	if m.stream != nil {
		m.stream.close()
	}
	m.stream = &stream{
		server: m.server, grpc: silentStream{ctx: m.t.Context()}, delta: m.delta, wakeup: make(wakeup, 1), drain: make(chan struct{}),
	}
	m.inbox, m.cut = nil, false
	for _, url := range modelTypes {
		modelType := m.types[url]
		wasAsked := modelType.subscribed
		modelType.subscribed, modelType.named, modelType.nonce, modelType.sent, modelType.accepted = false, false, "", "", nil
		modelType.repeatable, modelType.knownMissing = map[string]int{}, map[string]bool{}
		if !resumes || !wasAsked {
			modelType.resources, modelType.ver = map[string]string{}, ""
			modelType.wildcard, modelType.names = false, map[string]bool{}
			continue
		}
		if !m.chance(3) { // the others are asked for later, or never
			m.first(url, true)
		} else {
			modelType.resources, modelType.ver = map[string]string{}, ""
			modelType.wildcard, modelType.names = false, map[string]bool{}
		}
	}
}

// first is the first request of a type on a stream.
func (m *model) first(url string, resumes bool) {
	modelType := m.types[url]
	modelType.subscribed, modelType.repeat = true, m.sent
	request := m.request(url)
	if modelType.wildcard && !m.delta && len(modelType.names) > 0 || modelType.wildcard && m.chance(2) {
		request.Names = append(request.Names, "*")
	}
	if !modelType.wildcard || m.chance(2) && len(request.Names) > 0 || !m.delta {
		request.Names = append(request.Names, slices.Sorted(maps.Keys(modelType.names))...)
	} else {
		modelType.names = map[string]bool{}
	}
	if modelType.named = len(request.Names) > 0; !modelType.named {
		modelType.wildcard = true
	}
	for name := range modelType.names {
		modelType.repeatable[name] = m.sent
	}
	if m.delta {
		request.Subscribe, request.Names = request.Names, nil
		if resumes && len(modelType.resources) > 0 {
			request.Initial = m.initial(modelType.resources)
			modelType.repeatable = map[string]int{}
		} else {
			modelType.resources = map[string]string{}
		}
	} else if resumes && modelType.wildcard {
		request.Version = modelType.ver
	}
	if !m.delta && !modelType.wildcard {
		modelType.ver = ""
	}
	m.send(request)
}

func (m *model) initial(versions map[string]string) *wire.Versions {
	b, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: versions})
	require.NoError(m.t, err)
	r := wire.Request{Delta: true}
	require.NoError(m.t, r.Decode(b))
	return r.Initial
}

func (m *model) request(url string) *wire.Request {
	return &wire.Request{Delta: m.delta, TypeURL: url, Node: &corev3.Node{Id: "model"}}
}

func (m *model) send(req *wire.Request) {
	m.note("request %s nonce=%q err=%t names=%v +%v -%v initial=%t version=%q", short(req.TypeURL), req.Nonce, req.Err != nil,
		req.Names, req.Subscribe, req.Unsubscribe, req.Initial != nil, req.Version)
	m.require(m.stream.handle(req, m.now) == nil, "request refused")
}

// ask changes the client's subscription to a type.
func (m *model) ask(url string) {
	modelType := m.types[url]
	if !modelType.subscribed {
		modelType.wildcard = m.chance(2)
		for range m.r.IntN(3) {
			modelType.names[m.name()] = true
		}
		if len(modelType.names) == 0 {
			modelType.wildcard = true
		}
		m.first(url, false)
		return
	}
	if m.delta {
		m.askDelta(modelType, url)
	} else {
		m.askSotW(modelType, url)
	}
}

func (m *model) askDelta(ty *modelType, url string) {
	request := m.request(url)
	for range 1 + m.r.IntN(2) {
		name := m.name()
		if m.chance(6) {
			name = "*"
			for len(m.inbox) > 0 { // a wildcard is not repeated before the client handled all earlier messages
				m.look(false)
			}
		}
		if slices.Contains(request.Subscribe, name) || slices.Contains(request.Unsubscribe, name) {
			continue
		}
		if m.chance(2) {
			request.Subscribe = append(request.Subscribe, name)
		} else {
			request.Unsubscribe = append(request.Unsubscribe, name)
		}
	}
	for _, name := range request.Subscribe {
		if name == "*" {
			if !ty.wildcard {
				for i := range modelNames {
					ty.repeatable[fmt.Sprintf("n%d", i)] = m.sent
				}
			}
			ty.wildcard = true
			continue
		}
		ty.names[name], ty.repeatable[name] = true, m.sent
		delete(ty.knownMissing, name)
	}
	for _, name := range request.Unsubscribe {
		if name == "*" {
			ty.wildcard = false
			continue
		}
		delete(ty.names, name)
		delete(ty.resources, name)
		delete(ty.knownMissing, name)
		ty.repeatable[name] = m.sent
	}
	ty.drop(m.sent)
	m.send(request)
}

func (m *model) askSotW(ty *modelType, url string) {
	switch m.r.IntN(8) {
	case 0:
		ty.wildcard = !ty.wildcard && !m.chance(3)
	case 1:
		ty.names = map[string]bool{}
	default:
		if name := m.name(); ty.names[name] {
			delete(ty.names, name)
		} else {
			ty.names[name] = true
		}
	}
	if len(ty.names) == 0 && !ty.named {
		ty.wildcard = true // SotW cannot express an empty subscription here
	}
	ty.drop(m.sent)
	m.answer(ty, url, nil)
}

// answer sends a SotW request with the client's names, about the last response that it handled.
func (m *model) answer(ty *modelType, url string, err *rpcstatus.Status) {
	req := m.request(url)
	req.Nonce, req.Err = ty.nonce, err
	req.Names = slices.Sorted(maps.Keys(ty.names))
	if ty.wildcard && (ty.named || len(req.Names) > 0) {
		req.Names = append(req.Names, "*")
	}
	ty.named = ty.named || len(req.Names) > 0
	ty.insist = ty.nonce != ty.sent // the server will not take the names
	if ty.insist {
		if ty.lost = ty.lost || slices.ContainsFunc(ty.accepted, func(name string) bool { return !slices.Contains(req.Names, name) }); ty.lost {
			ty.repeat = m.sent
		}
	} else if ty.lost || !slices.Equal(ty.accepted, req.Names) {
		ty.accepted, ty.repeat, ty.lost = req.Names, m.sent, false
	}
	m.send(req)
}

// drop forgets all resources without a subscription.
func (ty *modelType) drop(sent int) {
	maps.DeleteFunc(ty.resources, func(name, _ string) bool { return !ty.wildcard && !ty.names[name] })
	ty.repeat, ty.ver = sent, ""
}

// junk is a request with an unknown nonce, as of an answer to another stream.
func (m *model) junk(url string) {
	if !m.types[url].subscribed {
		return
	}
	req := m.request(url)
	req.Nonce = "zzzz"
	m.send(req)
}

// pump lets the engine send one message.
func (m *model) pump() (sent bool, wait time.Duration) {
	frame, wait := m.stream.next(m.now)
	if frame == nil {
		return false, wait
	}
	msg := m.decode(frame)
	m.require(m.colls[msg.typ].Synced(), "%s is sent before it is synced", short(msg.typ))
	if !m.cut {
		m.planned = m.sent + 1
	}
	m.sent++
	msg.number, m.cut = m.planned, msg.version == ""
	for _, version := range msg.puts {
		clusters := m.stream.types[ClusterURL]
		m.require(!strings.Contains(version, ">") || clusters != nil && !clusters.selection.wildcard,
			"%s: %s was sent to a client of all clusters",
			short(msg.typ), version)
	}
	m.inbox = append(m.inbox, msg)
	m.types[msg.typ].sent = msg.nonce
	m.note("sent %s nonce=%s version=%s +%v -%v", short(msg.typ), msg.nonce, msg.version, msg.puts, msg.removed)
	return true, 0
}

func (m *model) decode(f *frame) *message {
	b := f.data.Materialize()
	if !m.delta {
		var r discoveryv3.DiscoveryResponse
		require.NoError(m.t, proto.Unmarshal(b, &r))
		msg := &message{typ: r.TypeUrl, nonce: r.Nonce, version: r.VersionInfo, puts: map[string]string{}}
		for _, a := range r.Resources {
			name, version, _ := strings.Cut(xdstest.Text(m.t, a), "@")
			_, twice := msg.puts[name]
			m.require(!twice, "%s is in a response twice", name)
			msg.puts[name] = version
		}
		return msg
	}
	var r discoveryv3.DeltaDiscoveryResponse
	require.NoError(m.t, proto.Unmarshal(b, &r))
	msg := &message{
		typ: r.TypeUrl, nonce: r.Nonce, version: r.SystemVersionInfo, removed: r.RemovedResources, puts: map[string]string{},
	}
	for _, res := range r.Resources {
		_, twice := msg.puts[res.Name]
		m.require(!twice && !slices.Contains(r.RemovedResources, res.Name), "%s is in a response twice", res.Name)
		m.require(xdstest.Text(m.t, res.Resource) == res.Name+"@"+res.Version, "%s has the body of another resource", res.Name)
		msg.puts[res.Name] = res.Version
	}
	return msg
}

// look makes the client apply the oldest message, and perhaps answer it.
func (m *model) look(late bool) {
	if len(m.inbox) == 0 {
		return
	}
	message := m.inbox[0]
	m.inbox = m.inbox[1:]
	modelType := m.types[message.typ]
	modelType.nonce = message.nonce
	m.responses++
	if m.delta {
		m.receiveDelta(modelType, message)
	} else {
		m.receiveSotW(modelType, message)
	}
	if late && !modelType.insist {
		m.note("not answered")
		return
	}
	var err *rpcstatus.Status
	if m.chance(10) {
		err = &rpcstatus.Status{Message: "no"}
		m.reject(modelType)
	}
	if !m.delta {
		m.answer(modelType, message.typ, err)
		return
	}
	req := m.request(message.typ)
	req.Nonce, req.Err = message.nonce, err
	m.send(req)
}

// reject notes that the client rejected a message, maybe one of several chunks: all may be sent again.
func (m *model) reject(ty *modelType) {
	const chunks = 4 // at most; some of them are yet to come
	for i := range modelNames {
		ty.repeatable[fmt.Sprintf("n%d", i)] = m.sent + chunks
	}
}

func (ty *modelType) covers(name string) bool { return ty.wildcard || ty.names[name] }

func (ty *modelType) mayRepeat(name string) bool { _, ok := ty.repeatable[name]; return ok }

// heard notes that a message mentions name: it answers the requests before it.
func (ty *modelType) heard(name string, msg *message) {
	if sent, ok := ty.repeatable[name]; ok && msg.number > sent {
		delete(ty.repeatable, name)
	}
}

func (m *model) receiveDelta(ty *modelType, msg *message) {
	for name, version := range msg.puts {
		m.changed(msg, name)
		if !ty.covers(name) {
			continue
		}
		m.require(ty.resources[name] != version || ty.mayRepeat(name), "%s: %s@%s is repeated", short(msg.typ), name, version)
		ty.resources[name] = version
		delete(ty.knownMissing, name)
		ty.heard(name, msg)
	}
	for _, name := range msg.removed {
		_, existed := ty.resources[name]
		m.require(!ty.covers(name) || existed || ty.mayRepeat(name) || !ty.knownMissing[name],
			"%s: removal of %s is repeated", short(msg.typ), name)
		delete(ty.resources, name)
		ty.heard(name, msg)
		if ty.covers(name) {
			ty.knownMissing[name] = true
		}
	}
}

func (m *model) receiveSotW(ty *modelType, msg *message) {
	full := ty.wildcard || !TypeOf(msg.typ).Partial
	for name, version := range msg.puts {
		if ty.resources[name] != version || ty.repeat >= 0 {
			m.changed(msg, name)
		}
	}
	maps.DeleteFunc(msg.puts, func(name, _ string) bool { return !ty.covers(name) })
	news := full && !maps.Equal(ty.resources, msg.puts)
	for name, version := range msg.puts {
		if !full {
			m.require(ty.resources[name] != version || ty.mayRepeat(name) || ty.repeat >= 0, "%s: %s@%s is repeated", short(msg.typ), name, version)
			news = true
		}
		news = news || ty.mayRepeat(name)
		ty.heard(name, msg)
	}
	m.require(news || ty.repeat >= 0 || m.given, "%s: a response without changes", short(msg.typ))
	if full {
		ty.resources = msg.puts
	} else {
		maps.Copy(ty.resources, msg.puts)
	}
	if msg.number > ty.repeat {
		ty.repeat = -1
		if ty.wildcard {
			ty.ver = msg.version
		}
	}
}

// changed notes that a cluster is new: its endpoints may be sent again.
func (m *model) changed(msg *message, name string) {
	if msg.typ == ClusterURL {
		repeatable := m.types[EndpointURL].repeatable
		repeatable[name] = max(repeatable[name], msg.number)
	}
}

// rest stops the changes and answers each message until no response is due. Then client and server have the same
// resources.
func (m *model) rest() {
	m.show()
	for _, url := range modelTypes {
		m.colls[url].MarkSynced()
	}
	messages, waits := 0, 0
	for {
		sent, wait := m.pump()
		switch {
		case sent:
			messages++
		case len(m.inbox) > 0:
			m.look(false)
			continue
		case m.insists():
		case m.stream.idle():
			m.compare()
			return
		default:
			m.require(wait > 0, "the stream is not at rest, but has no timer")
			waits++
			m.pass(wait)
		}
		m.require(messages < 200, "no rest after %d messages", messages)
		m.require(waits < 60, "no rest after %d waits: %s", waits, m.unrest())
	}
}

// unrest describes the due responses.
func (m *model) unrest() (s string) {
	for _, sub := range m.stream.subs {
		if !sub.client.matches(sub.coll.shown.Load()) || sub.client.answersRequest() {
			s += fmt.Sprintf("%s: wants %v, lacks %v, stale %v, asks %t, outstanding %t; ", short(sub.typeURL), sub.selection, sub.client.notHeld,
				sub.client.resend, sub.client.mustRespond, sub.outstanding())
		}
	}
	return s
}

// insists makes a SotW client that answered late, or not at all, repeat its names.
func (m *model) insists() (repeated bool) {
	for _, url := range modelTypes {
		if ty := m.types[url]; ty.subscribed && !m.delta && ty.insist {
			ty.insist = false
			m.answer(ty, url, nil)
			return true
		}
	}
	return false
}

func (m *model) compare() {
	for _, url := range modelTypes {
		ty, server := m.types[url], map[string]string{}
		if !ty.subscribed {
			continue
		}
		for e := range m.colls[url].All() {
			if ty.covers(e.Name) {
				server[e.Name] = e.Version
			}
		}
		if !m.delta && !ty.wildcard && TypeOf(url).Partial {
			maps.DeleteFunc(ty.resources, func(name, _ string) bool { _, ok := server[name]; return !ok })
		}
		m.require(maps.Equal(server, ty.resources), "%s: at rest the client has %v, the server %v", short(url), ty.resources, server)
		if m.delta {
			for name := range ty.names {
				_, exists := server[name]
				m.require(exists || ty.knownMissing[name], "%s: the client was not told that there is no %s", short(url), name)
			}
		}
	}
	for _, s := range m.stream.status().Types {
		m.require(s.Synced || s.NackNonce != "" || s.AckedNonce != s.SentNonce, "%s: status does not say that it is synced", short(s.TypeURL))
	}
}
