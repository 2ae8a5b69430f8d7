package envoy

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/server/xds"
)

// However many objects have a part in what is rejected, others are asked once what they think of each resource that is made of them.
func TestOthersAreAskedOnceOfEachResource(t *testing.T) {
	objects, texts := several(t, 300, "x")
	s := serve(t, objects...)
	other := s.critic(nodes[1], disliking)
	s.eventually(func() bool { return other.hasRoutes(texts...) }, "")
	h := &hearing{Catalog: s.catalog, scope: s.catalog.newScope(profileOf(nodes[0]))}
	defer s.catalog.drop(h.scope)
	h.rejected = []xds.Resource{{Name: "80", Version: h.scope.routes.Get("80").Version}}
	h.about = xds.Complaint{AnswerInfo: xds.AnswerInfo{TypeURL: xds.RouteURL}, Rejected: h.rejected, Lacks: map[string]bool{"80": true}}
	suspects := h.fromTheStart(nil)
	require.Len(t, suspects, len(objects))
	testimony := h.call()
	for _, one := range suspects {
		require.True(t, testimony.speaksFor(one), "it has been accepted")
	}
	require.Len(t, testimony.said, 1)
	testimony = h.call()
	testimony.about.StreamID = 1 // there are no others
	for _, one := range suspects {
		require.False(t, testimony.speaksFor(one))
	}
	require.Len(t, testimony.said, 1)
}

// What was tried of very many objects counts for what was rejected then, and not for what is rejected besides later.
func TestWhatElseIsRejectedIsTriedFromTheStart(t *testing.T) {
	a, b := xds.Resource{Name: "a", Version: "1"}, xds.Resource{Name: "b", Version: "1"}
	h := &hearing{about: xds.Complaint{Rejected: []xds.Resource{a}}, past: past{about: []xds.Resource{a}}}
	require.True(t, h.isTheSame())
	h.about.Rejected = []xds.Resource{a, b}
	require.False(t, h.isTheSame())
	h.past = past{whole: h.whole()}
	require.True(t, h.isTheSame())
	h.about.Rejected = []xds.Resource{b}
	require.False(t, h.isTheSame())
}

// Who has much to think about lets those at other addresses think in between.
func TestWhoThinksGivesWay(t *testing.T) {
	j := newJudge(0, 0)
	j.think("10.0.0.1")
	turn := j.thinking.Queue("10.0.0.2")
	require.NotNil(t, turn, "somebody else thinks")
	over := make(chan struct{})
	go func() {
		j.giveWay("10.0.0.1")
		close(over)
	}()
	<-turn
	select {
	case <-over:
		require.Fail(t, "two think at a time")
	default:
	}
	j.thought()
	<-over
	j.thought()
}

// Nobody is believed again since many others are not.
func TestWhoIsNotBelievedStaysSo(t *testing.T) {
	j, now := newJudge(0, 0), time.Now()
	j.disbelieve("10.0.0.1", now.Add(-disbelief))
	j.disbelieve("10.0.0.2", now)
	for i := range maxDisbelieved - 1 {
		j.disbelieve(net.IPv4(10, 1, byte(i>>8), byte(i)).String(), now.Add(-time.Second))
	}
	ok, _ := j.believes("10.0.0.2", now.Add(time.Second))
	require.False(t, ok)
	require.LessOrEqual(t, len(j.disbelieved), maxDisbelieved)
}
