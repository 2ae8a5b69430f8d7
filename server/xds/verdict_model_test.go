package xds

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

// rv is one history of one client of one type: what the engine says that the client accepted and rejected is compared with what it did.
type rv struct {
	t      *testing.T
	seed   uint64
	r      *rand.Rand
	server *Server
	colls  []*Collection
	which  int
	url    string
	delta  bool
	now    time.Time
	st     *stream
	log    []string
	opt    rvOptions

	asked, all, named bool
	wants             map[string]bool
	have              map[string]string
	pend              []*message        // sent, not answered
	nacked            map[string]string // the version in the last response of a name that was rejected
	lastNonce         string
	fail              string
}

type rvOptions struct{ late, resume, review, many, wildcard, emptyToo, window, partial bool }

func (m *rv) Collection(context.Context, *corev3.Node, string) (*Collection, func(), error) {
	return m.colls[m.which], func() {}, nil
}
func (m *rv) note(f string, a ...any) { m.log = append(m.log, fmt.Sprintf(f, a...)) }
func (m *rv) bad(f string, a ...any) {
	if m.fail == "" {
		m.fail = fmt.Sprintf("seed %d %s delta=%t: ", m.seed, m.url, m.delta) + fmt.Sprintf(f, a...)
	}
}
func (m *rv) name() string         { return fmt.Sprintf("n%d", m.r.IntN(4)) }
func (m *rv) covers(n string) bool { return m.all || m.wants[n] }
func (m *rv) sub() *subscription   { return m.st.types[m.url] }
func (m *rv) chance(n int) bool    { return m.r.IntN(n) == 0 }
func (m *rv) full() bool           { return !m.delta && (m.all || !TypeOf(m.url).Partial) }
func (m *rv) send(req *request) {
	m.note("request nonce=%q err=%t names=%v +%v -%v initial=%t", req.nonce, req.err != nil, req.names, req.subscribe, req.unsub, req.initial != nil)
	if err := m.st.take(req, m.now); err != nil {
		m.bad("refused: %v", err)
	}
}

func (m *rv) req() *request {
	return &request{delta: m.delta, typeURL: m.url, node: &corev3.Node{Id: "x"}}
}

func newRV(t *testing.T, base *Server, seed uint64, o rvOptions) *rv {
	m := &rv{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 7)), now: time.Unix(1_000_000, 0), opt: o}
	m.delta = m.chance(2)
	m.url = []string{testType, ClusterURL, EndpointURL}[m.r.IntN(3)]
	for !m.delta && !o.partial && m.url == EndpointURL {
		m.url = ClusterURL
	}
	m.server = &Server{catalog: m, opts: base.opts, log: base.log, metrics: base.metrics, logged: base.logged, visits: base.visits}
	m.server.opts.Pacing = Pacing{Least: -1}
	for range 2 {
		c := NewGroup(Debounce{}).Collection(TypeOf(m.url))
		c.MarkSynced()
		m.colls = append(m.colls, c)
	}
	m.connect(false)
	for range 2 {
		m.commit()
	}
	return m
}

func (m *rv) connect(resumes bool) {
	m.note("connect resumes=%t", resumes)
	if m.st != nil {
		m.st.close()
	}
	m.st = &stream{id: 1, server: m.server, grpc: silentStream{ctx: m.t.Context()}, delta: m.delta, bell: make(bell, 1), drain: make(chan struct{}), ended: make(chan error, 1)}
	m.server.streams = map[uint64]*stream{1: m.st}
	m.pend, m.nacked, m.lastNonce = nil, map[string]string{}, ""
	was := m.asked
	m.asked, m.named = false, false
	if !resumes || !was {
		m.have, m.wants, m.all = map[string]string{}, map[string]bool{}, false
		return
	}
	m.first(true)
}

func (m *rv) first(resumes bool) {
	m.asked = true
	req := m.req()
	names := slices.Sorted(maps.Keys(m.wants))
	m.all = m.all || len(names) == 0
	if m.all && len(names) > 0 {
		names = append(names, "*")
	}
	m.named = len(names) > 0
	if m.delta {
		req.subscribe = names
		if resumes && len(m.have) > 0 {
			b, _ := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: m.have})
			req.initial = &versions{parts: [][]byte{b}}
		} else {
			m.have = map[string]string{}
		}
	} else {
		req.names = names
		m.have = map[string]string{}
	}
	m.send(req)
}

func (m *rv) commit() {
	var c Commit
	c2 := m.colls[m.r.IntN(2)]
	if !m.opt.review {
		c2 = m.colls[0]
	}
	for range 1 + m.r.IntN(3) {
		if m.chance(4) {
			c.Remove = append(c.Remove, m.name())
		} else {
			c.Put = append(c.Put, thing(m.t, m.name(), fmt.Sprint(m.r.IntN(4)), ""))
		}
	}
	if !m.opt.emptyToo {
		c.Put = append(c.Put, thing(m.t, "always", "1", ""))
	}
	m.note("commit coll %d -%v +%v", slices.Index(m.colls, c2), c.Remove, rvItems(c.Put))
	c2.Apply(c)
	if m.opt.many && m.chance(10) {
		m.note("20 other commits")
		for i := range 20 {
			c2.Apply(Commit{Put: []*Entry{thing(m.t, "other", fmt.Sprint(m.r.IntN(1000), "-", i), "")}})
		}
	}
}

func rvItems(es []*Entry) (s []string) {
	for _, e := range es {
		s = append(s, e.Name+"@"+e.Version)
	}
	return s
}

func (m *rv) pump() bool {
	out, _ := m.st.next(m.now)
	if out == nil {
		return false
	}
	b := out.data.Materialize()
	msg := &message{puts: map[string]string{}}
	if m.delta {
		var r discoveryv3.DeltaDiscoveryResponse
		require.NoError(m.t, proto.Unmarshal(b, &r))
		msg.nonce, msg.removed, msg.version = r.Nonce, r.RemovedResources, r.SystemVersionInfo
		for _, res := range r.Resources {
			if res.Resource == nil {
				m.bad("a resource without a body is sent: %s", res.Name)
				continue
			}
			if said(m.t, res.Resource) != res.Name+"@"+res.Version {
				m.bad("body is not what it says")
			}
			msg.puts[res.Name] = res.Version
		}
	} else {
		var r discoveryv3.DiscoveryResponse
		require.NoError(m.t, proto.Unmarshal(b, &r))
		msg.nonce, msg.version = r.Nonce, r.VersionInfo
		for _, a := range r.Resources {
			if len(a.Value) == 0 {
				m.bad("a resource without a body is sent")
				continue
			}
			n, v, _ := strings.Cut(said(m.t, a), "@")
			msg.puts[n] = v
		}
	}
	m.note("sent nonce=%s +%v -%v", msg.nonce, msg.puts, msg.removed)
	m.pend = append(m.pend, msg)
	m.lastNonce = msg.nonce
	return true
}

// apply has the client take or reject a response; it does not say so.
func (m *rv) apply(msg *message, reject bool) {
	if reject {
		maps.Copy(m.nacked, msg.puts)
		return
	}
	if m.full() {
		for n := range m.have {
			if m.covers(n) {
				delete(m.have, n)
			}
		}
	}
	for n, v := range msg.puts {
		if m.covers(n) {
			m.have[n] = v
		}
		delete(m.nacked, n)
	}
	for _, n := range msg.removed {
		delete(m.have, n)
		delete(m.nacked, n)
	}
}

func (m *rv) names() []string {
	if m.delta {
		return nil
	}
	names := slices.Sorted(maps.Keys(m.wants))
	if m.all && (m.named || len(names) > 0) {
		names = append(names, "*")
	}
	m.named = m.named || len(names) > 0
	return names
}

func (m *rv) answer() {
	if len(m.pend) == 0 {
		return
	}
	msg := m.pend[0]
	m.pend = m.pend[1:]
	reject := m.chance(2)
	m.apply(msg, reject)
	req := m.req()
	req.nonce, req.names = msg.nonce, m.names()
	if reject {
		req.err = &rpcstatus.Status{Message: "no"}
	}
	if m.delta && m.chance(4) && len(m.pend) == 0 {
		m.change(req)
	}
	m.send(req)
}

func (m *rv) change(req *request) {
	if !m.delta {
		n := m.name()
		switch {
		case m.opt.wildcard && m.chance(6):
			if m.all && (m.named || len(m.wants) > 0) {
				m.all = false
				maps.DeleteFunc(m.have, func(n string, _ string) bool { return !m.wants[n] })
			} else {
				m.all = true
			}
		case m.wants[n]:
			delete(m.wants, n)
			if !m.all {
				delete(m.have, n)
				delete(m.nacked, n)
			}
		default:
			m.wants[n] = true
		}
		if len(m.wants) == 0 && !m.named {
			m.all = true
		}
		req.names = m.names()
		return
	}
	for range 1 + m.r.IntN(2) {
		n := m.name()
		if m.opt.wildcard && m.chance(6) {
			n = "*"
		}
		if slices.Contains(req.subscribe, n) || slices.Contains(req.unsub, n) {
			continue
		}
		switch {
		case n == "*" && !m.all, n != "*" && !m.wants[n] && !m.all:
			req.subscribe = append(req.subscribe, n)
		case n == "*" && len(req.subscribe) == 0, n != "*" && m.wants[n] && !m.all:
			req.unsub = append(req.unsub, n)
		}
	}
	for _, n := range req.subscribe {
		if n == "*" {
			m.all = true
			continue
		}
		m.wants[n] = true
	}
	for _, n := range req.unsub {
		if n == "*" {
			m.all = false
			continue
		}
		delete(m.wants, n)
		delete(m.have, n)
		delete(m.nacked, n)
	}
	maps.DeleteFunc(m.have, func(n string, _ string) bool { return !m.covers(n) })
	maps.DeleteFunc(m.nacked, func(n string, _ string) bool { return !m.covers(n) })
}

func (m *rv) step() {
	switch n := m.r.IntN(100); {
	case n < 20:
		m.commit()
	case n < 50:
		m.pump()
	case n < 75:
		m.answer()
	case n < 90:
		if !m.asked {
			m.all = m.chance(2)
			m.wants[m.name()] = true
			m.first(false)
			break
		}
		if len(m.pend) > 0 { // else it is not clear what the client has
			break
		}
		req := m.req()
		m.change(req)
		if !m.delta {
			req.nonce = m.lastNonce
		}
		m.send(req)
	case n < 94:
		if len(m.pend) == 0 || m.opt.late {
			m.note("pass")
			m.now = m.now.Add(15 * time.Second)
		}
	case n < 97:
		if m.opt.review && m.asked {
			m.which = 1 - m.which
			m.note("review: sees %d", m.which)
			if err := m.st.review(); err != nil {
				m.bad("%v", err)
			}
		}
	default:
		if m.opt.resume {
			m.connect(m.chance(2))
		}
	}
	m.check()
}

// check says whether what the engine knows is so. What the client was sent and has not answered may be anything but accepted.
func (m *rv) check() {
	sub := m.sub()
	if sub == nil || m.fail != "" {
		return
	}
	if sub.has.at.isBare || sub.goal.isBare {
		m.bad("the client is taken to be at a bare state")
	}
	coll := m.colls[m.which]
	aud := m.server.Audience()
	about, o := m.server.Complaint(1, m.url)
	rest := len(m.pend) == 0 && !sub.has.asked() && sub.has.is(coll.shown.Load()) && !sub.outstanding() && len(sub.chunks) == 0
	for e := range coll.All() {
		if !m.covers(e.Name) {
			continue
		}
		r := Resource{e.Name, e.Version}
		acc := aud.Accepted(coll, r, 0)
		if acc && m.have[r.Name] != r.Version {
			m.bad("%v is taken for accepted, the client has %q", r, m.have[r.Name])
		}
		if _, owed := sub.has.lacks[r.Name]; owed && !m.opt.window {
			continue // it is yet to be sent: see TestWhatWasNeverSentIsNotRejected
		}
		rejects := slices.Contains(about.Rejected, r)
		op, _ := m.server.Opinion(1, coll, []Resource{r})
		if rejects && m.have[r.Name] == r.Version && !sub.outstanding() {
			m.bad("%v is taken for rejected by the complaint, and the client has it", r)
		}
		if rejects && m.nacked[r.Name] != r.Version {
			m.bad("%v is taken for rejected by the complaint, and the client did not reject it", r)
		}
		if rejects && about.Lacks[r.Name] != (m.have[r.Name] == "") {
			m.bad("%v is rejected: lacks is said to be %t, the client has %q", r, about.Lacks[r.Name], m.have[r.Name])
		}
		if op == Accepts && m.have[r.Name] != r.Version {
			m.bad("opinion of %v is that it is accepted, the client has %q", r, m.have[r.Name])
		}
		if op == Rejects && m.nacked[r.Name] != r.Version {
			m.bad("opinion of %v is that it is rejected, the client did not reject it", r)
		}
		if !rest {
			continue
		}
		if m.have[r.Name] == r.Version && !acc {
			m.bad("at rest: %v is accepted and not taken for that", r)
		}
		if m.have[r.Name] != r.Version && !rejects {
			m.bad("at rest: the client rejected %v (has %q), and there is no complaint: %v %v", r, m.have[r.Name], about.Rejected, o)
		}
		if m.have[r.Name] != r.Version && op != Rejects {
			m.bad("at rest: the client rejected %v (has %q), opinion is %v", r, m.have[r.Name], op)
		}
	}
}

func runRV(t *testing.T, o rvOptions, seeds int) {
	server := NewServer(nil, Options{AckTimeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	kinds := map[string]string{}
	fails := map[string]int{}
	for seed := range uint64(seeds) {
		m := newRV(t, server, seed, o)
		for i := 0; i < 120 && m.fail == ""; i++ {
			m.step()
		}
		if m.fail != "" {
			_, k, _ := strings.Cut(m.fail, ": ")
			key := fmt.Sprintf("delta=%t %s %s", m.delta, short(m.url), rvKind(k))
			fails[key]++
			s := m.fail + "\n" + strings.Join(m.log, "\n")
			if old, ok := kinds[key]; !ok || len(m.log) < strings.Count(old, "\n") {
				kinds[key] = s
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		t.Errorf("%d histories: %s\n%s\n", fails[k], k, kinds[k])
	}
}

func rvKind(s string) string {
	var b strings.Builder
	for w := range strings.FieldsSeq(s) {
		if strings.HasPrefix(w, "{") || strings.HasPrefix(w, "\"") || strings.HasSuffix(w, "}") || strings.HasPrefix(w, "(") || strings.HasPrefix(w, "[") {
			continue
		}
		b.WriteString(w + " ")
	}
	return b.String()
}

// What is known of a client's verdict is compared with what the client did, over random histories. VERDICT_SEEDS is how many of each sort.
func TestVerdictModel(t *testing.T) {
	for name, o := range map[string]rvOptions{
		"plain": {}, "wildcard": {wildcard: true, many: true}, "review": {review: true, many: true}, "empty": {emptyToo: true},
	} {
		t.Run(name, func(t *testing.T) { runRV(t, o, fromEnv(t, "VERDICT_SEEDS", 500)) })
	}
}
