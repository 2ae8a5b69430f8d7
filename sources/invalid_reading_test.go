package sources

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/lastgood"
)

var neverValid = resource.Key{Kind: resource.AuthorizationPolicy, Namespace: "default", Name: "deny"}

func neverValidIn(group string) Content {
	return Content{Group: group, Rejects: []Reject{{
		Key: neverValid, Origin: resource.Origin{Place: group}, Err: errors.New("bad"), MayRestrict: true,
	}}}
}

func runWithReading(t *testing.T, dir, reading string, source Source, test func(s *Supervisor, table *memstore.Table)) {
	state, err := lastgood.Open(dir, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, state.Close()) }()
	s, table := NewSupervisor(Options{Validate: allValid}), new(memstore.Table)
	configure(t, s, Spec{Name: "a", Source: source, Table: table, LastGood: state.Source("a"), Reading: reading})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	synctest.Wait()
	test(s, table)
	cancel()
	require.NoError(t, <-ended)
}

// TestInvalid_StaysOverReadingAndRestart: a group with a policy that was never valid cannot be read after the settings
// changed. Its mark stays, also over a restart.
func TestInvalid_StaysOverReadingAndRestart(t *testing.T) {
	for _, how := range []string{"restart", "reload"} {
		t.Run(how, func(t *testing.T) {
			withDir(t, func(t *testing.T, dir string) {
				partial := run(func(ctx context.Context, sink Sink) error { // h is read, g cannot be
					_ = sink.ReplaceAll([]Content{{Group: "h", Resources: many("h", 3)}})
					sink.Synced()
					<-ctx.Done()
					return ctx.Err()
				})
				first := run(func(ctx context.Context, sink Sink) error {
					_ = sink.ReplaceAll([]Content{{Group: "h", Resources: many("h", 3)}, neverValidIn("g")})
					sink.Synced()
					<-ctx.Done()
					return ctx.Err()
				})
				invalid := []resource.Key{neverValid}
				if how == "restart" {
					runWithReading(t, dir, "1", first, func(s *Supervisor, table *memstore.Table) {
						require.Equal(t, invalid, table.Snapshot().Invalid())
					})
					runWithReading(t, dir, "2", partial, func(s *Supervisor, table *memstore.Table) {
						require.Equal(t, invalid, table.Snapshot().Invalid(), "kept over the restart")
					})
				} else {
					state, err := lastgood.Open(dir, nil)
					require.NoError(t, err)
					s, table, table2 := NewSupervisor(Options{Validate: allValid}), new(memstore.Table), new(memstore.Table)
					configure(t, s, Spec{Name: "a", Source: first, Table: table, LastGood: state.Source("a"), Reading: "1"})
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- s.Run(ctx) }()
					synctest.Wait()
					require.Equal(t, invalid, table.Snapshot().Invalid())
					configure(t, s, Spec{Name: "a", Source: partial, Table: table2, LastGood: state.Source("a"), Reading: "2"})
					synctest.Wait()
					require.Equal(t, invalid, table2.Snapshot().Invalid(), "kept over the reload")
					time.Sleep(time.Minute)
					cancel()
					require.NoError(t, <-ended)
					require.NoError(t, state.Close())
				}
				runWithReading(t, dir, "2", run(unreachable), func(s *Supervisor, table *memstore.Table) {
					requireLen(t, table, 3)
					require.Equal(t, invalid, table.Snapshot().Invalid(), "kept by the next process, without a read")
				})
			})
		})
	}
}

// TestInvalid_EndsDuringHold: during the hold of an unrelated loss, a broken document becomes valid, or the policies of
// a cluster can be read.
func TestInvalid_EndsDuringHold(t *testing.T) {
	for _, end := range []string{"repaired document", "policies can be read"} {
		t.Run(end, func(t *testing.T) {
			within(t, Options{}, func(t *testing.T, supervisor *Supervisor) {
				table, sink := handed(t, supervisor)
				full, empty := flapping(30)
				require.NoError(t, sink.ReplaceAll(full))
				if end == "repaired document" {
					require.Error(t, replace(sink, "g", nil, Reject{Err: errors.New("bad"), MayRestrict: true, Origin: resource.Origin{Place: "g:1"}}))
				} else {
					sink.(PolicyReader).UnreadPolicies(map[string]string{"": "403"})
				}
				sink.Synced()
				require.NoError(t, sink.ReplaceAll(empty))
				require.NotNil(t, supervisor.Status()[0].Held)
				require.Len(t, table.Snapshot().Invalid(), 1)
				if end == "repaired document" {
					policy := resource.FromBody(resource.Meta{Key: neverValid}, nil)
					require.NoError(t, replace(sink, "g", []*resource.Resource{policy}))
					require.NotNil(t, table.Snapshot().Get(neverValid))
				} else {
					sink.(PolicyReader).UnreadPolicies(nil)
				}
				require.Empty(t, supervisor.Status()[0].Quarantined)
				time.Sleep(24 * time.Hour)
				require.Empty(t, table.Snapshot().Invalid(), "the end of the mark does not wait for the end of the hold")
			})
		})
	}
}
