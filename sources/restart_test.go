package sources

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/lastgood"
)

// lifetime runs a source called a in one process, with the state in dir. After test it is stopped in order.
func lifetime(t *testing.T, dir string, opts Options, source Source, test ...func(s *Supervisor, table *memstore.Table)) {
	t.Helper()
	if opts.Validate == nil {
		opts.Validate = allValid
	}
	state, err := lastgood.Open(dir, opts.Log)
	require.NoError(t, err)
	defer func() { require.NoError(t, state.Close()) }()
	s, table := NewSupervisor(opts), new(memstore.Table)
	configure(t, s, Spec{Name: "a", Source: source, Table: table, LastGood: state.Source("a")})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	synctest.Wait()
	for _, f := range test {
		f(s, table)
	}
	cancel()
	require.NoError(t, <-ended)
}

// openState opens the state in dir until the test ends.
func openState(t *testing.T, dir string) *lastgood.Dir {
	t.Helper()
	state, err := lastgood.Open(dir, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, state.Close()) })
	return state
}

// unreachable is a source that cannot be read.
func unreachable(ctx context.Context, sink Sink) error {
	sink.Report(Health{State: Unreachable, Message: "connection refused"})
	<-ctx.Done()
	return ctx.Err()
}

// whole is a source that is read once: its groups replace those of the sink, as with files.
func whole(groups map[string][]*resource.Resource, rejects ...Reject) run {
	return func(ctx context.Context, sink Sink) error {
		var contents []Content
		for _, name := range sink.Groups() {
			if _, exists := groups[name]; !exists {
				contents = append(contents, Content{Group: name})
			}
		}
		for name, rs := range groups {
			content := Content{Group: name, Resources: rs}
			for _, r := range rejects {
				if r.Origin.Place == name {
					content.Rejects = append(content.Rejects, r)
				}
			}
			contents = append(contents, content)
		}
		_ = sink.ReplaceAll(contents)
		sink.Synced()
		<-ctx.Done()
		return ctx.Err()
	}
}

func many(group string, n int) (resources []*resource.Resource) {
	for i := range n {
		resources = append(resources, newObject(fmt.Sprintf("%s%03d", group, i), "1", group))
	}
	return resources
}

// wholeOf is a source of one group of n objects.
func wholeOf(group string, n int) run { return whole(groups{group: many(group, n)}) }

// withDir runs test in a bubble of fake time, with a directory for the state.
func withDir(t *testing.T, test func(t *testing.T, dir string)) {
	synctest.Test(t, func(t *testing.T) { test(t, t.TempDir()) })
}

type groups = map[string][]*resource.Resource

func TestRestart_ServesStoredObjects(t *testing.T) {
	withDir(t, func(t *testing.T, dir string) {
		var first time.Time
		lifetime(t, dir, Options{}, whole(groups{"g": {newObject("x")}, "h": many("h", 20)}),
			func(s *Supervisor, table *memstore.Table) {
				first = get(table, "x").Seen()
				st := s.Status()[0]
				require.False(t, st.Stale)
				require.Nil(t, st.Restored)
			})
		time.Sleep(time.Hour)
		var buffer bytes.Buffer
		registry := prometheus.NewRegistry()
		opts := Options{Metrics: registry, Log: slog.New(slog.NewTextHandler(&buffer, nil))}
		lifetime(t, dir, opts, run(unreachable), func(supervisor *Supervisor, table *memstore.Table) {
			require.True(t, table.Synced(), "it is served")
			requireLen(t, table, 21)
			x := get(table, "x")
			require.Equal(t, first, x.Seen())
			require.Equal(t, resource.Origin{Source: "a", Place: "p", Group: "g"}, x.Origin())
			status := supervisor.Status()[0]
			require.True(t, status.Stale)
			require.False(t, status.Synced)
			require.Equal(t, 21, status.Restored.Objects)
			require.Equal(t, 2, status.Groups)
			require.Equal(t, map[resource.Kind]int{resource.ServiceEntry: 21}, status.Objects)
			require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP tributary_source_stale Whether served objects may be out of date: the source cannot be read, or not yet.
# TYPE tributary_source_stale gauge
tributary_source_stale{source="a"} 1
`), "tributary_source_stale"))
		})
		require.Contains(t, buffer.String(), "the last published objects are served until the source has been read")

		time.Sleep(time.Hour)
		lifetime(t, dir, Options{}, whole(groups{"g": {newObject("x", "2"), newObject("y")}, "h": many("h", 20)}),
			func(s *Supervisor, table *memstore.Table) {
				require.False(t, s.Status()[0].Stale, "it was read")
				require.Equal(t, memstore.Revision(2), table.Snapshot().Revision(), "one commit for the two that differ")
				require.Equal(t, first, get(table, "x").Seen(), "the same object as two restarts ago")
				require.Equal(t, first.Add(2*time.Hour), get(table, "y").Seen())
			})
	})
}

func TestRestart_WithdrawsObjectsDeletedMeanwhile(t *testing.T) {
	withDir(t, func(t *testing.T, dir string) {
		lifetime(t, dir, Options{}, whole(groups{"g": {newObject("x")}, "h": many("h", 3)}))
		lifetime(t, dir, Options{}, wholeOf("h", 3), func(_ *Supervisor, table *memstore.Table) {
			require.Nil(t, get(table, "x"))
			requireLen(t, table, 3)
		})
	})
}

func TestRestartKeepsTheHold(t *testing.T) {
	withDir(t, func(t *testing.T, dir string) {
		lifetime(t, dir, Options{}, wholeOf("g", 100))
		var first time.Time
		for range 3 {
			time.Sleep(time.Hour)
			lifetime(t, dir, Options{}, whole(groups{}), func(supervisor *Supervisor, table *memstore.Table) {
				requireLen(t, table, 100)
				held := supervisor.Status()[0].Held
				require.Equal(t, 100, held.Objects)
				require.Equal(t, []Serving{{Source: "a", Held: true}}, supervisor.Serving(keyed("g099")))
				require.Empty(t, supervisor.Serving(keyed("x")))
				if first.IsZero() {
					first = held.Begun
				}
				require.True(t, first.Equal(held.Begun), "the hold goes on")
				require.Equal(t, "all 100 objects of kind ServiceEntry would go within 1m0s", held.Why)
			})
		}
		lifetime(t, dir, Options{}, whole(groups{}), func(supervisor *Supervisor, table *memstore.Table) {
			_, _, err := supervisor.Release("b", "", "me")
			require.ErrorIs(t, err, ErrNotFound)
			objects, _, err := supervisor.Release("a", "", "me")
			require.NoError(t, err)
			require.Equal(t, 100, objects)
			requireLen(t, table, 0)
			_, _, err = supervisor.Release("a", "", "me")
			require.ErrorIs(t, err, ErrNothingHeld)
		})
		lifetime(t, dir, Options{}, run(unreachable), func(s *Supervisor, table *memstore.Table) {
			require.Zero(t, table.Snapshot().Len(), "a released object stays absent")
			require.True(t, table.Synced(), "that it is empty is known")
			require.Nil(t, s.Status()[0].Held)
		})
	})
}

func TestRestart_KeepsLastGoodVersions(t *testing.T) {
	bad := func(key resource.Key) Reject {
		return Reject{Key: key, Origin: resource.Origin{Place: "g"}, Err: errors.New("bad")}
	}
	for name, reject := range map[string]Reject{"known": bad(keyed("x")), "too broken to tell": bad(resource.Key{})} {
		t.Run(name, func(t *testing.T) {
			withDir(t, func(t *testing.T, dir string) {
				lifetime(t, dir, Options{}, whole(groups{"g": {newObject("x")}}))
				for range 2 {
					time.Sleep(time.Hour)
					lifetime(t, dir, Options{}, whole(groups{"g": nil}, reject), func(s *Supervisor, table *memstore.Table) {
						require.NotNil(t, get(table, "x"))
						q := s.Status()[0].Quarantined
						require.Len(t, q, 1)
						require.Equal(t, time.Now().UTC(), q[0].Since, "that of this run")
						require.Equal(t, reject.Key != resource.Key{}, q[0].LastGoodServes)
					})
				}
			})
		})
	}
}

// TestRestart_ValidatesStoredObjects has a rule that is new in a version of the program.
func TestRestart_ValidatesStoredObjects(t *testing.T) {
	withDir(t, func(t *testing.T, dir string) {
		source := func() run { return whole(groups{"g": {newObject("x"), newObject("y")}}) }
		lifetime(t, dir, Options{}, source())
		stricter := Options{Validate: func(r *resource.Resource) (resource.Errors, error) {
			if r.Key().Name == "x" {
				return nil, errors.New("no longer allowed")
			}
			return resource.Errors{{Err: errors.New("deprecated")}}, nil
		}}
		lifetime(t, dir, stricter, source(), func(s *Supervisor, table *memstore.Table) {
			st := s.Status()[0]
			require.Len(t, st.Quarantined, 1)
			require.True(t, st.Quarantined[0].LastGoodServes)
			require.Len(t, st.Warnings, 1)
			requireLen(t, table, 2)
		})
	})
}

func TestDamagedState_IsSetAside(t *testing.T) {
	withDir(t, func(t *testing.T, dir string) {
		lifetime(t, dir, Options{}, wholeOf("g", 100))
		file := filepath.Join(dir, "sources", "a.db")
		require.NoError(t, os.Truncate(file, 5000))
		var buffer bytes.Buffer
		opts := Options{Log: slog.New(slog.NewTextHandler(&buffer, nil))}
		lifetime(t, dir, opts, run(unreachable), func(s *Supervisor, table *memstore.Table) {
			require.False(t, table.Synced(), "no object is served before the first read")
			require.False(t, s.Status()[0].Stale)
		})
		require.Equal(t, 1, strings.Count(buffer.String(), "it was set aside as "+file+".damaged-"), buffer.String())
		require.NoFileExists(t, file)
		lifetime(t, dir, Options{}, wholeOf("g", 100))
		require.FileExists(t, file)
	})
}

// A state file that cannot be read stays, although the source is read, and over a reload. A later start has its
// objects.
func TestUnreadableState_Stays(t *testing.T) {
	withDir(t, func(t *testing.T, dir string) {
		lifetime(t, dir, Options{}, wholeOf("g", 100))
		file := filepath.Join(dir, "sources", "a.db")
		require.NoError(t, os.Rename(file, file+".disk"))
		require.NoError(t, os.Symlink(file, file)) // fails for every user
		var buffer bytes.Buffer
		opts := Options{Log: slog.New(slog.NewTextHandler(&buffer, nil)), Validate: allValid}
		state, err := lastgood.Open(dir, opts.Log)
		require.NoError(t, err)
		supervisor, ended := NewSupervisor(opts), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		for _, reading := range []string{"first", "second"} {
			specs := specsOf(state, []configuredSource{{"a", reading, wholeOf("g", 1)}})
			configure(t, supervisor, specs...)
			if reading == "first" {
				go func() { ended <- supervisor.Run(ctx) }()
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			requireLen(t, specs[0].Table, 1)
			require.Contains(t, supervisor.Status()[0].Stored.Error, "the state file cannot be read: open "+file, reading)
		}
		require.NoError(t, os.Rename(file+".disk", file))
		cancel()
		require.NoError(t, <-ended)
		require.NoError(t, state.Close())
		require.Equal(t, 1, strings.Count(buffer.String(), "the last published objects cannot be restored"))
		lifetime(t, dir, Options{}, run(unreachable), func(_ *Supervisor, table *memstore.Table) {
			requireLen(t, table, 100)
		})
	})
}

// TestDamagedMemoryAndAnInvalidPolicy: the newest stored version of objects is lost, and the files are invalid. The
// remaining version may be older: that of a policy would let requests pass that the lost one denies.
func TestDamagedMemoryAndAnInvalidPolicy(t *testing.T) {
	policy := keyed("p")
	policy.Kind = resource.AuthorizationPolicy
	single := func(content string) []*resource.Resource {
		return []*resource.Resource{
			resource.FromBody(resource.Meta{Key: policy, Origin: resource.Origin{Place: "g"}}, []byte(content)), newObject("x", content, "g"),
		}
	}
	damages := map[string]func(text []byte) []byte{
		"whole":   func(text []byte) []byte { return text },
		"cut off": func(text []byte) []byte { return text[:len(text)-3] },
		"damaged": func(text []byte) []byte {
			offset := bytes.LastIndex(text, []byte("newer"))
			text[offset] = '?'
			text[bytes.LastIndex(text[:offset], []byte("newer"))] = '?'
			return text
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			withDir(t, func(t *testing.T, dir string) {
				lifetime(t, dir, Options{}, whole(groups{"g": single("older")}))
				lifetime(t, dir, Options{}, whole(groups{"g": single("newer")}))
				file := filepath.Join(dir, "sources", "a.db")
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(file, damage(text), 0o600))
				bad := []Reject{broken("g", policy).Rejects[0], broken("g", keyed("x")).Rejects[0]}
				lifetime(t, dir, Options{}, whole(groups{"g": nil, "h": many("h", 2)}, bad...), func(s *Supervisor, table *memstore.Table) {
					served := table.Snapshot()
					if name == "whole" {
						require.Equal(t, "newer", string(served.Get(policy).Body()))
						require.Equal(t, "newer", string(served.Get(keyed("x")).Body()))
						return
					}
					require.Equal(t, "older", string(served.Get(keyed("x")).Body()))
					require.Nil(t, served.Get(policy))
					require.Equal(t, []resource.Key{policy}, served.Invalid())
				})
			})
		})
	}
}

// TestDamagedState_OfHeldPolicies damages the state at random, after policies were gone, held and back in a newer
// version. An older one is never in force.
func TestDamagedState_OfHeldPolicies(t *testing.T) {
	policy := func(name, content string) *resource.Resource {
		key := keyed(name)
		key.Kind = resource.AuthorizationPolicy
		return resource.FromBody(resource.Meta{Key: key, Origin: resource.Origin{Place: name}}, []byte(content))
	}
	names := []string{"p", "q", "r"}
	contents := func(content string) groups {
		groups := groups{"h": many("h", 2)}
		for _, name := range names {
			groups[name] = []*resource.Resource{policy(name, content)}
		}
		return groups
	}
	lost := 0
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's
		withDir(t, func(t *testing.T, dir string) {
			lifetime(t, dir, Options{}, whole(contents("older")))
			lifetime(t, dir, Options{}, wholeOf("h", 2), func(s *Supervisor, _ *memstore.Table) {
				require.NotNil(t, s.Status()[0].Held)
			})
			lifetime(t, dir, Options{}, whole(contents("newer")))
			file := filepath.Join(dir, "sources", "a.db")
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for range 1 + random.IntN(8) {
				text[random.IntN(len(text))] ^= byte(1 + random.IntN(255))
			}
			require.NoError(t, os.WriteFile(file, text, 0o600))
			now := contents("newest")
			var rejects []Reject
			for _, name := range names[:1+seed%2*2] { // one, or as many as the guard holds
				now[name] = nil
				rejects = append(rejects, broken(name, policy(name, "").Key()).Rejects...)
			}
			check := func(s *Supervisor, table *memstore.Table) {
				for _, reject := range rejects {
					invalid, served := slices.Contains(table.Snapshot().Invalid(), reject.Key), table.Snapshot().Get(reject.Key)
					require.Equal(t, invalid, served == nil, "seed %d", seed)
					require.True(t, invalid || string(served.Body()) == "newer", "seed %d: an older policy is in force", seed)
					if invalid {
						lost++
					}
				}
			}
			lifetime(t, dir, Options{}, whole(now, rejects...), check)
			lifetime(t, dir, Options{}, run(unreachable))
			lifetime(t, dir, Options{}, whole(now, rejects...), check)
		})
	}
	require.Positive(t, lost)
}

// TestState_DiskThatRefusesWrites has a disk that refuses writes for a while: all objects are served, and the status
// shows that a restart would serve fewer.
func TestState_DiskThatRefusesWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, registry := t.TempDir(), prometheus.NewPedanticRegistry()
		path := filepath.Join(dir, "sources")
		lifetime(t, dir, Options{Metrics: registry}, wholeOf("g", 100), func(s *Supervisor, table *memstore.Table) {
			require.InDelta(t, 1, gather(t, registry)["tributary_source_stored"], 0)
			require.NoError(t, os.RemoveAll(path))
			require.NoError(t, os.WriteFile(path, nil, 0o600)) // a file instead of the directory, so that no file can be made in it
			table.Apply(objects(newObject("x", "1", "g")), nil)
			time.Sleep(time.Second)
			synctest.Wait()
			require.InDelta(t, 0, gather(t, registry)["tributary_source_stored"], 0)
			shown, err := json.Marshal(s.Status())
			require.NoError(t, err)
			require.Regexp(t, `"kept":\{.*"error":"[^"]*not a directory"`, string(shown))
			requireLen(t, table, 101)
			require.NoError(t, os.Remove(path))
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			require.InDelta(t, 1, gather(t, registry)["tributary_source_stored"], 0)
		})
	})
}

// TestAddedSource_IgnoresOldState adds a source to running ones: its state on disk is of a time before it was removed
// from the configuration.
func TestAddedSource_IgnoresOldState(t *testing.T) {
	withDir(t, func(t *testing.T, dir string) {
		lifetime(t, dir, Options{}, wholeOf("g", 100), func(s *Supervisor, _ *memstore.Table) {
			require.NoError(t, s.Reconfigure(nil))
			table := new(memstore.Table)
			state, err := lastgood.Open(dir+"/other", nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, state.Close()) }()
			require.NoError(t, os.Rename(filepath.Join(dir, "sources", "a.db"), filepath.Join(dir, "other", "sources", "a.db")))
			configure(t, s, Spec{Name: "a", Source: run(unreachable), Table: table, LastGood: state.Source("a")})
			synctest.Wait()
			require.False(t, table.Synced())
			requireLen(t, table, 0)
		})
	})
}

func TestReconfigure_ChangesTheGuard(t *testing.T) {
	within(t, Options{}, func(t *testing.T, s *Supervisor) {
		table := new(memstore.Table)
		configure(t, s, Spec{Name: "a", Table: table, Source: wholeOf("g", 100)})
		synctest.Wait()
		configure(t, s, Spec{Name: "a", Table: table, Source: whole(groups{})})
		synctest.Wait()
		requireLen(t, table, 100)
		spec := Spec{Name: "a", Table: table, Source: whole(groups{})}
		spec.Guard.Off = true
		configure(t, s, spec)
		synctest.Wait()
		requireLen(t, table, 0)
	})
}
