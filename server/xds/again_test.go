package xds

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
)

// A response is rejected for one of its resources, as a rule. When that is another one and the client takes it, it is sent the others once more, which it may
// not have.
func TestWhatWasRejectedWithSomethingElseIsSentAgain(t *testing.T) {
	for name, subscribed := range map[string][]string{"all": nil, "by name": {"a", "b", "c", "d", "e"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.set(testType, "a", "b", "c", "d", "e")
			c := w.delta(testType)
			c.ask(testType, subscribed...)
			c.expectAck(testType, nil, "a@1", "b@1", "c@1", "d@1", "e@1")
			w.set(testType, "a@2", "b@2", "c@2", "-d")
			c.nack(c.expect(testType, "a@2", "b@2", "c@2", "-d"), "no")
			w.set(testType, "e@2")
			c.expectAck(testType, nil, "e@2")
			c.silence() // as far as is known, all is as it was
			w.set(testType, "a@3")
			c.expectAck(testType, nil, "a@3")
			c.expectAck(testType, nil, "b@2", "c@2", "-d")
			c.silence()
			all := []Resource{{"a", "3"}, {"b", "2"}, {"c", "2"}, {"d", ""}}
			o, _ := w.server.Opinion(1, w.coll(testType), all)
			require.Equal(t, Accepts, o)
			w.set(testType, "a@4")
			c.expectAck(testType, nil, "a@4")
			c.silence()
		})
	}
}

func TestWhatIsRejectedWhenItIsSentAgainWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stream{server: &Server{}}
		sub := &subscription{verdict: verdict{accepted: nothing}, variant: variant{delta: true}, wants: wants{all: true}, has: holding{at: nothing}, coll: NewCollection(TypeOf(testType), Debounce{})}
		s.subs = []*subscription{sub}
		answer := func(err *status.Status, things ...string) (again []string) {
			var entries []*Entry
			for _, name := range things {
				entries = append(entries, thing(t, name[:1], name[2:], ""))
			}
			sub.verdict.retold = sub.has.stale
			sub.has = holding{at: sub.has.at.and(entries)}
			sub.firstNonce, sub.lastNonce, sub.rejected, sub.status.SentNonce = sub.lastNonce+1, sub.lastNonce+1, false, strconv.FormatUint(sub.lastNonce+1, nonceBase)
			sub.ack(&request{nonce: sub.status.SentNonce, err: err}, time.Now())
			s.again = 0
			s.tryAgain(time.Now())
			return slices.Sorted(maps.Keys(sub.has.stale))
		}
		no := &status.Status{Message: "no"}
		require.Empty(t, answer(no, "a@1", "b@1", "c@1"))
		require.Equal(t, []string{"b", "c"}, answer(nil, "a@2"))
		require.Empty(t, answer(no)) // to these
		require.Empty(t, answer(nil, "b@2"), "not so soon")
		require.Equal(t, firstAgain, s.again)
		time.Sleep(firstAgain)
		s.tryAgain(time.Now())
		require.Contains(t, sub.has.stale, "c")
		require.Empty(t, answer(no))
		require.Empty(t, answer(nil, "d@1"), "nothing has changed")
		require.Zero(t, s.again)
		require.Empty(t, answer(nil, "c@2"), "and now it is taken")
		require.Empty(t, answer(no, "a@4", "b@4"))
		require.Equal(t, []string{"b"}, answer(nil, "a@5"), "all was well in between")
	})
}
