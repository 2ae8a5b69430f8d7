package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/guard"
	"tributary/sources/lastgood"
)

// handing is a source that gives its sink to the test.
func handing(to chan<- Sink) run {
	return func(ctx context.Context, sink Sink) error {
		to <- sink
		<-ctx.Done()
		return ctx.Err()
	}
}

// handed runs a source that gives its sink to the test.
func handed(t *testing.T, s *Supervisor) (*memstore.Table, Sink) {
	table, sinks := new(memstore.Table), make(chan Sink, 1)
	configure(t, s, Spec{Name: "a", Table: table, Source: handing(sinks)})
	return table, <-sinks
}

// sinkOf makes a sink as a runner does, with a table and its stored state.
func sinkOf(table Table, memory *lastgood.Store) *sink {
	opts := Options{Validate: allValid, Log: slog.New(slog.DiscardHandler)}
	return newRunner(Spec{Name: "s", Table: table, LastGood: memory}, opts, true).sink
}

// stateOf returns the state of the guard as it is stored.
func stateOf(sink *sink) (text string) {
	sink.BetweenCommits(func(state []byte) { text = string(state) })
	return text
}

func TestFirstSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := new(memstore.Table)
		sink := sinkOf(table, nil)
		first := time.Now().UTC()
		seen := func(name string) time.Time {
			r := get(table, name)
			require.Same(t, r, sink.ledger.winners[keyed(name)].resource, "it is held once")
			return r.Seen()
		}
		publish := func(group string, r *resource.Resource) {
			require.NoError(t, sink.ReplaceAll([]Content{{Group: group, Resources: []*resource.Resource{r}}}))
		}
		full, empty := flapping(30)
		require.NoError(t, sink.ReplaceAll(full))
		require.Equal(t, first, seen("x00"))
		time.Sleep(time.Hour)
		publish("x00", newObject("x00", "2"))
		publish("new", newObject("new"))
		require.Equal(t, first, seen("x00"), "another version of the same object")
		require.Equal(t, first.Add(time.Hour), seen("new"))
		require.NoError(t, sink.ReplaceAll(empty))
		require.NotNil(t, sink.ledger.guard.Status())
		time.Sleep(time.Minute)
		publish("x00", newObject("x00", "3"))
		require.Equal(t, first, seen("x00"), "it was held, and so never gone")
		publish("old", newObject("old").WithSeen(first.Add(-time.Hour)))
		require.Equal(t, first.Add(-time.Hour), seen("old"), "the source knows better")
	})
}

// flapping are n groups of one object each, and the same when their mount is gone for a moment.
func flapping(n int) (full, empty []Content) {
	for i := range n {
		name := fmt.Sprintf("x%02d", i)
		full = append(full, Content{Group: name, Resources: objects(newObject(name, "1", name))})
		empty = append(empty, Content{Group: name})
	}
	return full, empty
}

func broken(group string, key resource.Key) Content {
	return Content{Group: group, Rejects: []Reject{{Key: key, Origin: resource.Origin{Place: group}, Err: errors.New("bad")}}}
}

// TestHold_BrokenReturnKeepsHeldObject: all held objects come back, but one of them is broken. It stays served: the
// earlier deletion by the source has no effect on that.
func TestHold_BrokenReturnKeepsHeldObject(t *testing.T) {
	for name, key := range map[string]resource.Key{
		"known": keyed("x07"), "too broken to tell": {}, "mistyped": {Kind: "ServiceEntri", Namespace: "default", Name: "x07"},
	} {
		for _, ends := range []string{"by itself", "released"} {
			t.Run(name+", "+ends, func(t *testing.T) {
				within(t, Options{}, func(t *testing.T, supervisor *Supervisor) {
					full, empty := flapping(30)
					table, sink := handed(t, supervisor)
					require.NoError(t, sink.ReplaceAll(full))
					sink.Synced()
					require.NoError(t, sink.ReplaceAll(empty))
					require.NotNil(t, supervisor.Status()[0].Held)
					full[7] = broken("x07", key)
					require.Error(t, sink.ReplaceAll(full[:8]))
					if ends == "released" { // the others, which did not come back
						before := *supervisor.Status()[0].LastPublish
						time.Sleep(time.Minute)
						_, _, err := supervisor.Release("a", "", "me")
						require.NoError(t, err)
						requireLen(t, table, 8)
						require.Equal(t, time.Minute, supervisor.Status()[0].LastPublish.Sub(before), "a release is a change")
					} else {
						require.Error(t, sink.ReplaceAll(full))
						time.Sleep(2 * time.Minute)
						requireLen(t, table, 30)
					}
					synctest.Wait()
					require.Nil(t, supervisor.Status()[0].Held)
					require.NotNil(t, get(table, "x07"), "an invalid object keeps its last good version")
					require.NoError(t, replace(sink, "x07", nil))
					require.Nil(t, get(table, "x07"), "now it is gone")
				})
			})
		}
	}
}

// TestRestart_DuringHoldKeepsHistory has two replicas see the same, and one of them restarted while a loss is held.
func TestRestart_DuringHoldKeepsHistory(t *testing.T) {
	state := openState(t, t.TempDir())
	for name, after := range map[string]func(full []Content) []Content{
		"broken":             func(full []Content) []Content { full[7] = broken("x07", keyed("x07")); return full },
		"too broken to tell": func(full []Content) []Content { full[7] = broken("x07", resource.Key{}); return full },
		"others":             func(full []Content) []Content { return full[:8] },
		"changed": func(full []Content) []Content {
			full[7].Resources = objects(newObject("x07", "2", "x07"))
			return full[5:9]
		},
	} {
		t.Run(name, func(t *testing.T) {
			tables := []*memstore.Table{new(memstore.Table), new(memstore.Table)}
			memory := state.Source(name)
			stays, restarts := sinkOf(tables[0], nil), sinkOf(tables[1], memory)
			full, empty := flapping(30)
			for _, s := range []*sink{stays, restarts} {
				_ = s.ReplaceAll(full)
				s.Synced()
				_ = s.ReplaceAll(empty)
			}
			stopped, stop := context.WithCancel(t.Context())
			stop()
			memory.Run(stopped, tables[1])
			tables[1] = new(memstore.Table)
			before := restarts.ledger.guard.Status()
			restarts = sinkOf(tables[1], memory)
			require.Equal(t, before.Objects, restarts.ledger.guard.Status().Objects, "it is known before the source is read")
			require.Equal(t, before.Why, restarts.ledger.guard.Status().Why)

			contents := after(full)
			for _, s := range []*sink{stays, restarts} {
				_ = s.ReplaceAll(contents)
				s.Synced()
				_, _, _ = s.release("", "me")
			}
			require.Equal(t, keysOf(tables[0]), keysOf(tables[1]))
			require.Equal(t, len(contents), tables[0].Snapshot().Len())
		})
	}
}

// TestRestartsMakeNoDifference: two replicas read the same, and one of them restarts again and again, while losses are
// held, objects are broken, and groups move.
func TestRestartsMakeNoDifference(t *testing.T) {
	state := openState(t, t.TempDir())
	n, held := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		memory := state.Source(fmt.Sprint("s", n))
		tables := []*memstore.Table{new(memstore.Table), new(memstore.Table)}
		replicas := []*sink{sinkOf(tables[0], nil), sinkOf(tables[1], memory)}
		published := make(map[string]Content)
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			var contents []Content
			switch rapid.SampledFrom([]string{"some", "some", "nothing", "release", "restart", "restart"}).Draw(t, "what") {
			case "some":
				for _, name := range restartGroups {
					if rapid.Bool().Draw(t, "publish "+name) {
						contents = append(contents, drawContent(t, name))
					}
				}
			case "nothing":
				for _, name := range restartGroups {
					contents = append(contents, Content{Group: name})
				}
			case "release":
				for _, s := range replicas {
					_, _, _ = s.release("", "somebody")
				}
			case "restart":
				stopped, stop := context.WithCancel(context.Background())
				stop()
				memory.Run(stopped, tables[1])
				tables[1] = new(memstore.Table)
				replicas[1] = sinkOf(tables[1], memory)
				if rapid.Bool().Draw(t, "released before it is read") {
					for _, s := range replicas {
						_, _, _ = s.release("", "somebody")
					}
				}
				for _, name := range restartGroups {
					c := published[name]
					c.Group = name
					contents = append(contents, c)
				}
			}
			for _, s := range replicas {
				_ = s.ReplaceAll(contents)
				s.Synced()
			}
			for _, c := range contents {
				published[c.Group] = c
			}
			if replicas[0].ledger.guard.Status() != nil {
				held++
			}
			a, b := replicas[0].ledger.guard.Status(), replicas[1].ledger.guard.Status()
			require.Equal(t, a == nil, b == nil)
			if a != nil {
				require.Equal(t, a.Held, b.Held)
			}
			require.Equal(t, shown(tables[0]), shown(tables[1]))
		}
	})
	require.Positive(t, held)
}

func shown(table *memstore.Table) (lines []string) {
	for r := range table.Snapshot().All() {
		lines = append(lines, fmt.Sprint(r.Key(), " ", string(r.Body()), " ", r.Origin().Place))
	}
	return lines
}

// TestRelease_BeforeSourceIsRead: after a restart, a caller releases a hold of the earlier run while the source
// cannot be read.
func TestRelease_BeforeSourceIsRead(t *testing.T) {
	for _, how := range []string{"released", "holdFor"} {
		t.Run(how, func(t *testing.T) {
			withDir(t, func(t *testing.T, dir string) {
				settings := guard.Settings{}
				lifetime(t, dir, Options{}, wholeOf("g", 100))
				lifetime(t, dir, Options{}, wholeOf("g", 40))
				lifetime(t, dir, Options{}, run(unreachable), func(supervisor *Supervisor, table *memstore.Table) {
					require.Equal(t, 60, supervisor.Status()[0].Held.Objects)
					requireLen(t, table, 100)
					if how == "released" {
						objects, _, err := supervisor.Release("a", supervisor.Status()[0].Held.ID, "me")
						require.NoError(t, err)
						require.Equal(t, 60, objects)
					} else {
						settings.HoldFor = time.Minute
						supervisor.runners[0].sink.configure(Spec{Guard: settings})
						time.Sleep(2 * time.Minute)
					}
					synctest.Wait()
					require.Nil(t, supervisor.Status()[0].Held)
					requireLen(t, table, 40)
				})
				lifetime(t, dir, Options{}, wholeOf("g", 40), func(s *Supervisor, table *memstore.Table) {
					require.Nil(t, s.Status()[0].Held, "it is not held again")
					requireLen(t, table, 40)
				})
			})
		})
	}
}

// TestInherit_KeepsHold: a source with other settings and another table keeps its hold after it is read. Objects that
// it lacks because of the new settings are not held; a further loss after that read is.
func TestInherit_KeepsHold(t *testing.T) {
	within(t, Options{}, func(t *testing.T, supervisor *Supervisor) {
		spec := Spec{Name: "a", Table: new(memstore.Table), Source: whole(groups{"g": many("g", 100), "h": many("h", 40)})}
		configure(t, supervisor, spec)
		synctest.Wait()
		spec.Source = whole(groups{"g": many("g", 3), "h": many("h", 40)})
		configure(t, supervisor, spec)
		synctest.Wait()
		before := supervisor.Status()[0].Held
		require.Equal(t, 97, before.Objects)

		sinks := make(chan Sink, 1)
		former := spec.Table
		spec.Table, spec.Source = new(memstore.Table), handing(sinks)
		configure(t, supervisor, spec)
		sink := <-sinks
		require.Equal(t, 140, spec.Table.Snapshot().Len(), "all is served until it is read")
		require.Equal(t, 140, former.Snapshot().Len(), "is for the caller to forget")
		require.False(t, spec.Table.Synced())
		require.Equal(t, before, supervisor.Status()[0].Held)
		require.NoError(t, sink.ReplaceAll([]Content{{Group: "g", Resources: many("g", 3)}, {Group: "h", Resources: many("h", 30)}}))
		sink.Synced()
		require.Equal(t, 130, spec.Table.Snapshot().Len())
		require.Equal(t, before.ID, supervisor.Status()[0].Held.ID)
		require.NoError(t, sink.ReplaceAll([]Content{{Group: "h"}}))
		require.Equal(t, 130, spec.Table.Snapshot().Len())
		require.Equal(t, 127, supervisor.Status()[0].Held.Objects)
	})
}

// TestReconfigure_OtherNameIsOtherSource: another name inherits no state, not even with the same table.
func TestReconfigure_OtherNameIsOtherSource(t *testing.T) {
	within(t, Options{}, func(t *testing.T, supervisor *Supervisor) {
		spec := Spec{Name: "a", Table: new(memstore.Table), Source: wholeOf("g", 100)}
		configure(t, supervisor, spec)
		synctest.Wait()
		spec.Source = wholeOf("g", 3)
		configure(t, supervisor, spec)
		synctest.Wait()
		require.NotNil(t, supervisor.Status()[0].Held)
		spec.Name, spec.Table = "b", new(memstore.Table)
		configure(t, supervisor, spec)
		synctest.Wait()
		require.Nil(t, supervisor.Status()[0].Held)
		require.Equal(t, 3, spec.Table.Snapshot().Len())
	})
}

// TestConfirmation_CountsOnce has a source that is reloaded to `validation: warn` and back while it cannot be read.
func TestConfirmation_CountsOnce(t *testing.T) {
	sink := sinkOf(new(memstore.Table), nil)
	c := Content{Group: "g", Fingerprint: "mark", Resources: objects(newObject("x", "1", "g:1")), Warnings: []string{"w"}, Foreign: 1}
	require.NoError(t, sink.ReplaceAll([]Content{c}))
	sink.Synced()
	sink.configure(Spec{Name: "s", Lenient: true})
	sink.configure(Spec{Name: "s"})
	require.True(t, sink.Confirm("g", "mark"))
	var st Status
	sink.fillStatus(&st, true)
	require.Equal(t, 1, st.warnings)
	require.Equal(t, 1, st.Foreign)
}

// TestConfirmation_NotByOtherVersionOfProgram: another version of the program validates stored objects by its own
// rules.
func TestConfirmation_NotByOtherVersionOfProgram(t *testing.T) {
	s := sinkOf(new(memstore.Table), nil)
	require.NoError(t, s.ReplaceAll([]Content{{Group: "g", Fingerprint: "mark", Resources: objects(newObject("x", "1", "g:1"))}}))
	require.True(t, s.Confirm("g", "mark"))
	require.False(t, s.Confirm("g", "of another text"))
	rules := resource.Rules
	defer func() { resource.Rules = rules }()
	resource.Rules = func() string { return "those of the next version" }
	require.False(t, s.Confirm("g", "mark"))
}

func keysOf(table *memstore.Table) (keys []resource.Key) {
	for r := range table.Snapshot().All() {
		keys = append(keys, r.Key())
	}
	return keys
}

// TestExplainedLoss_DoesNotJoinHold: all but ten of 30 objects go at once. Later, two go one by one, one of them
// explained.
func TestExplainedLoss_DoesNotJoinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := sinkOf(new(memstore.Table), nil)
		full, empty := flapping(30)
		require.NoError(t, sink.ReplaceAll(full))
		require.NoError(t, sink.ReplaceAll(empty[:20]))
		time.Sleep(guard.DefaultWindow)
		empty[20].RemovalsObserved = true
		require.NoError(t, sink.ReplaceAll(empty[20:21]))
		require.NoError(t, sink.ReplaceAll(empty[21:22]))
		require.Nil(t, get(sink.table, "x20"))
		require.NotNil(t, get(sink.table, "x21"))
		require.Equal(t, 21, sink.ledger.guard.Status().Objects)
	})
}

// TestHolds_EndAndLog: the begin and the end of each hold are logged and reported once, and a hold ends at its end
// time.
func TestHolds_EndAndLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buffer bytes.Buffer
		var events []string
		table := new(memstore.Table)
		sink := newRunner(Spec{Name: "s", Table: table, Guard: guard.Settings{HoldFor: time.Hour}}, Options{
			Validate: allValid, Log: slog.New(slog.NewTextHandler(&buffer, nil)),
			Happened: func(event, source, text string) { events = append(events, event+" "+source+" "+text) },
		}, true).sink
		held := func() *guard.Status {
			var st Status
			sink.fillStatus(&st, false)
			return st.Held
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { sink.endHolds(ctx); close(ended) }()
		full, empty := flapping(100)
		require.NoError(t, sink.ReplaceAll(full))
		synctest.Wait()
		require.NotContains(t, buffer.String(), "hold")

		require.NoError(t, sink.ReplaceAll(empty[:60]))
		require.NoError(t, sink.ReplaceAll(empty[60:70]))
		require.Equal(t, 1, strings.Count(buffer.String(), "level=ERROR"), buffer.String())
		require.Contains(t, buffer.String(), "60 of 100 objects")
		require.Contains(t, stateOf(sink), held().ID)
		require.Equal(t, time.Now().Add(time.Hour), *held().EndTime)

		time.Sleep(time.Hour - time.Second)
		synctest.Wait()
		requireLen(t, table, 100)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 30, table.Snapshot().Len(), "holdFor has passed")
		require.Equal(t, 1, strings.Count(buffer.String(), "hold ended"))
		require.Contains(t, buffer.String(), "holdFor has passed")
		require.Contains(t, buffer.String(), "objects_gone=70")
		require.Contains(t, buffer.String(), "deleted=70")
		require.Contains(t, buffer.String(), "end_of_hold=")
		require.Empty(t, stateOf(sink))

		require.NoError(t, sink.ReplaceAll(empty[70:]))
		require.NoError(t, sink.ReplaceAll(full))
		require.Equal(t, 2, strings.Count(buffer.String(), "level=ERROR"), buffer.String())
		require.Equal(t, 2, strings.Count(buffer.String(), "hold ended"), buffer.String())
		var st Status
		sink.fillStatus(&st, false)
		require.Equal(t, 2, st.holds)

		require.NoError(t, sink.ReplaceAll(empty[:60]))
		time.Sleep(time.Hour / 2)
		_, _, err := sink.release(held().ID, "anna@bastion, from 10.0.0.1:5000")
		require.NoError(t, err)
		require.Contains(t, buffer.String(), "it was released by anna@bastion, from 10.0.0.1:5000")

		require.NoError(t, sink.ReplaceAll(full[:60]))
		require.NoError(t, sink.ReplaceAll(empty[:60]))
		require.NoError(t, sink.ReplaceAll(full[:59]))
		time.Sleep(guard.DefaultWindow)
		synctest.Wait()
		require.Contains(t, buffer.String(), "its remaining loss has been below the limits for 1m0s")
		requireLen(t, table, 99)
		require.Len(t, events, 8)
		require.Contains(t, events[0], EventHeld+" s hold ")
		require.Contains(t, events[7], EventHoldEnded+" s hold ")
		cancel()
		<-ended
	})
}

// TestHolds_OneCommit: a commit with a held loss and an object that may not be served any longer is one revision.
func TestHolds_OneCommit(t *testing.T) {
	sink := sinkOf(new(memstore.Table), nil)
	full, empty := flapping(100)
	require.NoError(t, sink.ReplaceAll(full))
	before := sink.table.Snapshot().Revision()
	contents := append(empty[:70], Content{Group: "new", Resources: objects(newObject("new"))})
	require.NoError(t, sink.ReplaceAll(contents))
	require.Equal(t, before+1, sink.table.Snapshot().Revision())
	require.Equal(t, 101, sink.table.Snapshot().Len())
}
