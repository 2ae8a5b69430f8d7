package xds

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
	"weak"

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
	accepted := func(name, version string) bool { return w.accepted(name, version) }
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
	require.True(t, w.accepted("a", "1", ClusterURL))
}

// accepted says whether anybody has accepted something of the test type, or of another.
func (w *world) accepted(name, version string, typeURL ...string) bool {
	return w.server.Audience().Accepted(w.coll(append(typeURL, testType)[0]), Resource{name, version}, 0)
}

// What is the same to everybody else is new to who did not ask for it before.
func TestWhatIsAskedForLaterIsAcceptedLater(t *testing.T) {
	for name, ask := range map[string]func(*client){
		"a name": func(c *client) { c.ask(testType, "b") }, "everything": func(c *client) { c.ask(testType, "*") },
	} {
		t.Run(name, func(t *testing.T) {
			var said answers
			w := newWorld(t, Options{Hooks: said.hooks()})
			w.set(testType, "a", "b")
			c := w.delta(testType)
			c.ask(testType, "a")
			c.expectAck(testType, nil, "a@1")
			said.next(t)
			accepted := func() bool { return w.accepted("b", "1") }
			complaint := func() ([]Resource, map[string]bool) {
				about, _ := w.server.Complaint(1, testType)
				return about.Rejected, about.Lacks
			}
			ask(c)
			r := c.next()
			require.False(t, accepted(), "it has just been sent it")
			c.nack(r, "no")
			said.next(t)
			rejected, lacks := complaint()
			require.Contains(t, rejected, Resource{"b", "1"})
			require.True(t, lacks["b"])
			require.False(t, accepted())

			w.set(testType, "b@2")
			c.expectAck(testType, nil, "b@2")
			said.next(t)
			require.True(t, w.accepted("b", "2"))
		})
	}
}

// Who never answers again does not hold on to what everybody else has long forgotten, but it is known what it has.
func TestOldStatesAreKeptAsNamesAndVersions(t *testing.T) {
	for name, of := range map[string]struct {
		wants string
		does  func(c *client, a answer)
		has   Resource
	}{
		"it accepts once":                  {"a", func(*client, answer) {}, Resource{"a", "0"}},
		"it rejects all that comes":        {"a", func(c *client, a answer) { c.nack(a, "no") }, Resource{"a", "0"}},
		"nothing that it wants is changed": {"b", nil, Resource{"b", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{AckTimeout: time.Millisecond})
			w.set(testType, "a@0", "b@0")
			old := weak.Make(w.coll(testType).Get("a"))
			c := w.delta(testType)
			c.ask(testType, of.wants)
			c.expectAck(testType, nil, of.has.Name+"@0")
			accepted := func() bool { return w.accepted(of.has.Name, of.has.Version) }
			eventually(t, accepted)
			for i := range maxBehind + 3 {
				version := "a@" + strconv.Itoa(i+1)
				w.set(testType, version)
				if of.does != nil {
					of.does(c, c.expect(testType, version))
				}
			}
			eventually(t, func() bool {
				runtime.GC()
				return old.Value() == nil
			})
			require.True(t, accepted())
		})
	}
}

// States of names and versions differ as the states do of which they are.
func TestBareStatesDiffer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := []*state{nothing}
	for range 40 {
		var changes []change
		for range 1 + r.IntN(100) {
			name := "r" + strconv.Itoa(r.IntN(1000))
			if r.IntN(4) == 0 {
				changes = append(changes, change{name: name})
			} else {
				changes = append(changes, change{name, thing(t, name, strconv.Itoa(r.IntN(3)), "")})
			}
		}
		all = append(all, all[len(all)-1].with(changes))
	}
	said := func(from, to *state) (puts, removed []string) {
		d := to.since(from)
		for _, e := range d.puts {
			puts = append(puts, e.Name+"@"+e.Version)
		}
		return puts, names(d.removed)
	}
	for range 200 {
		from, to := all[r.IntN(len(all))], all[r.IntN(len(all))]
		puts, removed := said(from, to)
		for _, way := range [][2]*state{{from.bare(), to}, {from, to.bare()}, {from.bare(), to.bare()}} {
			p, gone := said(way[0], way[1])
			require.Equal(t, puts, p)
			require.Equal(t, removed, gone)
		}
		require.Equal(t, to.version, to.bare().version)
		for e := range to.bare().all() {
			require.Equal(t, to.get(e.Name).Version, e.Version)
			require.Empty(t, e.Any)
		}
	}
}
