package xds

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

// scripted is a client of one type of the engine, without a network and with a clock of its own.
func scripted(t *testing.T, delta bool, url string) *rv {
	base := NewServer(nil, Options{AckTimeout: 10 * time.Second, Log: slog.New(slog.DiscardHandler)})
	m := &rv{t: t, url: url, delta: delta, now: time.Unix(1_000_000, 0), wants: map[string]bool{}, have: map[string]string{}}
	m.server = &Server{catalog: m, opts: base.opts, log: base.log, metrics: base.metrics, logged: base.logged, visits: base.visits}
	m.server.opts.Pacing = Pacing{Least: -1}
	m.colls = []*Collection{NewCollection(TypeOf(url), Debounce{})}
	m.colls[0].MarkSynced()
	m.begin()
	return m
}

func (m *rv) begin() {
	m.st = &stream{id: 1, server: m.server, grpc: silentStream{ctx: m.t.Context()}, delta: m.delta, bell: make(bell, 1), drain: make(chan struct{}), ended: make(chan error, 1)}
	m.server.streams = map[uint64]*stream{1: m.st}
}

// set commits "a@1" and "-a".
func (m *rv) set(items ...string) {
	var c Commit
	for _, i := range items {
		if n, ok := strings.CutPrefix(i, "-"); ok {
			c.Remove = append(c.Remove, n)
			continue
		}
		n, v, _ := strings.Cut(i, "@")
		c.Put = append(c.Put, thing(m.t, n, v, ""))
	}
	m.colls[0].Apply(c)
}

// sends says what the next response has.
func (m *rv) sends(want map[string]string) {
	m.t.Helper()
	require.True(m.t, m.pump(), "nothing is sent")
	require.Equal(m.t, want, m.pend[len(m.pend)-1].puts)
}

func (m *rv) silent() { m.t.Helper(); require.False(m.t, m.pump(), "something is sent") }

// says answers with a nonce ("" for none), names being those of SotW, or what delta subscribes to.
func (m *rv) says(nonce, why string, names ...string) {
	m.t.Helper()
	req := m.req()
	req.nonce = nonce
	if m.delta {
		req.subscribe = names
	} else {
		req.names = names
	}
	if why != "" {
		req.err = &rpcstatus.Status{Message: why}
	}
	m.send(req)
	require.Empty(m.t, m.fail)
}

func (m *rv) accepted(name, version string) bool {
	return m.server.Audience().Accepted(m.colls[0], Resource{name, version}, 0)
}

func (m *rv) complaint() (Complaint, Opinion) { return m.server.Complaint(1, m.url) }
func (m *rv) opinion(name, version string) Opinion {
	o, _ := m.server.Opinion(1, m.colls[0], []Resource{{name, version}})
	return o
}

// A client rejects a@1, takes something else, rejects a@2, and is sent a@1 again: it has never accepted a@1.
func TestWhatWasRejectedBeforeTheLastRejectionIsNotAccepted(t *testing.T) {
	m := scripted(t, true, testType)
	m.set("a@0", "b@0")
	m.says("", "", "a", "b")
	m.sends(map[string]string{"a": "0", "b": "0"})
	m.says("1", "")
	m.set("a@1")
	m.sends(map[string]string{"a": "1"})
	m.says("2", "no")
	require.False(t, m.accepted("a", "1"))
	m.set("b@1")
	m.sends(map[string]string{"b": "1"})
	m.says("3", "")
	require.False(t, m.accepted("a", "1"))
	m.set("a@2")
	m.sends(map[string]string{"a": "2"})
	m.says("4", "no")
	require.False(t, m.accepted("a", "1"), "it rejected it")
	m.set("a@1")
	m.sends(map[string]string{"a": "1"})
	require.False(t, m.accepted("a", "1"), "it rejected it, and has not answered")
}

// A client goes on having what it accepted, whatever it rejected after it.
func TestWhatAClientGoesOnHavingIsAccepted(t *testing.T) {
	m := scripted(t, true, testType)
	m.set("a@0", "b@0")
	m.says("", "", "a", "b")
	m.sends(map[string]string{"a": "0", "b": "0"})
	m.says("1", "")
	m.set("a@1")
	m.sends(map[string]string{"a": "1"})
	m.says("2", "no")
	m.set("b@1")
	m.sends(map[string]string{"b": "1"})
	m.says("3", "")
	require.True(t, m.accepted("a", "0"), "it goes on having it from before")
}

// What is asked for while it is not there, and comes as it once was, was never accepted; and its rejection is lost.
func TestWhatIsAskedForWhileItIsNotThere(t *testing.T) {
	m := scripted(t, false, EndpointURL)
	m.set("a@0", "x@1")
	m.says("", "", "a")
	m.sends(map[string]string{"a": "0"})
	m.says("1", "", "a")
	m.set("a@1")
	m.sends(map[string]string{"a": "1"})
	m.says("2", "no", "a")
	m.set("-x")
	m.silent()
	m.says("2", "", "a", "x") // as Envoy asks for more: with the nonce of the last response
	m.silent()
	m.set("x@1") // once more
	m.sends(map[string]string{"x": "1"})
	t.Run("accepted", func(t *testing.T) { require.False(t, m.accepted("x", "1"), "it has just been sent it") })
	m.says("3", "no", "a", "x")
	t.Run("complaint", func(t *testing.T) {
		about, _ := m.complaint()
		require.Contains(t, about.Rejected, Resource{"x", "1"})
	})
	t.Run("opinion", func(t *testing.T) { require.Equal(t, Rejects, m.opinion("x", "1")) })
	t.Run("accepted after it was rejected", func(t *testing.T) { require.False(t, m.accepted("x", "1")) })
}

// The same where nothing was rejected before, but a response is on its way.
func TestWhatIsAskedForWhileItIsNotThereAndAnotherIsOnItsWay(t *testing.T) {
	m := scripted(t, false, EndpointURL)
	m.set("a@0", "x@1")
	m.says("", "", "a")
	m.sends(map[string]string{"a": "0"})
	m.says("1", "", "a")
	require.Empty(t, m.fail)
	m.set("a@1", "-x")
	m.sends(map[string]string{"a": "1"})
	m.says("2", "no", "a", "x") // rejects, and asks for x, in one request
	m.silent()
	m.set("x@1")
	m.sends(map[string]string{"x": "1"})
	require.False(t, m.accepted("x", "1"), "it has just been sent it")
}

// Of a partial type of SotW, a client that was told nothing of a removal goes on having what it accepted: it does not lack it.
func TestWhatIsGoneWithoutAWordIsNotLacked(t *testing.T) {
	m := scripted(t, false, RouteURL)
	m.set("80@1", "81@1")
	m.says("", "", "80", "81")
	m.sends(map[string]string{"80": "1", "81": "1"})
	m.says("1", "", "80", "81")
	m.set("-80")
	m.silent()
	m.set("80@2")
	m.sends(map[string]string{"80": "2"})
	m.says("2", "no", "80", "81")
	about, _ := m.complaint()
	require.Equal(t, []Resource{{"80", "2"}}, about.Rejected)
	require.False(t, about.Lacks["80"], "it has 80@1")
}

// Who rejects a response and asks for more in the same request rejects nothing of what it was not sent.
func TestWhatWasNeverSentIsNotRejected(t *testing.T) {
	t.Run("a name", func(t *testing.T) {
		m := scripted(t, true, testType)
		m.set("a@1", "b@1")
		m.says("", "", "a")
		m.sends(map[string]string{"a": "1"})
		m.says("1", "no", "b")
		about, _ := m.complaint()
		require.Equal(t, []Resource{{"a", "1"}}, about.Rejected)
		require.NotEqual(t, Rejects, m.opinion("b", "1"))
	})
	t.Run("everything", func(t *testing.T) {
		m := scripted(t, true, testType)
		m.set("a@1", "b@1")
		m.says("", "", "a")
		m.sends(map[string]string{"a": "1"})
		m.says("1", "no", "*")
		about, _ := m.complaint()
		require.Equal(t, []Resource{{"a", "1"}}, about.Rejected)
		require.NotEqual(t, Rejects, m.opinion("b", "1"))
	})
	t.Run("SotW", func(t *testing.T) {
		m := scripted(t, false, ClusterURL)
		m.set("a@1", "b@1")
		m.says("", "", "a")
		m.sends(map[string]string{"a": "1"})
		m.says("1", "no", "a")
		m.says("1", "", "a", "b")
		about, _ := m.complaint()
		require.Equal(t, []Resource{{"a", "1"}}, about.Rejected)
		require.NotEqual(t, Rejects, m.opinion("b", "1"))
	})
}

// Who comes back with a, and rejects b, has not rejected a.
func TestWhatWasBroughtAlongIsNotRejected(t *testing.T) {
	m := scripted(t, true, testType)
	m.set("a@1", "b@1")
	b, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{InitialResourceVersions: map[string]string{"a": "1"}})
	require.NoError(t, err)
	req := m.req()
	req.subscribe, req.initial = []string{"a", "b"}, &versions{parts: [][]byte{b}}
	m.send(req)
	m.sends(map[string]string{"b": "1"})
	m.says("1", "no")
	about, _ := m.complaint()
	require.Equal(t, []Resource{{"b", "1"}}, about.Rejected)
	require.True(t, m.accepted("a", "1"))
	require.NotEqual(t, Rejects, m.opinion("a", "1"))
}

// Who answers late, after more was sent, and rejects what came first, does not accept that with the second.
func TestALateRejectionIsNoConsent(t *testing.T) {
	m := scripted(t, true, testType)
	m.set("a@1")
	m.says("", "", "a", "b")
	m.sends(map[string]string{"a": "1"})
	m.now = m.now.Add(11 * time.Second)
	m.set("b@1")
	m.sends(map[string]string{"b": "1"})
	m.says("1", "no")
	m.says("2", "")
	t.Run("accepted", func(t *testing.T) { require.False(t, m.accepted("a", "1")) })
	t.Run("complaint", func(t *testing.T) {
		about, _ := m.complaint()
		require.Contains(t, about.Rejected, Resource{"a", "1"})
	})
}

// As above, for a client that unsubscribes and asks again, of which everything that it accepted is gone.
func TestAskedAgainWhenThereWasNothing(t *testing.T) {
	m := scripted(t, true, testType)
	m.set("x@1")
	m.says("", "", "x")
	m.sends(map[string]string{"x": "1"})
	m.says("1", "")
	m.set("-x")
	m.sends(map[string]string{})
	m.says("2", "no")
	m.says("", "", "y")
	m.sends(map[string]string{})
	m.says("3", "")
	req := m.req()
	req.unsub = []string{"x"}
	m.send(req)
	m.set("x@1")
	m.says("", "", "x")
	m.sends(map[string]string{"x": "1"})
	m.says("4", "no")
	about, _ := m.complaint()
	require.Contains(t, about.Rejected, Resource{"x", "1"})
	require.True(t, about.Lacks["x"])
}
