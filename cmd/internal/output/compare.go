package output

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"tributary/resource"
)

// Side is one of the two compared sets of objects.
type Side struct {
	Name string // an address or a path, for messages
	// Undated allows objects without a creation time: those equal objects of the other side with any time.
	Undated bool

	objects      map[resource.Key]*resource.Resource
	rejected     map[resource.Key]string // reasons by key
	unidentified int                     // number of rejected objects without a name
	ordered      bool                    // its objects have the rank of their source
}

// Reject records an object that would not be served, with the reason. A key without a name may be any object.
func (s *Side) Reject(key resource.Key, reason string) {
	if key.Name == "" {
		s.unidentified++
		return
	}
	if s.rejected == nil {
		s.rejected = make(map[resource.Key]string)
	}
	if _, recorded := s.rejected[key]; !recorded {
		s.rejected[key] = strings.ReplaceAll(reason, "\n", "; ")
	}
}

// Add adds an object, which may be nil, unless the side has its key already: as in a source, the first one wins.
func (s *Side) Add(object *resource.Resource) {
	if s.objects == nil {
		s.objects = make(map[resource.Key]*resource.Resource)
	}
	if object != nil && s.objects[object.Key()] == nil {
		s.objects[object.Key()] = object
		s.ordered = s.ordered || object.Rank() > 0
	}
}

// Differences counts objects.
type Differences struct {
	OnlyInFirst, OnlyInSecond, Changed int
	// Quarantined counts objects that one side would not serve, so that the other side's object stays.
	Quarantined int
	// Unsure counts objects of only one side that may equal an unidentified object of the other side, and would stay then.
	Unsure int
}

// Total returns the number of objects that differ.
func (d Differences) Total() int {
	return d.OnlyInFirst + d.OnlyInSecond + d.Changed + d.Quarantined + d.Unsure
}

// WriteDifferences writes a unified diff in YAML for each object that differs, in key order. Creation times count,
// since clients break ties by them. For objects without one, the order of their sources counts if both sides have it.
func WriteDifferences(writer io.Writer, first, second *Side) (differences Differences, err error) {
	var keys []resource.Key
	for _, side := range []*Side{first, second} {
		keys = slices.AppendSeq(slices.AppendSeq(keys, maps.Keys(side.objects)), maps.Keys(side.rejected))
	}
	slices.SortFunc(keys, resource.Key.Compare)
	for _, key := range slices.Compact(keys) {
		before, after := first.objects[key], second.objects[key]
		note := quarantineNote(first, second, key)
		switch {
		case note != "":
			differences.Quarantined++
		case before != nil && after != nil && equalServed(first, second, key):
			continue
		case after == nil && second.unidentified > 0:
			differences.Unsure++
			note = first.unsureNote(second)
		case before == nil && first.unidentified > 0:
			differences.Unsure++
			note = second.unsureNote(first)
		case after == nil:
			differences.OnlyInFirst++
		case before == nil:
			differences.OnlyInSecond++
		default:
			differences.Changed++
			if timeless(first, second, key) {
				before, after = before.WithCreated(time.Time{}), after.WithCreated(time.Time{})
			}
		}
		if note != "" {
			_, err = fmt.Fprintf(writer, "# %s: %s\n", key, note)
		} else {
			err = writeDifference(writer, first.label(key), second.label(key), before, after)
		}
		if err != nil {
			return differences, err
		}
	}
	return differences, nil
}

// unsureNote returns the effect of an object that only s has, while the other side has unidentified objects.
func (s *Side) unsureNote(second *Side) string {
	return fmt.Sprintf("only in %s; it may be an unreadable object of %s, and stays until that can be read", s.Name,
		second.Name)
}

func equalServed(first, second *Side, key resource.Key) bool {
	firstObject, secondObject := first.objects[key], second.objects[key]
	return equalContent(firstObject, secondObject) && (timeless(first, second, key) ||
		firstObject.Own().Truncate(time.Second).Equal(secondObject.Own().Truncate(time.Second)) &&
			(!first.ordered || !second.ordered || firstObject.Rank() == secondObject.Rank()))
}

func equalContent(first, second *resource.Resource) bool {
	return resource.Equal(first.WithCreated(time.Time{}), second.WithCreated(time.Time{}))
}

// timeless reports whether a side has no creation time for the object and needs none.
func timeless(first, second *Side, key resource.Key) bool {
	return first.Undated && first.objects[key].Own().IsZero() || second.Undated && second.objects[key].Own().IsZero()
}

// quarantineNote returns the effect of an object that one side rejects, or an empty text.
func quarantineNote(first, second *Side, key resource.Key) string {
	for _, pair := range []struct{ holder, second *Side }{{first, second}, {second, first}} {
		reason, rejected := pair.holder.rejected[key]
		if !rejected || pair.holder.objects[key] != nil { // another object of the key is served
			continue
		}
		if pair.second.objects[key] != nil {
			return fmt.Sprintf("quarantined, the object of %s stays: %s", pair.second.Name, reason)
		}
		return "quarantined, and not served: " + reason
	}
	return ""
}

// label returns the place of an object, or the name of the side.
func (s *Side) label(key resource.Key) string {
	object := s.objects[key]
	if object == nil {
		return "/dev/null" // the convention of unified diffs
	}
	return cmp.Or(object.Origin().Place, s.Name) + " " + key.String()
}

func writeDifference(writer io.Writer, firstLabel, secondLabel string, first, second *resource.Resource) error {
	before, err := yamlText(first)
	if err != nil {
		return err
	}
	after, err := yamlText(second)
	if err != nil {
		return err
	}
	unified := udiff.Unified(firstLabel, secondLabel, before, after)
	if unified == "" {
		explanation := "the objects differ in fields of the spec that this version does not know"
		if equalContent(first, second) {
			explanation = fmt.Sprintf("their sources are in another order: where objects compete, this one has rank %d, and "+
				"rank %d; the lowest wins", first.Rank(), second.Rank())
		}
		unified = fmt.Sprintf("--- %s\n+++ %s\n%s\n", firstLabel, secondLabel, explanation)
	}
	_, err = io.WriteString(writer, unified)
	return err
}

func yamlText(object *resource.Resource) (string, error) {
	if object == nil {
		return "", nil
	}
	document, err := resource.MarshalYAML(object)
	return string(document), err
}

// ChangedFields returns the paths of the fields that differ between two versions of an object, in order. A list counts
// as one field.
func ChangedFields(before, after *resource.Resource) ([]string, error) {
	beforeFields, err := fieldTree(before)
	if err != nil {
		return nil, err
	}
	afterFields, err := fieldTree(after)
	if err != nil {
		return nil, err
	}
	return changedPaths("", beforeFields, afterFields), nil
}

func fieldTree(object *resource.Resource) (tree map[string]any, err error) {
	text, err := resource.MarshalJSON(object)
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	return tree, err
}

func changedPaths(path string, before, after map[string]any) (paths []string) {
	keys := make(map[string]any)
	maps.Copy(keys, before)
	maps.Copy(keys, after)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		field := path + key
		beforeTree, beforeNested := before[key].(map[string]any)
		afterTree, afterNested := after[key].(map[string]any)
		switch {
		case beforeNested && afterNested:
			paths = append(paths, changedPaths(field+".", beforeTree, afterTree)...)
		case !reflect.DeepEqual(before[key], after[key]):
			paths = append(paths, field)
		}
	}
	return paths
}
