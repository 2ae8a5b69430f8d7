package file

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/lastgood"
	"tributary/sources/transform"
)

// restarting is a live with its state on disk, and records which files are parsed.
type restarting struct {
	*live
	state *lastgood.Dir

	mu     sync.Mutex
	parsed []string
}

func prepareRestarting(t *testing.T) *restarting {
	state, err := lastgood.Open(filepath.Join(t.TempDir(), "state"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, state.Close()) })
	r := &restarting{live: prepare(t), state: state}
	r.parse = func(
		group, place string, text []byte, o resource.Options, earlier *resource.DecodeCache,
	) (sources.Content, *resource.DecodeCache) {
		r.mu.Lock()
		r.parsed = append(r.parsed, group)
		r.mu.Unlock()
		return sources.DecodeIncremental(group, place, text, o, earlier)
	}
	return r
}

// restart stops a running source, starts a new one from the state on disk, and returns the parsed files.
func (r *restarting) restart(settings Settings) []string {
	r.t.Helper()
	if r.Running != nil {
		r.Stop()
	}
	r.mu.Lock()
	r.parsed = nil
	r.mu.Unlock()
	r.table, r.memory = &table{}, r.state.Source("rules")
	r.startWith(settings)
	r.Await("it has read everything", func() bool { return r.Status().Synced })
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.parsed)
	return r.parsed
}

func TestRestart_ParsesChangedFilesOnly(t *testing.T) {
	r := prepareRestarting(t)
	r.write("a.yaml", "a=a1.example.com", "b=b1.example.com")
	r.write("sub/c.yaml", "c=c1.example.com")
	r.write("broken.yaml", "d=d1.example.com", brokenYAML)
	r.write("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
	r.write("twice.yaml", "t=t1.example.com", "t=t2.example.com")
	everyFile := []string{"a.yaml", "broken.yaml", "pod.yaml", "sub/c.yaml", "twice.yaml"}
	require.Equal(t, everyFile, r.restart(Settings{}))
	before := r.Status()

	same := func() {
		t.Helper()
		now := r.Status()
		require.Equal(t, before.Objects, now.Objects)
		require.Equal(t, before.Groups, now.Groups)
		require.Equal(t, before.Duplicates, now.Duplicates)
		require.Equal(t, before.Warnings, now.Warnings)
		require.Equal(t, before.Foreign, now.Foreign)
		require.Len(t, now.Quarantined, len(before.Quarantined))
	}
	unsound := []string{"broken.yaml", "twice.yaml"} // their conflicts and rejects are not part of the stored state
	require.Equal(t, unsound, r.restart(Settings{}))
	same()
	require.Equal(t, unsound, r.restart(Settings{}), "once more, from a file that was not written to")
	same()

	r.Stop()
	r.write("sub/c.yaml", "c=c2.example.com")
	require.Equal(t, []string{"broken.yaml", "sub/c.yaml", "twice.yaml"}, r.restart(Settings{}))
	require.Equal(t, "c2.example.com", r.host("c"))
	same()

	require.Equal(t, everyFile, r.restart(Settings{Texts: sources.Texts{DefaultNamespace: "default", UnknownFields: "warn"}}),
		"it might be read differently")
	require.Equal(t, unsound, r.restart(Settings{Texts: sources.Texts{UnknownFields: "warn"}}))

	rules, err := transform.New(transform.Settings{
		Labels:  transform.Change{Add: map[string]string{"x": "y"}},
		Exclude: []transform.Selector{{Names: []string{"b"}}},
	})
	require.NoError(t, err)
	r.transform = rules
	require.Equal(t, everyFile, r.restart(Settings{Texts: sources.Texts{UnknownFields: "warn"}}), "other transforms")
	require.Empty(t, r.host("b"))
	require.Equal(t, unsound, r.restart(Settings{Texts: sources.Texts{UnknownFields: "warn"}}))
	require.Len(t, r.Supervisor.Excluding(keyOf("b")), 1, "excluded objects are found")

	moved := r.root + ".moved"
	r.Stop()
	r.rename("", "../rules.moved")
	r.root = moved
	require.Equal(t, everyFile, r.restart(Settings{Texts: sources.Texts{UnknownFields: "warn"}}), "places are others")
	require.True(t, strings.HasPrefix(r.place("a"), moved))
}

func TestRestart_KeepsWarnings(t *testing.T) {
	r := prepareRestarting(t)
	r.write("a.yaml", strings.Replace(entry("a", "a1.example.com"), "resolution:", "fromTheFuture: 1\n  resolution:", 1))
	settings := Settings{Texts: sources.Texts{UnknownFields: "warn"}}
	require.Equal(t, []string{"a.yaml"}, r.restart(settings))
	before := r.Status().Warnings
	require.Len(t, before, 1)
	require.Empty(t, r.restart(settings))
	require.Equal(t, before, r.Status().Warnings)
	r.write("a.yaml", "a=a1.example.com")
	r.Await("the warning is gone", func() bool { return len(r.Status().Warnings) == 0 })
}

// The stored state of a source lacks the objects that lost a conflict, so their file is read again.
func TestRestart_ReadsFilesThatLostConflicts(t *testing.T) {
	restarting := prepareRestarting(t)
	restarting.write("a.yaml", "x=a.example.com")
	restarting.write("b.yaml", "x=b.example.com", "other=b.example.com")
	require.Equal(t, []string{"a.yaml", "b.yaml"}, restarting.restart(Settings{}))
	require.Equal(t, []string{"b.yaml"}, restarting.restart(Settings{}))
	require.Len(t, restarting.Status().Duplicates, 1)
	restarting.remove("a.yaml")
	restarting.awaitHost("x", "b.example.com")
	require.Empty(t, restarting.restart(Settings{}))
}
