package output

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"tributary/internal/history"
	"tributary/internal/words"
	"tributary/resource"
)

// Side is one of the two sets.
type Side struct {
	Name string // for people: an address or a path
	// Undated says that objects need not have a time of creation: one that has none stands for whatever the other side has.
	Undated bool

	objects  map[resource.Key]*resource.Resource
	unserved map[resource.Key]string // what it has and would not serve, and why
	unsure   int                     // what it has, and of which it cannot be told what it is
	ordered  bool                    // it tells in which order its sources are
}

// Reject notes an object that the side has, and that would not be served for a reason. One whose key has no name may be any.
func (s *Side) Reject(key resource.Key, reason string) {
	if key.Name == "" {
		s.unsure++
		return
	}
	if s.unserved == nil {
		s.unserved = make(map[resource.Key]string)
	}
	if _, noted := s.unserved[key]; !noted {
		s.unserved[key] = strings.ReplaceAll(reason, "\n", "; ")
	}
}

// Add adds an object, unless the side has its key already: as in a source, the first one counts.
func (s *Side) Add(r *resource.Resource) {
	if s.objects == nil {
		s.objects = make(map[resource.Key]*resource.Resource)
	}
	if s.objects[r.Key()] == nil {
		s.objects[r.Key()] = r
		s.ordered = s.ordered || r.Rank() > 0
	}
}

// Differences counts objects.
type Differences struct {
	OnlyInFirst, OnlyInSecond, Changed int
	// Quarantined are those that one side has, and would not serve: whatever the other side has of them stays.
	Quarantined int
	// Unsure are those that only one side has, while the other has something of which it cannot be told what it is: they may
	// be that, and stay then.
	Unsure int
}

// Total is the number of objects that differ.
func (d Differences) Total() int {
	return d.OnlyInFirst + d.OnlyInSecond + d.Changed + d.Quarantined + d.Unsure
}

// WriteDifferences writes a unified difference in YAML for each object that is not the same on both sides, in key order. Times of
// creation count, since clients break ties by them; of objects that have none of their own, the order of their sources does, if
// both sides tell it.
func WriteDifferences(w io.Writer, first, second *Side) (d Differences, err error) {
	var keys []resource.Key
	for _, side := range []*Side{first, second} {
		keys = slices.AppendSeq(slices.AppendSeq(keys, maps.Keys(side.objects)), maps.Keys(side.unserved))
	}
	slices.SortFunc(keys, resource.Key.Compare)
	for _, key := range slices.Compact(keys) {
		a, b := first.objects[key], second.objects[key]
		if note := noteOf(first, second, key); note != "" {
			d.Quarantined++
			if _, err := fmt.Fprintf(w, "# %s: %s\n", key, note); err != nil {
				return d, err
			}
			continue
		}
		switch {
		case a != nil && b != nil && equalServed(first, second, key):
			continue
		case b == nil && second.unsure > 0 || a == nil && first.unsure > 0:
			d.Unsure++
			has, lacks := first, second
			if a == nil {
				has, lacks = second, first
			}
			if _, err := fmt.Fprintf(w, "# %s: only in %s; it may be what cannot be read in %s, and stays until that can be\n", key, has.Name,
				lacks.Name); err != nil {
				return d, err
			}
			continue
		case b == nil:
			d.OnlyInFirst++
		case a == nil:
			d.OnlyInSecond++
		default:
			d.Changed++
		}
		if a != nil && b != nil && timeless(first, second, key) {
			a, b = a.WithCreated(time.Time{}), b.WithCreated(time.Time{})
		}
		if err := writeOne(w, first.label(key), second.label(key), a, b); err != nil {
			return d, err
		}
	}
	return d, nil
}

func equalServed(first, second *Side, key resource.Key) bool {
	a, b := first.objects[key], second.objects[key]
	if !equalContent(a, b) {
		return false
	}
	if timeless(first, second, key) {
		return true
	}
	return a.Own().Truncate(time.Second).Equal(b.Own().Truncate(time.Second)) && (!first.ordered || !second.ordered || a.Rank() == b.Rank())
}

func equalContent(a, b *resource.Resource) bool {
	return resource.Equal(a.WithCreated(time.Time{}), b.WithCreated(time.Time{}))
}

// timeless reports whether times of creation do not count, since one side need not have one.
func timeless(first, second *Side, key resource.Key) bool {
	return first.Undated && first.objects[key].Own().IsZero() || second.Undated && second.objects[key].Own().IsZero()
}

// noteOf says what becomes of an object that one side has and would not serve; nothing if there is none.
func noteOf(first, second *Side, key resource.Key) string {
	for _, s := range []struct{ has, other *Side }{{first, second}, {second, first}} {
		reason, bad := s.has.unserved[key]
		if !bad || s.has.objects[key] != nil { // another object of the key is served
			continue
		}
		if s.other.objects[key] != nil {
			return fmt.Sprintf("quarantined, what %s has stays: %s", s.other.Name, reason)
		}
		return "quarantined, nothing is served of it: " + reason
	}
	return ""
}

// label says where a side has key: the place, if it knows one.
func (s *Side) label(key resource.Key) string {
	r := s.objects[key]
	if r == nil {
		return "/dev/null" // as tools that read unified differences expect it
	}
	where := r.Origin().Place
	if where == "" {
		where = s.Name
	}
	return where + " " + key.String()
}

func writeOne(w io.Writer, labelA, labelB string, a, b *resource.Resource) error {
	before, err := textOf(a)
	if err != nil {
		return err
	}
	after, err := textOf(b)
	if err != nil {
		return err
	}
	unified := udiff.Unified(labelA, labelB, before, after)
	if unified == "" {
		what := "the objects differ in fields of the spec that this version does not know"
		if equalContent(a, b) {
			what = fmt.Sprintf("their sources are in another order: where objects compete, this one has rank %d, and rank %d; the lowest wins",
				a.Rank(), b.Rank())
		}
		unified = fmt.Sprintf("--- %s\n+++ %s\n%s\n", labelA, labelB, what)
	}
	_, err = io.WriteString(w, unified)
	return err
}

func textOf(r *resource.Resource) (string, error) {
	if r == nil {
		return "", nil
	}
	document, err := resource.MarshalYAML(r)
	return string(document), err
}

// ChangedFields returns the paths of what is different between two versions of an object, in order. Lists are looked at as a whole.
func ChangedFields(was, is *resource.Resource) ([]string, error) {
	a, err := fields(was)
	if err != nil {
		return nil, err
	}
	b, err := fields(is)
	if err != nil {
		return nil, err
	}
	return changedPaths("", a, b), nil
}

func fields(r *resource.Resource) (m map[string]any, err error) {
	text, err := resource.MarshalJSON(r)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

func changedPaths(path string, a, b map[string]any) (paths []string) {
	keys := make(map[string]any)
	maps.Copy(keys, a)
	maps.Copy(keys, b)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		at := path + key
		left, isMap := a[key].(map[string]any)
		right, bothMaps := b[key].(map[string]any)
		switch {
		case isMap && bothMaps:
			paths = append(paths, changedPaths(at+".", left, right)...)
		case !reflect.DeepEqual(a[key], b[key]):
			paths = append(paths, at)
		}
	}
	return paths
}

// History writes changes, a line each, and below it from what to what it changed, if that is wanted.
func History(w io.Writer, a *history.Answer, details bool, screen Screen) error {
	t := &text{screen: screen}
	name, source, widest := 0, 0, len("updated*")
	for _, e := range a.Entries {
		widest = max(widest, len(e.Event))
		name, source = max(name, len(subject(e))), max(source, len(e.Source))
	}
	for _, e := range a.Entries {
		event := e.Event
		if e.Unwatched {
			event += "*"
		}
		t.line("%s  %-*s  %-*s  %-*s  %s", e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), widest, event, name, subject(e), source, e.Source,
			oneLine(e.Place+e.Text))
		if !details || e.Kind == "" {
			continue
		}
		var changed strings.Builder
		switch {
		case e.Unknown:
			changed.WriteString("what it was before is not known: it changed while no server was running\n")
		case e.Event == history.Moved && e.Old != nil:
			fmt.Fprintf(&changed, "it came from %s\n", oneLine(e.Old.Source+" "+e.Old.Place))
		default:
			before, after := &Side{Name: "before"}, &Side{Name: "after"}
			if e.Old != nil {
				before.Add(e.Old.Resource())
			}
			if e.New != nil {
				after.Add(e.New.Resource())
			}
			if _, err := WriteDifferences(&changed, before, after); err != nil {
				return err
			}
		}
		for line := range strings.Lines(changed.String()) {
			t.line("    %s", strings.TrimRight(line, "\n"))
		}
	}
	return t.writeTo(w)
}

func subject(e *history.Entry) string {
	if e.Kind == "" {
		return "-"
	}
	return e.Key().String()
}

// HistoryNote says what is not shown, since the history does not have it or too much of it.
func HistoryNote(w io.Writer, a *history.Answer, since time.Time) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) } // whom to tell if it fails?
	if a.Waiting {
		say(history.NotBegun)
	} else if len(a.Entries) == 0 {
		say("no changes")
	}
	if a.Earlier > 0 {
		say("%s not shown (--limit)", words.Count(a.Earlier, "earlier change is", "earlier changes are"))
	}
	if a.From.After(since) && (len(a.Entries) == 0 || !since.IsZero()) {
		say("the history is whole since %s", a.From.UTC().Format(time.RFC3339))
	}
}
