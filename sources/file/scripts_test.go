package file

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
)

// TestTree runs the scripts of testdata: files change, and a source serves their entries.
func TestTree(t *testing.T) {
	testutil.Scripts(t, "testdata/*.txtar", func(t *testing.T) func(command, want string) string {
		tree := scriptedTree{live: prepare(t)}
		return tree.answer
	})
}

// scriptedTree is a root with a source. Paths are below the root, and $ROOT stands for it in texts, $BASE for the
// directory above it. The commands:
//
//	write FILE ENTRY…, overwrite       entries in shorthand, in the place of the file or in it; "" is a quoted text
//	change FILE ENTRY                  writes it, and waits until it is served
//	rename FROM TO, remove PATH, link TARGET PATH, relink TARGET PATH, chmod PATH MODE
//	fail NAME ERROR                    opening it fails with denied, io or stale; none heals it
//	start [SETTING…]                   name=value, or followLinks or partialStart
//	sync                               waits until the source is synced
//	serves ENTRY…                      waits until these hosts are served; "a=" is without one
//	entries                            the entries that are served now, with their places
//	place NAME PLACE                   waits until the entry is there
//	state STATE [PART; PART]           waits for the status
//	quarantined N, conflicts N         waits for them
//	conflict, reason                   the first conflict; group and reason of the first quarantined object
//	unsynced, silent PART              the source is not synced; the status does not say this
//	opens FILE                         how often it was opened
//	kept NAME…                         these entries were never missing
type scriptedTree struct{ *live }

func (f *scriptedTree) answer(command, _ string) string {
	f.t.Helper()
	name, text, _ := strings.Cut(strings.NewReplacer("$ROOT", f.root, "$BASE", filepath.Dir(f.root)).Replace(command), " ")
	words := strings.Fields(text)
	switch name {
	case "start":
		f.startWith(f.settings(words))
	case "sync":
		f.AwaitSync()
	case "serves":
		for _, word := range words {
			entry, host, _ := strings.Cut(word, "=")
			f.awaitHost(entry, host)
		}
	case "entries":
		text := ""
		for object := range f.table.Snapshot().All() {
			name := object.Key().Name
			text += f.short(fmt.Sprintf("%s=%s %s\n", name, f.host(name), f.place(name)))
		}
		return text
	case "place":
		f.awaitPlace(words[0], words[1])
	case "state":
		state, parts, _ := strings.Cut(text, " ")
		f.Await("it is "+text, func() bool {
			status := f.Status()
			return status.State.String() == state && !slices.ContainsFunc(strings.Split(parts, "; "),
				func(part string) bool { return !strings.Contains(status.Message, part) })
		})
	case "quarantined":
		f.awaitQuarantined(f.number(text))
	case "conflicts":
		f.Await(text+" conflicts", func() bool { return len(f.Status().Duplicates) == f.number(text) })
	case "conflict":
		conflict := f.Status().Duplicates[0]
		return f.short(fmt.Sprintf("%s %s before %d\n", conflict.Key(), conflict.Winner, len(conflict.Losers)))
	case "reason":
		quarantined := f.Status().Quarantined[0]
		return strings.ReplaceAll(quarantined.Group+" "+quarantined.Reason, f.root, "$ROOT") + "\n"
	case "unsynced":
		f.notSynced()
	case "silent":
		require.NotContains(f.t, f.Status().Message, text)
	case "opens":
		return fmt.Sprintln(f.disk.opens(text))
	case "kept":
		f.neverDeleted(words...)
	default:
		f.deed(name, text, words)
	}
	return ""
}

// short returns a text with paths below the root.
func (f *scriptedTree) short(text string) string {
	return strings.NewReplacer(f.root+"/", "", f.root, "$ROOT").Replace(text)
}

// deed changes the tree.
func (f *scriptedTree) deed(name, text string, words []string) {
	f.t.Helper()
	switch name {
	case "write", "overwrite":
		file, content, _ := strings.Cut(text, " ")
		documents := words[1:]
		if text, err := strconv.Unquote(content); err == nil {
			documents = []string{text}
		}
		map[string]func(string, ...string){"write": f.write, "overwrite": f.overwrite}[name](file, documents...)
	case "change":
		f.change(words[0], words[1])
	case "rename":
		f.rename(words[0], words[1])
	case "remove":
		f.remove(text)
	case "link":
		f.link(words[0], words[1])
	case "relink":
		f.relink(words[0], words[1])
	case "chmod":
		mode, err := strconv.ParseUint(words[1], 8, 32)
		require.NoError(f.t, err)
		f.chmod(words[0], fs.FileMode(mode))
	case "fail":
		faults := map[string]error{"denied": fs.ErrPermission, "io": syscall.EIO, "stale": syscall.ESTALE}
		f.disk.fail(words[0], faults[words[1]])
	default:
		require.Fail(f.t, "no such command", name)
	}
}

func (f *scriptedTree) number(text string) int {
	number, err := strconv.Atoi(text)
	require.NoError(f.t, err)
	return number
}

func (f *scriptedTree) settings(words []string) (settings Settings) {
	f.t.Helper()
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		duration, _ := time.ParseDuration(value)
		switch name {
		case "followLinks":
			settings.FollowLinks = true
		case "partialStart":
			settings.PartialStart = true
		case "emptyGrace":
			settings.EmptyGrace = duration
		case "rescanInterval":
			settings.RescanInterval = duration
		case "maxFileBytes":
			settings.MaxFileBytes = int64(f.number(value))
		default:
			require.Fail(f.t, "no such setting", word)
		}
	}
	return settings
}
