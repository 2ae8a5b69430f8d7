package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// many is how many objects the tests empty a source of: more than the guard lets go.
const many = 24

// TestGuard_HoldsEmptiedTree shows that emptying a tree by mistake removes no object from istiod: the loss is held and
// shown, survives a restart of tributary, stops no other change, and takes effect after an operator releases it.
func TestGuard_HoldsEmptiedTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir)
	tributary, istiod := serve(t, dir)
	objects := fixture.ReadObjects(t, dir)
	istiod.AwaitConfigs(t, objects)
	watch := guard(t, istiod, objects)

	empty(t, dir)
	began := awaitHold(t, tributary, many)
	assert.Contains(t, tributary.Ask(t, "status"), "source rules lost 24 objects and 24 endpoints, which are held: ")
	assert.Contains(t, tributary.Ask(t, "explain", "se", "shop/s07"), "tributary guard release rules")
	assert.Equal(t, many, source(t, tributary, "rules").Held.Objects)
	assert.Equal(t, many, tributary.Metric(t, "tributary_guard_held_objects", `source="rules"`))

	// The rest goes on.
	write(t, dir, "new.yaml", serviceEntry("new", 80))
	expected := maps.Clone(objects)
	maps.Copy(expected, fixture.ReadObjects(t, dir))
	istiod.AwaitConfigs(t, expected)
	awaitStored(t, tributary, "rules", began)

	tributary.Crash(t)
	tributary.AwaitAlive(t)
	tributary.AwaitReady(t)
	tributary.Await(t, pageNames(t, tributary, "/debug/syncz", "istiod-e2e"))
	restored := awaitHold(t, tributary, many)
	assert.Equal(t, began, restored, "the hold is the one that was there before the restart")
	// A change after the restart arrives, so istiod has read all earlier changes.
	write(t, dir, "newer.yaml", serviceEntry("newer", 80))
	maps.Copy(expected, fixture.ReadObjects(t, dir))
	istiod.AwaitConfigs(t, expected)
	t.Logf("istiod held everything at each of %d looks", watch.stop(t))

	assert.Contains(t, tributary.Ask(t, "guard", "list"), "rules")
	assert.Contains(t, tributary.Ask(t, "guard", "release", "rules"), "24 objects")
	istiod.AwaitFolders(t, dir)
	assert.NotContains(t, tributary.Ask(t, "status"), "which are held")
	assert.Empty(t, heldLosses(t, tributary))
}

// TestGuard_HoldsTreeEmptiedWhileDown shows that a tree that is emptied while tributary does not run removes no object
// from istiod either, and that the hold ends by itself, without a response to istiod, when the files are back.
func TestGuard_HoldsTreeEmptiedWhileDown(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "rules")
	require.NoError(t, os.Mkdir(dir, 0o700))
	fill(t, dir)
	tributary, istiod := serve(t, dir)
	objects := fixture.ReadObjects(t, dir)
	istiod.AwaitConfigs(t, objects)
	awaitStored(t, tributary, "rules", time.Time{})
	watch := guard(t, istiod, objects)

	tributary.Kill()
	require.NoError(t, os.Rename(dir, dir+".away"))
	require.NoError(t, os.Mkdir(dir, 0o700))
	tributary.Restart(t)
	tributary.AwaitAlive(t)
	awaitHold(t, tributary, many)
	tributary.AwaitReady(t)
	istiodSynced(t, tributary)

	sent := tributary.Metric(t, "tributary_xds_responses_total", serviceEntries)
	fill(t, dir)
	awaitNoHold(t, tributary)
	assert.Equal(t, sent, tributary.Metric(t, "tributary_xds_responses_total", serviceEntries), "istiod gets no change")
	write(t, dir, "new.yaml", serviceEntry("new", 80))
	istiod.AwaitFolders(t, dir)
	watch.stop(t)
}

// TestGuard_PartialHoldPersists shows that a hold goes on over a restart also when so much has come back that the rest
// alone would not be held.
func TestGuard_PartialHoldPersists(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir)
	tributary, istiod := serve(t, dir)
	objects := fixture.ReadObjects(t, dir)
	istiod.AwaitConfigs(t, objects)
	awaitStored(t, tributary, "rules", time.Time{})
	watch := guard(t, istiod, objects)
	empty(t, dir)
	began := awaitHold(t, tributary, many)
	fill(t, dir)
	for i := range 5 {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, fmt.Sprintf("s%02d.yaml", 3*i+1))))
	}
	awaitHold(t, tributary, 5)
	awaitStored(t, tributary, "rules", began)

	tributary.Crash(t)
	tributary.AwaitAlive(t)
	tributary.AwaitReady(t)
	// A change after the restart arrives, so istiod has read all earlier changes.
	istiodSynced(t, tributary)
	write(t, dir, "new.yaml", serviceEntry("new", 80))
	expected := maps.Clone(objects)
	maps.Copy(expected, fixture.ReadObjects(t, dir))
	istiod.AwaitConfigs(t, expected)
	assert.Equal(t, began, awaitHold(t, tributary, 5))
	watch.stop(t)
}

// TestGuardOff_EmptiesTree shows that a source without a guard may be emptied.
func TestGuardOff_EmptiesTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir)
	tributary := fixture.StartTributary(t, fixture.Files("rules", dir).With("guard", "off"))
	istiod := tributary.StartIstiod(t)
	istiod.AwaitFolders(t, dir)
	empty(t, dir)
	istiod.AwaitConfigs(t, fixture.Objects{})
	assert.Empty(t, heldLosses(t, tributary))
}

// TestRestartWithoutDirectory shows that tributary serves its last state when it starts and the directory is missing,
// to the istiod that was connected and to a new one, reports that, and follows the directory once it is back.
func TestRestartWithoutDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "rules")
	require.NoError(t, os.Mkdir(dir, 0o700))
	fill(t, dir)
	objects := fixture.ReadObjects(t, dir)
	write(t, dir, "deleted.yaml", serviceEntry("deleted", 80))
	before := fixture.ReadObjects(t, dir)
	tributary, istiod := serve(t, dir)
	istiod.AwaitConfigs(t, before)
	awaitStored(t, tributary, "rules", time.Time{})
	watchAll := guard(t, istiod, objects)
	watchBefore := guard(t, istiod, before)

	tributary.Kill()
	away := dir + ".away"
	require.NoError(t, os.Rename(dir, away))
	require.NoError(t, os.Remove(filepath.Join(away, "deleted.yaml")))
	write(t, away, "added.yaml", serviceEntry("added", 80))
	back := time.Now()
	tributary.Restart(t)
	tributary.AwaitAlive(t)
	tributary.AwaitReady(t)
	t.Logf("ready %v after the start, without the directory", time.Since(back).Round(time.Millisecond))
	awaitState(t, tributary, "rules", "unreachable", true)
	assert.Regexp(t, `(?m)^rules +unreachable, stale`, tributary.Ask(t, "status"))
	assert.Equal(t, 1, tributary.Metric(t, "tributary_source_stale", `source="rules"`))
	istiodSynced(t, tributary)
	tributary.StartIstiod(t).AwaitConfigs(t, before)
	t.Logf("istiod held everything at each of %d looks", watchBefore.stop(t))

	require.NoError(t, os.Rename(away, dir))
	istiod.AwaitFolders(t, dir)
	watchAll.stop(t)
	awaitState(t, tributary, "rules", "healthy", false)
	assert.Regexp(t, `(?m)^rules +healthy +25 +0 `, tributary.Ask(t, "status"))
}

// TestSameKey_FirstSourceWins shows that of two sources with one key istiod has the object of the first, and that of
// the second after the first drops it, with no moment without the object.
func TestSameKey_FirstSourceWins(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	write(t, first, "same.yaml", serviceEntry("same", 81))
	write(t, second, "same.yaml", serviceEntry("same", 91))
	tributary := fixture.StartTributary(t, fixture.Files("first", first), fixture.Files("second", second))
	istiod := tributary.StartIstiod(t)
	key := fixture.Key{Kind: "ServiceEntry", Namespace: "shop", Name: "same"}
	explained := func(winner string, losers ...string) {
		t.Helper()
		var e struct {
			Objects []struct {
				Winner   *struct{ Source string }
				Shadowed []struct{ Source string }
			}
		}
		require.NoError(t, json.Unmarshal([]byte(tributary.Ask(t, "explain", "se", "shop/same", "-o", "json")), &e))
		require.Len(t, e.Objects, 1)
		require.NotNil(t, e.Objects[0].Winner)
		assert.Equal(t, winner, e.Objects[0].Winner.Source)
		var shadowed []string
		for _, s := range e.Objects[0].Shadowed {
			shadowed = append(shadowed, s.Source)
		}
		assert.Equal(t, losers, shadowed)
	}
	marks := 0
	step := func(name string, change func()) {
		t.Helper()
		change()
		// A later change of both sources arrives, so istiod has seen all that there is to see.
		marks++
		write(t, first, "mark1.yaml", serviceEntry("mark1", marks))
		write(t, second, "mark2.yaml", serviceEntry("mark2", marks))
		t.Log(name)
		istiod.AwaitFolders(t, first, second)
	}
	step("nothing changed yet", func() {})
	explained("first", "second")
	watch := look(t, istiod, func(got fixture.Objects) error {
		if got[key] == nil {
			return fmt.Errorf("%s is missing", key)
		}
		return nil
	})
	step("the loser is edited", func() { write(t, second, "same.yaml", serviceEntry("same", 92)) })
	step("the winner is edited", func() { write(t, first, "same.yaml", serviceEntry("same", 82)) })
	step("the winner is deleted", func() { require.NoError(t, os.Remove(filepath.Join(first, "same.yaml"))) })
	explained("second")
	step("the only one is edited", func() { write(t, second, "same.yaml", serviceEntry("same", 93)) })
	step("the winner is back", func() { write(t, first, "same.yaml", serviceEntry("same", 83)) })
	explained("first", "second")
	step("the loser is deleted", func() { require.NoError(t, os.Remove(filepath.Join(second, "same.yaml"))) })
	explained("first")
	step("the loser is back", func() { write(t, second, "same.yaml", serviceEntry("same", 94)) })
	step("the loser is deleted once more", func() { require.NoError(t, os.Remove(filepath.Join(second, "same.yaml"))) })
	watch.stop(t)
	step("the last is deleted", func() { require.NoError(t, os.Remove(filepath.Join(first, "same.yaml"))) })
	require.NotContains(t, fixture.ReadObjects(t, first, second), key)
}

// fill writes files with many ServiceEntries, some of them in a folder.
func fill(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "deep", "er"), 0o700))
	for i := range many {
		name := fmt.Sprintf("s%02d", i)
		file := name + ".yaml"
		if i%3 == 0 {
			file = filepath.Join("deep", "er", file)
		}
		write(t, dir, file, serviceEntry(name, 80))
	}
}

// empty removes everything in a folder, as `rm -rf folder/*` does.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
}

// held is a loss that is held.
type held struct {
	Source  string    `json:"source"`
	Since   time.Time `json:"since"`
	Objects int       `json:"objects"`
}

// heldLosses are all of them.
func heldLosses(t *testing.T, tributary *fixture.Tributary) []held {
	t.Helper()
	var losses []held
	require.NoError(t, fixture.GetJSON(t.Context(), tributary.URL("/debug/guard"), &losses))
	return losses
}

// awaitHold waits until the loss of so many objects of tributary's only source is held, and returns since when it is.
func awaitHold(t *testing.T, tributary *fixture.Tributary, objects int) (heldSince time.Time) {
	t.Helper()
	tributary.Await(t, func() error {
		losses := heldLosses(t, tributary)
		if len(losses) != 1 || losses[0].Objects != objects {
			return fmt.Errorf("held is %+v, want %d objects of one source", losses, objects)
		}
		heldSince = losses[0].Since
		return nil
	})
	return heldSince
}

// awaitNoHold waits until no loss is held, since all objects have come back.
func awaitNoHold(t *testing.T, tributary *fixture.Tributary) {
	t.Helper()
	tributary.Await(t, func() error {
		if losses := heldLosses(t, tributary); len(losses) > 0 {
			return fmt.Errorf("still held: %+v", losses)
		}
		return nil
	})
}

// awaitState waits until tributary says that a source is in the state, and stale or not.
func awaitState(t *testing.T, tributary *fixture.Tributary, name, want string, stale bool) {
	t.Helper()
	awaitSource(t, tributary, name, time.Minute, func(s state) bool { return s.State == want && s.Stale == stale })
}

// state is a source in tributary's /debug/sources.
type state struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Message string `json:"message"`
	Synced  bool   `json:"synced"`
	Stale   bool   `json:"stale"`
	Held    *held  `json:"held"`
	Kept    struct {
		Stored *time.Time `json:"stored"`
	} `json:"kept"`
}

func (s state) String() string {
	text, _ := json.Marshal(s)
	return string(text)
}

// source is where a source of tributary's stands.
func source(t *testing.T, tributary *fixture.Tributary, name string) state {
	t.Helper()
	var sources []state
	require.NoError(t, fixture.GetJSON(t.Context(), tributary.URL("/debug/sources"), &sources))
	for _, s := range sources {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no source %q in %v", name, sources)
	return state{}
}

// awaitSource waits until the state of a source is right.
func awaitSource(t *testing.T, tributary *fixture.Tributary, name string, timeout time.Duration, right func(state) bool) {
	t.Helper()
	tributary.WaitFor(t, timeout, func() error {
		if s := source(t, tributary, name); !right(s) {
			return fmt.Errorf("the source is %v", s)
		}
		return nil
	})
}

// awaitMessage waits until a source is in a state, if one is given, with a message of these parts.
func awaitMessage(t *testing.T, tributary *fixture.Tributary, name, want string, parts ...string) {
	t.Helper()
	awaitSource(t, tributary, name, time.Minute, func(s state) bool {
		isMissing := func(part string) bool { return !strings.Contains(s.Message, part) }
		return strings.Contains(s.State, want) && !slices.ContainsFunc(parts, isMissing)
	})
	t.Log(source(t, tributary, name))
}

// awaitStored waits until the changes that the source published by a time are on disk, which is a moment after they are
// served. The zero time stands for its first objects.
func awaitStored(t *testing.T, tributary *fixture.Tributary, name string, publishedAt time.Time) {
	t.Helper()
	awaitSource(t, tributary, name, time.Minute, func(s state) bool { return s.Kept.Stored != nil && !s.Kept.Stored.Before(publishedAt) })
}

// istiodSynced waits until istiod is connected and has acknowledged ServiceEntries.
func istiodSynced(t *testing.T, tributary *fixture.Tributary) {
	t.Helper()
	tributary.Await(t, func() error {
		list, err := streams(t, tributary)
		if err != nil {
			return err
		}
		for _, c := range list {
			for _, s := range c.Types {
				if s.TypeURL == serviceEntries && s.Acked.Nonce != "" {
					return nil
				}
			}
		}
		return fmt.Errorf("the streams are %+v", list)
	})
}
