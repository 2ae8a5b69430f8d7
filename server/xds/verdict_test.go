package xds

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// answers are what clients said of responses.
type answers struct {
	mu  sync.Mutex
	all []AnswerInfo
}

func (a *answers) hooks() Hooks {
	return Hooks{Answer: func(_ context.Context, i *AnswerInfo) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.all = append(a.all, *i)
	}}
}

// next waits for the next answer.
func (a *answers) next(t *testing.T) (i AnswerInfo) {
	eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.all) == 0 {
			return false
		}
		i, a.all = a.all[0], a.all[1:]
		return true
	})
	return i
}

func TestAnswersAreTold(t *testing.T) {
	var said answers
	w := newWorld(t, Options{Hooks: said.hooks()})
	anybody := func(uint64, *Collection) bool { return true }
	accepted := func(name, version string) bool { return w.server.Accepted(Resource{name, version}, anybody) }
	w.set(testType, "a", "b", "c")
	c := w.delta(testType)
	c.ask(testType, "a", "b")
	c.expectAck(testType, nil, "a@1", "b@1")
	first := said.next(t)
	require.Empty(t, first.Error)
	require.Same(t, w.coll(testType), first.Collection)
	require.Equal(t, "test-node", first.Node)
	require.True(t, accepted("a", "1"))
	require.False(t, accepted("c", "1"), "nobody asked for it")

	w.set(testType, "a@2", "c@2")
	c.nack(c.expect(testType, "a@2"), "no")
	no := said.next(t)
	require.Equal(t, "no", no.Error)
	complaint := func() (Complaint, Opinion) { return w.server.Complaint(no.StreamID, no.TypeURL) }
	rejected := func() []Resource { c, _ := complaint(); return c.Rejected }
	about, o := complaint()
	require.Equal(t, Rejects, o)
	require.Equal(t, no, about.AnswerInfo)
	require.Empty(t, about.Lacks, "it has another version")
	require.Equal(t, []Resource{{"a", "2"}}, rejected())
	require.False(t, accepted("a", "2"))
	thinks := func(all ...Resource) Opinion { o, _ := w.server.Opinion(no.StreamID, no.Collection, all); return o }
	require.Equal(t, Rejects, thinks(Resource{"a", "2"}))
	require.Equal(t, Rejects, thinks(Resource{"b", "1"}, Resource{"a", "2"}))
	require.Equal(t, Accepts, thinks(Resource{"b", "1"}, Resource{"c", "9"}), "of c it wants nothing")
	require.Equal(t, Undecided, thinks(Resource{"a", "1"}), "it was sent another one, and is to be sent that again")
	require.Equal(t, Undecided, thinks(Resource{"b", "1"}, Resource{"a", "3"}))
	require.Equal(t, Undecided, thinks(Resource{"b", ""}))
	_, why := w.server.Opinion(no.StreamID, no.Collection, []Resource{{"a", "2"}})
	require.Equal(t, "no", why)
	o, _ = w.server.Opinion(99, no.Collection, nil)
	require.Equal(t, Gone, o)
	o, _ = w.server.Opinion(no.StreamID, w.coll("other"), nil)
	require.Equal(t, Gone, o)

	w.set(testType, "b@2")
	c.expectAck(testType, nil, "b@2")
	require.Empty(t, said.next(t).Error)
	require.True(t, accepted("b", "2"))
	require.False(t, accepted("a", "2"), "to accept something else is not to accept that")

	w.set(testType, "a@3")
	c.nack(c.expect(testType, "a@3"), "no")
	require.NotEmpty(t, said.next(t).Error)
	require.Equal(t, []Resource{{"a", "3"}}, rejected())
	w.set(testType, "a@1")
	c.nack(c.expect(testType, "a@1"), "no")
	require.NotEmpty(t, said.next(t).Error)
	require.Equal(t, Rejects, thinks(Resource{"a", "1"}), "it has it, and rejects it")
	w.set(testType, "a@4")
	c.nack(c.expect(testType, "a@4"), "no")
	require.NotEmpty(t, said.next(t).Error)
	w.set(testType, "a@1")
	c.expectAck(testType, nil, "a@1")
	require.Empty(t, said.next(t).Error)
	require.True(t, accepted("a", "1"))
	require.False(t, accepted("a", "3"))
	w.set(testType, "a@3")
	c.expectAck(testType, nil, "a@3")
	require.Empty(t, said.next(t).Error)
	require.True(t, accepted("a", "3"), "it thought better of it")
	_, o = complaint()
	require.Equal(t, Accepts, o)
	_, o = w.server.Complaint(99, testType)
	require.Equal(t, Gone, o)
}

// What a client has rejected stays so whatever else it accepts, and is not looked at while the client is told of it, or is to be.
func TestWhatWasRejectedIsKnownUntilItIsToldOtherwise(t *testing.T) {
	var said answers
	w := newWorld(t, Options{Hooks: said.hooks()})
	w.set(testType, "a", "b")
	c := w.delta(testType)
	c.ask(testType, "*")
	c.expectAck(testType, nil, "a@1", "b@1")
	w.set(testType, "a@2", "c@1")
	c.nack(c.expect(testType, "a@2", "c@1"), "the first")
	rejected := func() ([]Resource, Opinion) {
		c, o := w.server.Complaint(1, testType)
		return c.Rejected, o
	}
	both := []Resource{{"a", "2"}, {"c", "1"}}
	is := func(want []Resource, opinion Opinion) {
		t.Helper()
		eventually(t, func() bool {
			got, o := rejected()
			return slices.Equal(want, got) && o == opinion
		})
	}
	is(both, Rejects)
	about, _ := w.server.Complaint(1, testType)
	require.Equal(t, map[string]bool{"c": true}, about.Lacks)
	w.set(testType, "b@2")
	c.expectAck(testType, nil, "b@2")
	is(both, Rejects)
	w.set(testType, "b@3")
	c.nack(c.expect(testType, "b@3"), "the second")
	is([]Resource{{"a", "2"}, {"b", "3"}, {"c", "1"}}, Rejects)
	w.set(testType, "a@3", "b@4", "-c")
	r := c.expect(testType, "a@3", "b@4", "-c")
	is(nil, Accepts) // as far as it has said
	c.nack(r, "again")
	is([]Resource{{"a", "3"}, {"b", "4"}}, Rejects)
	w.set(testType, "-a")
	c.expectAck(testType, nil, "-a")
	c.expect(testType, "b@4") // once more, since what went with it may have been wrong
	is(nil, Undecided)
}

func TestWhatIsSentInFullIsAcceptedInFull(t *testing.T) {
	var said answers
	w := newWorld(t, Options{Hooks: said.hooks()})
	w.set(ClusterURL, "a", "b")
	c := w.sotw(ClusterURL)
	c.ask(ClusterURL)
	c.nack(c.expect(ClusterURL, "a@1", "b@1"), "")
	no := said.next(t)
	require.Equal(t, "it does not say why", no.Error)
	about, _ := w.server.Complaint(no.StreamID, ClusterURL)
	require.Equal(t, []Resource{{"a", "1"}, {"b", "1"}}, about.Rejected)
	require.Equal(t, map[string]bool{"a": true, "b": true}, about.Lacks)
	w.set(ClusterURL, "b@2")
	c.expectAck(ClusterURL, nil, "a@1", "b@2")
	require.Empty(t, said.next(t).Error)
	require.True(t, w.server.Accepted(Resource{"a", "1"}, func(uint64, *Collection) bool { return true }))
}
