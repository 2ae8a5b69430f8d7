package sources

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/testutil"
	"tributary/resource"
)

var _ = flag.Bool("update", false, "write the answers of testdata")

// TestRejects runs the scripts of testdata/rejects.txtar: last good versions replace rejects.
func TestRejects(t *testing.T) {
	testutil.Scripts(t, "testdata/rejects.txtar", func(*testing.T) func(command, want string) string {
		replacing := replacing{ledger: emptyLedger(), places: make(map[string]string)}
		return func(command, _ string) string { return replacing.answer(t, command) }
	})
}

// replacing is a ledger, and the objects that a table would serve. Each command replaces groups, a second after the one
// before. "a x=1 y; b !x !" has in group a the objects x with the content 1, and y, and in group b a reject of x and
// one without a key. "!Kind/x" is a reject of another kind, and "because" ends a group with the reason. A group in upper
// case is not renamable. The answer is the place and the content of each object, with the changes of the quarantine.
type replacing struct {
	ledger  *ledger
	seconds int64
	places  map[string]string // by name
}

func (r *replacing) answer(t *testing.T, command string) string {
	t.Helper()
	r.seconds++
	var contents []admitted
	for text := range strings.SplitSeq(command, "; ") {
		contents = append(contents, admitted{Content: contentOf(text)})
	}
	change := r.ledger.replace(contents, time.Unix(r.seconds, 0))
	for _, key := range change.Deletes {
		delete(r.places, key.Name)
	}
	for _, object := range change.Puts {
		r.places[object.Key().Name] = object.Origin().Place + " " + string(object.Body())
	}
	var lines strings.Builder
	for _, name := range []string{"x", "y", "z"} {
		if place := r.places[name]; place != "" {
			fmt.Fprintf(&lines, "%s: %s\n", name, place)
		}
	}
	for _, quarantined := range r.ledger.quarantineList() {
		fmt.Fprintf(&lines, "quarantined since %d: %s", quarantined.Since.Unix(), quarantined.Reason)
		if quarantined.LastGoodServes {
			fmt.Fprint(&lines, ", its last version serves")
		}
		if len(quarantined.Keeps) > 0 {
			fmt.Fprint(&lines, ", keeps ", strings.Join(quarantined.Keeps, " "))
		}
		fmt.Fprintln(&lines)
	}
	if changes := len(change.quarantined); changes > 0 {
		fmt.Fprintln(&lines, "new in quarantine:", changes)
	}
	if changes := len(change.recovered); changes > 0 {
		fmt.Fprintln(&lines, "recovered:", changes)
	}
	require.Empty(t, r.ledger.duplicateList())
	return lines.String()
}

// contentOf reads the content of a group.
func contentOf(text string) Content {
	text, reason, _ := strings.Cut(text, " because ")
	words := strings.Fields(text)
	content := Content{Group: words[0], Renamable: words[0] == strings.ToLower(words[0])}
	for _, word := range words[1:] {
		name, isReject := strings.CutPrefix(word, "!")
		if !isReject {
			name, body, _ := strings.Cut(word, "=")
			content.Resources = append(content.Resources, newObject(name, body, content.Group))
			continue
		}
		var key resource.Key
		if name != "" {
			key = keyed(name)
		}
		if kind, name, isKind := strings.Cut(name, "/"); isKind {
			key = resource.Key{Kind: resource.Kind(kind), Namespace: "default", Name: name}
		}
		err := errors.New(strings.TrimSpace("bad " + word + " " + reason))
		content.Rejects = append(content.Rejects, Reject{Key: key, Err: err})
	}
	return content
}
