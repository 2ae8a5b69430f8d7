package sources

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/internal/worker"
	"tributary/memstore"
	"tributary/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run is a source made of a function.
type run func(ctx context.Context, sink Sink) error

func (r run) Run(ctx context.Context, sink Sink) error { return r(ctx, sink) }

// replace publishes one group.
func replace(sink Sink, group string, rs []*resource.Resource, rejects ...Reject) error {
	return sink.ReplaceAll([]Content{{Group: group, Resources: rs, Rejects: rejects}})
}

// publish is a source of one group.
func publish(group string, rs ...*resource.Resource) run {
	return func(ctx context.Context, sink Sink) error {
		if err := replace(sink, group, rs); err != nil {
			return err
		}
		sink.Synced()
		<-ctx.Done()
		return ctx.Err()
	}
}

// configure configures the sources of a supervisor.
func configure(t *testing.T, s *Supervisor, specs ...Spec) {
	t.Helper()
	require.NoError(t, s.Reconfigure(specs))
}

// within runs test in a bubble of fake time, with a supervisor at work.
func within(t *testing.T, opts Options, test func(t *testing.T, s *Supervisor)) {
	synctest.Test(t, func(t *testing.T) {
		if opts.Validate == nil {
			opts.Validate = allValid
		}
		supervisor := NewSupervisor(opts)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- supervisor.Run(ctx) }()
		synctest.Wait()
		test(t, supervisor)
		cancel()
		require.NoError(t, <-ended)
	})
}

func allValid(*resource.Resource) (resource.Errors, error) { return nil, nil }

func TestSourcePublishes(t *testing.T) {
	within(t, Options{}, func(t *testing.T, s *Supervisor) {
		table := new(memstore.Table)
		configure(t, s, Spec{Name: "a", Address: "test://a", Table: table, Source: publish("g", newObject("x"))})
		double := Spec{Name: "a", Table: table, Source: publish("g")}
		require.ErrorIs(t, s.Reconfigure([]Spec{double, double}), ErrDuplicate)
		synctest.Wait()
		require.True(t, table.Synced())
		r := get(table, "x")
		require.Equal(t, resource.Origin{Source: "a", Place: "p", Group: "g"}, r.Origin(), "the sink names the source")
		require.Equal(t, time.Now().UTC(), r.Seen(), "the time it was first seen")
		now := time.Now()
		require.Equal(t, []Status{{
			Name: "a", Address: "test://a", State: Healthy, Since: now, Synced: true, Publishes: 1, LastPublish: &now,
			Groups: 1, Objects: map[resource.Kind]int{resource.ServiceEntry: 1},
		}}, s.Status())
		_, err := json.Marshal(s.Status())
		require.NoError(t, err)
	})
}

func TestFailingSource_RestartsWithBackoffAndKeepsObjects(t *testing.T) {
	var log bytes.Buffer
	within(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, s *Supervisor) {
		table, second := new(memstore.Table), new(memstore.Table)
		var starts []time.Time
		failing := Spec{Name: "bad", Table: table, Source: run(func(_ context.Context, sink Sink) error {
			starts = append(starts, time.Now())
			_ = replace(sink, "g", objects(newObject("x")))
			sink.Synced()
			if len(starts) == 2 {
				panic("oh no")
			}
			return errors.New("connection refused")
		})}
		configure(t, s, failing, Spec{Name: "good", Table: second, Source: publish("g", newObject("y"))})
		time.Sleep(10 * time.Minute)
		synctest.Wait()

		require.NotNil(t, get(table, "x"))
		require.Equal(t, memstore.Revision(1), table.Snapshot().Revision(), "publishing the same again is no commit")
		status, good := s.Status()[0], s.Status()[1]
		require.Equal(t, Unreachable, status.State)
		require.Equal(t, "connection refused", status.Message)
		require.Equal(t, "connection refused", status.LastError)
		require.True(t, status.Synced)
		require.True(t, status.Stale, "the served objects were read before")
		require.False(t, good.Stale)
		require.Equal(t, len(starts), status.Restarts)
		require.Equal(t, Healthy, good.State)
		require.Zero(t, good.Restarts)
		for i := range len(starts) - 1 {
			wait := starts[i+1].Sub(starts[i])
			ideal := min(firstRestart<<i, lastRestart)
			require.GreaterOrEqual(t, wait, ideal/2, "restart %d", i)
			require.LessOrEqual(t, wait, ideal*3/2+time.Millisecond, "restart %d", i)
		}
	})
	require.Equal(t, 1, strings.Count(log.String(), "source panicked"))
	require.Contains(t, log.String(), "supervisor_test.go", "a panic is logged with its stack")
	require.LessOrEqual(t, strings.Count(log.String(), "connection refused"), 6, "retries are no news:\n%s", log.String())
}

func TestBackoff_ResetsAfterLongRun(t *testing.T) {
	within(t, Options{}, func(t *testing.T, s *Supervisor) {
		var ends, starts []time.Time
		configure(t, s, Spec{Name: "a", Table: new(memstore.Table), Source: run(func(ctx context.Context, _ Sink) error {
			starts = append(starts, time.Now())
			if len(starts) > 10 {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Hour):
				}
			}
			ends = append(ends, time.Now())
			return errors.New("broken")
		})})
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		require.Len(t, starts, 13)
		require.LessOrEqual(t, starts[11].Sub(ends[10]), firstRestart*3/2)
	})
}

func TestSource_ThatEndsHasFailed(t *testing.T) {
	within(t, Options{}, func(t *testing.T, supervisor *Supervisor) {
		configure(t, supervisor, Spec{
			Name: "a", Table: new(memstore.Table), Source: run(func(context.Context, Sink) error { return nil }),
		})
		synctest.Wait()
		require.Equal(t, Unreachable, supervisor.Status()[0].State)
		require.Equal(t, "source stopped unexpectedly", supervisor.Status()[0].LastError)
	})
}

func TestDeniedStaysDenied(t *testing.T) {
	within(t, Options{}, func(t *testing.T, s *Supervisor) {
		configure(t, s, Spec{Name: "a", Table: new(memstore.Table), Source: run(func(_ context.Context, sink Sink) error {
			sink.Report(Health{State: Denied, Message: "403"})
			return errors.New("GET /: 403")
		})})
		begin := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		status := s.Status()[0]
		require.Equal(t, Denied, status.State)
		require.Equal(t, begin, status.Since, "since it was denied first")
		require.False(t, status.Synced)
		require.False(t, status.Stale, "nothing is served")
	})
}

// TestReconfigure removes a source, lets one go on, swaps one, moves one to another table, and adds one, at once.
func TestReconfigure(t *testing.T) {
	within(t, Options{}, func(t *testing.T, supervisor *Supervisor) {
		spec := func(name string, source Source) Spec {
			return Spec{Name: name, Address: "of " + name, Source: source, Table: new(memstore.Table)}
		}
		ended, runs := false, 0
		removed := spec("removed", run(func(ctx context.Context, sink Sink) error {
			err := publish("g", newObject("x"), newObject("y"))(ctx, sink)
			ended = true
			return err
		}))
		stays := spec("stays", &counted{runs: &runs, Source: publish("g", newObject("x"))})
		swapped := spec("swapped", publish("g", newObject("x")))
		moved := spec("moved", publish("g", newObject("l")))
		configure(t, supervisor, removed, stays, swapped, moved)
		synctest.Wait()

		swapped.Source = publish("g", newObject("x", "2"))
		moved.Source, moved.Table = run(unreachable), new(memstore.Table)
		added := spec("added", publish("g", newObject("z")))
		configure(t, supervisor, added, moved, swapped, stays)
		require.True(t, ended, "it has ended when Reconfigure returns")
		synctest.Wait()
		var names []string
		for _, st := range supervisor.Status() {
			names = append(names, st.Name)
			require.Equal(t, st.Name != "moved", st.Synced, st.Name)
		}
		require.Equal(t, []string{"added", "moved", "swapped", "stays"}, names)
		require.Equal(t, 1, runs, "it was not disturbed")
		require.Equal(t, 2, removed.Table.Snapshot().Len(), "is for the caller to forget")
		require.Equal(t, "2", string(swapped.Table.Snapshot().Get(keyed("x")).Body()))
		require.NotNil(t, moved.Table.Snapshot().Get(keyed("l")), "goes on until it is read")

		twice := spec("stays", publish("g"))
		require.ErrorIs(t, supervisor.Reconfigure([]Spec{stays, twice}), ErrDuplicate)
		require.Len(t, supervisor.Status(), 4, "nothing has happened")
	})
}

// counted counts how often a source is run.
type counted struct {
	Source
	runs *int
}

func (c *counted) Run(ctx context.Context, sink Sink) error {
	*c.runs++
	return c.Source.Run(ctx, sink)
}

func TestRemovedSource_LogsItsHold(t *testing.T) {
	var log bytes.Buffer
	within(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, func(t *testing.T, s *Supervisor) {
		table := new(memstore.Table)
		configure(t, s, Spec{Name: "a", Table: table, Source: run(func(ctx context.Context, sink Sink) error {
			if err := replace(sink, "g", objects(newObject("x"), newObject("y"))); err != nil {
				return err
			}
			return publish("g")(ctx, sink)
		})})
		synctest.Wait()
		held := s.Status()[0].Held
		require.Equal(t, 2, held.Objects)
		require.NoError(t, s.Reconfigure(nil))
		require.Contains(t, log.String(), `msg="the source is removed, and its held loss is released" source=a hold=`+held.ID+
			" objects=2 endpoints=0")
	})
}

func TestReconfigure_KeepsDataUntilReplaced(t *testing.T) {
	within(t, Options{}, func(t *testing.T, s *Supervisor) {
		table := new(memstore.Table)
		configure(t, s, Spec{
			Name: "a", Address: "old", Table: table, Source: publish("g", newObject("x"), newObject("y")),
		})
		synctest.Wait()
		release := make(chan struct{})
		configure(t, s, Spec{Name: "a", Table: table, Address: "new", Source: run(func(ctx context.Context, sink Sink) error {
			<-release
			if got := sink.Groups(); len(got) != 1 || got[0] != "g" {
				return fmt.Errorf("groups are %v", got)
			}
			return publish("g", newObject("x", "2"))(ctx, sink)
		})})
		synctest.Wait()
		requireLen(t, table, 2)
		close(release)
		synctest.Wait()
		requireLen(t, table, 1)
		require.Equal(t, "new", s.Status()[0].Address)
	})
}

func TestChangesWhileItRunsAndAfter(t *testing.T) {
	supervisor := NewSupervisor(Options{Validate: allValid})
	ctx, cancel := context.WithCancel(t.Context())
	first := Spec{Name: "first", Table: new(memstore.Table), Source: &counted{Source: publish("g"), runs: new(int)}}
	configure(t, supervisor, first)
	ended := make(chan error, 1)
	go func() { ended <- supervisor.Run(ctx) }()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := fmt.Sprint(i)
			for range 50 {
				spec := Spec{Name: name, Table: new(memstore.Table), Source: publish("g", newObject("x"))}
				if i%2 == 0 {
					_ = supervisor.Reconfigure([]Spec{first, spec})
					spec.Source = publish("g", newObject("x", "2"))
					_ = supervisor.Reconfigure([]Spec{first, spec})
				} else if errors.Is(supervisor.Reconfigure([]Spec{first, spec}), ErrStopped) {
					return
				}
				_ = supervisor.Status()
			}
		})
	}
	for range 100 {
		_ = supervisor.Status()
	}
	cancel()
	require.NoError(t, <-ended)
	wg.Wait()
	require.ErrorIs(t, supervisor.Reconfigure([]Spec{first}), ErrStopped)
	require.ErrorIs(t, supervisor.Reconfigure(nil), ErrStopped)
	require.Error(t, supervisor.Run(ctx), "once only")
}

// TestInvalidKeys_StayDuringHold has everything go at once: the guard holds it, and with it that an object was invalid.
func TestInvalidKeys_StayDuringHold(t *testing.T) {
	within(t, Options{}, func(t *testing.T, s *Supervisor) {
		table, sink := handed(t, s)
		policy := keyed("never-valid")
		policy.Kind = resource.AuthorizationPolicy
		_ = replace(sink, "g", many("g", 20), broken("g", policy).Rejects...)
		require.Equal(t, []resource.Key{policy}, table.Snapshot().Invalid())
		require.NoError(t, replace(sink, "g", nil))
		require.Len(t, slices.Collect(table.Snapshot().All()), 20, "held")
		require.Equal(t, []resource.Key{policy}, table.Snapshot().Invalid())
		require.NoError(t, replace(sink, "h", many("h", 1)))
		require.Equal(t, []resource.Key{policy}, table.Snapshot().Invalid(), "after another change")
		require.NoError(t, replace(sink, "g", many("g", 20)))
		require.Empty(t, table.Snapshot().Invalid(), "the object alone is gone")
	})
}

func TestInvalidResources_AreQuarantined(t *testing.T) {
	var buffer bytes.Buffer
	opts := Options{
		Log: slog.New(slog.NewTextHandler(&buffer, nil)),
		Validate: func(r *resource.Resource) (resource.Errors, error) {
			switch {
			case strings.HasPrefix(string(r.Body()), "bad"):
				return nil, &resource.Error{Key: r.Key(), Origin: r.Origin(), Err: errors.New("spec: too bad")}
			case string(r.Body()) == "odd":
				return resource.Errors{{Key: r.Key(), Origin: r.Origin(), Err: errors.New("spec: odd")}}, nil
			}
			return nil, nil
		},
	}
	within(t, opts, func(t *testing.T, s *Supervisor) {
		table := new(memstore.Table)
		sinks := make(chan Sink, 1)
		configure(t, s, Spec{Name: "a", Table: table, Source: run(func(ctx context.Context, sink Sink) error {
			sinks <- sink
			<-ctx.Done()
			return ctx.Err()
		})})
		sink := <-sinks
		body := func(name string) string {
			if r := get(table, name); r != nil {
				return string(r.Body())
			}
			return ""
		}
		require.NoError(t, replace(sink, "g", objects(newObject("x", "1", "g:1"), newObject("y", "odd", "g:2"))))
		require.Equal(t, []string{"a: g:2: ServiceEntry default/y: spec: odd"}, s.Status()[0].Warnings)

		rs := objects(newObject("y", "odd", "g:2"), newObject("x", "bad", "g:1"), newObject("new", "bad", "g:3"))
		err := replace(sink, "g", rs, Reject{Err: errors.New("g:9: no such kind"), Origin: resource.Origin{Place: "g:9"}})
		require.EqualError(t, err, "g:9: no such kind\na: g:1: ServiceEntry default/x: spec: too bad\na: g:3: ServiceEntry default/new: spec: "+
			"too bad")
		require.Equal(t, "y", rs[0].Key().Name, "the caller's slice stays as it is")
		require.Equal(t, "1", body("x"), "last good")
		require.Empty(t, body("new"))
		begin := time.Now().UTC()
		require.Equal(t, []Quarantined{
			{Group: "g", Place: "g:9", Reason: "g:9: no such kind", Since: begin},
			{
				Ref: resource.Ref{Kind: resource.ServiceEntry, Namespace: "default", Name: "x"}, Group: "g", Place: "g:1",
				Reason: "a: g:1: ServiceEntry default/x: spec: too bad", Since: begin, LastGoodServes: true,
			},
			{
				Ref: resource.Ref{Kind: resource.ServiceEntry, Namespace: "default", Name: "new"}, Group: "g", Place: "g:3",
				Reason: "a: g:3: ServiceEntry default/new: spec: too bad", Since: begin,
			},
		}, s.Status()[0].Quarantined)
		require.Len(t, s.Status()[0].Warnings, 1, "y did not change, and neither did its conflict")

		require.NoError(t, replace(sink, "g", objects(newObject("x", "2", "g:1"))))
		require.Equal(t, "2", body("x"))
		require.Empty(t, body("y"))
		require.Empty(t, s.Status()[0].Quarantined)
		require.Empty(t, s.Status()[0].Warnings)
	})
	require.Equal(t, 3, strings.Count(buffer.String(), "resource quarantined"))
	require.Equal(t, 3, strings.Count(buffer.String(), "quarantine ended"))
	require.Equal(t, 1, strings.Count(buffer.String(),
		`msg="resource read with a warning" source=a warning="a: g:2: ServiceEntry default/y: spec: odd"`), buffer.String())
}

func TestReplaceAllMovesWithoutAGap(t *testing.T) {
	within(t, Options{}, func(t *testing.T, s *Supervisor) {
		table := new(memstore.Table)
		configure(t, s, Spec{Name: "a", Table: table, Source: run(func(ctx context.Context, sink Sink) error {
			_ = replace(sink, "old", objects(newObject("x", "1", "old")))
			_ = sink.ReplaceAll([]Content{{Group: "old"}, {Group: "new", Resources: objects(newObject("x", "1", "new"))}})
			_ = sink.ReplaceAll(nil)
			<-ctx.Done()
			return ctx.Err()
		})})
		synctest.Wait()
		require.Equal(t, memstore.Revision(2), table.Snapshot().Revision())
		require.Equal(t, "new", get(table, "x").Origin().Place)
		require.Equal(t, 1, s.Status()[0].Groups)
	})
}

// gather returns the value of each series by its name, and its kind if it has one.
func gather(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	families, err := registry.Gather()
	require.NoError(t, err)
	values := make(map[string]float64)
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			name := f.GetName()
			for _, l := range metric.GetLabel() {
				if l.GetName() == "kind" || l.GetName() == "state" {
					name += " " + l.GetValue()
				}
			}
			values[name] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return values
}

func TestConflict_IsLoggedOnce(t *testing.T) {
	var buffer bytes.Buffer
	within(t, Options{Log: slog.New(slog.NewTextHandler(&buffer, nil))}, func(t *testing.T, s *Supervisor) {
		configure(t, s, Spec{Name: "a", Table: new(memstore.Table), Source: run(func(ctx context.Context, sink Sink) error {
			for i := range 3 {
				_ = replace(sink, "a", []*resource.Resource{newObject("x", fmt.Sprint(i), "a:1"), newObject("x", "1", "a:2")})
				_ = replace(sink, "b", []*resource.Resource{newObject("x", fmt.Sprint(i), "b:1")})
			}
			<-ctx.Done()
			return ctx.Err()
		})})
		synctest.Wait()
		require.Equal(t, []Duplicate{{
			Ref: resource.Ref{Kind: resource.ServiceEntry, Namespace: "default", Name: "x"}, Winner: "a:1", Losers: []string{"b:1", "a:2"},
		}}, s.Status()[0].Duplicates)
	})
	require.Equal(t, 1, strings.Count(buffer.String(), "winner=a:1 loser=a:2"), buffer.String())
	require.Equal(t, 1, strings.Count(buffer.String(), "winner=a:1 loser=b:1"), buffer.String())
}

func TestMetricsGoWithTheirSource(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	within(t, Options{Metrics: registry}, func(t *testing.T, supervisor *Supervisor) {
		configure(t, supervisor, Spec{
			Name: "a", Table: new(memstore.Table), Source: publish("g", newObject("x"), newObject("x", "2")),
		})
		synctest.Wait()
		require.Equal(t, map[string]float64{
			"tributary_source_state degraded": 0, "tributary_source_state denied": 0, "tributary_source_state healthy": 1,
			"tributary_source_state starting": 0, "tributary_source_state unreachable": 0, "tributary_source_unconfirmed": 0,
			"tributary_source_up": 1, "tributary_source_synced": 1, "tributary_source_objects ServiceEntry": 1,
			"tributary_source_quarantined": 0, "tributary_source_foreign_objects": 0, "tributary_source_conflicts": 1,
			"tributary_source_warnings": 0, "tributary_source_left_out": 0,
			"tributary_source_publishes_total": 1, "tributary_source_restarts_total": 0, "tributary_source_stale": 0,
			"tributary_source_age_seconds": 0,
			"tributary_guard_held_objects": 0, "tributary_guard_held_endpoints": 0, "tributary_guard_holds_total": 0,
			"tributary_source_last_publish_timestamp_seconds": float64(time.Now().Unix()),
		}, gather(t, registry))
		require.NoError(t, supervisor.Reconfigure(nil))
		require.Empty(t, gather(t, registry))
	})
	require.NoError(t, registry.Register(&collector{supervisor: NewSupervisor(Options{})}), "unregistered when Run ends")
}

// TestMetrics_CountProblems has a source in all sorts of trouble, and one that has fallen silent since.
func TestMetrics_CountProblems(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	within(t, Options{Metrics: registry}, func(t *testing.T, s *Supervisor) {
		runs := 0
		configure(t, s, Spec{Name: "a", Table: new(memstore.Table), Source: run(func(ctx context.Context, sink Sink) error {
			if runs++; runs == 1 {
				_ = replace(sink, "g", many("g", 30)) // it has no problem
				_ = sink.ReplaceAll([]Content{
					{Group: "g"},
					{Group: "h", Foreign: 3, Warnings: []string{"w"}, Rejects: []Reject{
						{Err: errors.New("bad")},
						{Key: keyed("x"), Err: errors.New("bad")},
					}},
				})
				sink.Synced()
				return errors.New("fails")
			}
			sink.Report(Health{State: Denied, Message: "403"})
			<-ctx.Done()
			return ctx.Err()
		})})
		time.Sleep(time.Minute)
		synctest.Wait()
		values := gather(t, registry)
		for name, want := range map[string]float64{
			"tributary_source_up": 0, "tributary_source_stale": 1, "tributary_source_synced": 1, "tributary_source_restarts_total": 1,
			"tributary_source_quarantined": 2, "tributary_source_foreign_objects": 3, "tributary_source_warnings": 1, "tributary_source_left_out": 0,
			"tributary_source_age_seconds": time.Since(s.Status()[0].Since).Seconds(),
			"tributary_guard_held_objects": 30, "tributary_guard_held_endpoints": 0, "tributary_guard_holds_total": 1,
		} {
			require.InDelta(t, want, values[name], 0, name)
		}
		require.Equal(t, "fails", s.Status()[0].LastError)
		require.Equal(t, 1, s.Status()[0].Restarts)
	})
}

// TestStateChange_IsOneLogLine has a source that cannot be reached say so time and again, in other words each time.
func TestStateChange_IsOneLogLine(t *testing.T) {
	var buffer bytes.Buffer
	within(t, Options{Log: slog.New(slog.NewTextHandler(&buffer, nil))}, func(t *testing.T, supervisor *Supervisor) {
		_, sink := handed(t, supervisor)
		for i := range 10 {
			sink.Report(Health{State: Unreachable, Message: fmt.Sprint("connection refused ", i)})
		}
		require.Equal(t, "connection refused 9", supervisor.Status()[0].Message)
		sink.Report(Health{State: Healthy})
	})
	require.Equal(t, 2, strings.Count(buffer.String(), "\n"), buffer.String())
	require.Contains(t, buffer.String(),
		`level=WARN msg="source state changed" source=a from=starting to=unreachable message="connection refused 0"`)
	require.NotContains(t, buffer.String(), `message=""`)
}

// TestWorkerPanic_IsFailureOfSource has a rule of validation panic where it is applied on all processors, and a worker
// of a source panic.
func TestWorkerPanic_IsFailureOfSource(t *testing.T) {
	bad := func(r *resource.Resource) (resource.Errors, error) {
		if string(r.Body()) == "bad" {
			panic("a rule is wrong")
		}
		return nil, nil
	}
	var buffer bytes.Buffer
	within(t, Options{Validate: bad, Log: slog.New(slog.NewTextHandler(&buffer, nil))}, func(t *testing.T, s *Supervisor) {
		runs := 0
		table := new(memstore.Table)
		configure(t, s, Spec{Name: "a", Table: table, Source: run(func(ctx context.Context, sink Sink) error {
			runs++
			switch runs {
			case 1:
				return errors.Join(replace(sink, "g", many("g", 100)), errors.New("fails"))
			case 2:
				rs := many("g", 100)
				rs[70] = newObject("x", "bad")
				return replace(sink, "g", rs)
			default:
				workers, ctx := worker.New(ctx)
				defer workers.Stop()
				workers.Go(func() { panic("a worker is wrong") })
				<-ctx.Done()
				return workers.Wait()
			}
		})})
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 100, table.Snapshot().Len(), "its published objects stay")
		require.Greater(t, runs, 3)
		require.Equal(t, "panic: a worker is wrong", s.Status()[0].LastError)
		require.Equal(t, Unreachable, s.Status()[0].State)
		require.Contains(t, buffer.String(), "panic: a rule is wrong")
		require.Contains(t, buffer.String(), "supervisor_test.go", "the place")
	})
}
