package xds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// In state of the world the first change is sent at once, and the second when it is time; in delta all are sent at once.
// Requests are answered at once.
func TestPacing(t *testing.T) {
	pacing := Pacing{Least: time.Hour, Most: time.Hour}
	t.Run("sotw", func(t *testing.T) {
		fixture := newFixture(t, Options{Pacing: pacing})
		fixture.set(testType, "a", "b")
		client := fixture.sotw()
		client.Subscribe(testType, []string{"a"}, "a@1")
		fixture.set(testType, "a@2")
		a := client.ExpectAck(testType, []string{"a"}, "a@2")
		fixture.set(testType, "a@3")
		client.Silence()
		client.Ack(a, "a", "b")
		client.Expect(testType, "a@3", "b@1")
	})
	t.Run("delta", func(t *testing.T) {
		fixture := newFixture(t, Options{Pacing: pacing})
		fixture.set(testType, "a")
		client := fixture.delta()
		client.Ask(testType)
		for _, version := range []string{"1", "2", "3"} {
			fixture.set(testType, "a@"+version)
			client.ExpectAck(testType, nil, "a@"+version)
		}
	})
}

func TestPaceFollowsTheClient(t *testing.T) {
	pacing := Pacing{}
	pacing.setDefaults()
	now := time.Unix(1000, 0)
	for _, tt := range []struct{ ackTime, passed, want time.Duration }{
		{0, 0, time.Second},
		{10 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond},
		{10 * time.Millisecond, 2 * time.Second, 0},
		{300 * time.Millisecond, time.Second, 2 * time.Second},
		{5 * time.Second, 0, 10 * time.Second},
	} {
		p := pace{changed: now, ackTime: tt.ackTime}
		require.Equal(t, tt.want, p.wait(now.Add(tt.passed), pacing), "%+v", tt)
	}
	require.Zero(t, (&pace{ackTime: time.Hour}).wait(now, pacing), "no change was sent yet")
	require.Zero(t, (&pace{changed: now}).wait(now, Pacing{Least: -1}), "no pacing")
}

// A fallback follows a rejection at once, however recent the rejected change is.
func TestFallback_NotPaced(t *testing.T) {
	pacing := Pacing{Least: time.Hour, Most: time.Hour}
	rejecting := newRejecting(t, variant{})
	for reject, wait := range map[bool]time.Duration{true: 0, false: time.Hour} {
		rejecting.coll.typ.Fallback = func(_, rejected *Entry, _ bool) (*Entry, string) {
			return &Entry{Name: rejected.Name, Version: "safe"}, "a safe one"
		}
		_, n := rejecting.set(1, "1", "a")
		rejecting.answer(n, "")
		_, n = rejecting.set(2, "2", "a")
		rejecting.sub.pace.changed = rejecting.now.Add(time.Second)
		rejecting.answer(n, map[bool]string{true: "no"}[reject])
		require.Equal(t, wait, rejecting.sub.paceWait(rejecting.now, pacing))
		rejecting = newRejecting(t, variant{})
	}
}
