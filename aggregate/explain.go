package aggregate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"

	"tributary/aggregate/conflicts"
	"tributary/internal/words"
	"tributary/memstore"
	"tributary/resource"
)

// Explanation explains a key's object.
type Explanation struct {
	Object    conflicts.Ref        `json:"object"`
	Winner    *Statement           `json:"winner,omitempty"`   // nil if no source has the key
	Shadowed  []Statement          `json:"shadowed,omitempty"` // in order of precedence
	Conflicts []conflicts.Conflict `json:"conflicts,omitempty"`
	Merged    *Merged              `json:"merged,omitempty"` // the winner's parts, if its endpoints are merged
	Why       string               `json:"why"`              // the outcome as a sentence
}

// HostExplanation explains the objects of a host.
type HostExplanation struct {
	Host    string        `json:"host"`
	Objects []Explanation `json:"objects"` // those that name the host, or a wildcard that it matches, in key order
	Why     string        `json:"why"`
}

// Statement describes one source's object of a key.
type Statement struct {
	Source     string     `json:"source"`
	Precedence int        `json:"precedence"`
	Place      string     `json:"place,omitempty"`      // the place of its definition
	Transforms string     `json:"transforms,omitempty"` // the source's transforms that changed it
	Before     *Before    `json:"before,omitempty"`     // the object in the source, if transforms changed it
	Version    string     `json:"version"`
	Created    *time.Time `json:"created,omitempty"` // the creation time that the source states
	FirstSeen  *time.Time `json:"firstSeen,omitempty"`
	// Retired: the source was removed, and is served until all new sources are synced.
	Retired bool `json:"retiring,omitempty"`

	fromPool bool // it is merged from several sources
}

// Before is an object before the transforms of its source.
type Before struct {
	Object json.RawMessage `json:"object"`
	Diff   string          `json:"diff"` // a unified diff of the transforms, in YAML
}

// beforeOf describes the object before the transforms. It returns nil if they made no change.
func beforeOf(current *resource.Resource) *Before {
	original := current.Original()
	if original == nil {
		return nil
	}
	object, err := resource.MarshalJSON(original)
	if err != nil {
		return nil
	}
	originalText, err := resource.MarshalYAML(original)
	if err != nil {
		return nil
	}
	now, err := resource.MarshalYAML(current.Unranked())
	if err != nil {
		return nil
	}
	return &Before{object, udiff.Unified("in the source", "after its transforms", string(originalText), string(now))}
}

// Explain returns the source that wins key, the sources that lose it, and the conflicts of its object.
func (v *View) Explain(key resource.Key) Explanation {
	v.indexMu.Lock()
	v.index.Follow(v)
	competing := v.index.ConflictsOf(key)
	v.indexMu.Unlock()
	return v.explain(v.published.Load(), key, competing)
}

// ExplainHost explains every resource that names host, shadowed ones included.
func (v *View) ExplainHost(host string) HostExplanation {
	host = strings.ToLower(host)
	hostExplanation := HostExplanation{Host: host, Objects: []Explanation{}}
	state := v.published.Load()
	shadowed := state.shadowedOn(host)

	v.indexMu.Lock()
	v.index.Follow(v)
	keys := append(v.index.On(host), shadowed...)
	slices.SortFunc(keys, resource.Key.Compare)
	keys = slices.Compact(keys)
	competing := make([][]conflicts.Conflict, len(keys))
	for i, key := range keys {
		competing[i] = v.index.ConflictsOf(key)
	}
	v.indexMu.Unlock()

	for i, key := range keys {
		hostExplanation.Objects = append(hostExplanation.Objects, v.explain(state, key, competing[i]))
	}
	switch {
	case len(keys) > 0:
		hostExplanation.Why = fmt.Sprintf("%s %s", words.Count(len(keys), "object references", "objects reference"), host)
	case !v.Synced():
		hostExplanation.Why = fmt.Sprintf("no object references %s, but not every source is read yet", host)
	default:
		hostExplanation.Why = fmt.Sprintf("no object references %s", host)
	}
	return hostExplanation
}

// shadowedOn returns the keys of shadowed objects that name host.
func (s *state) shadowedOn(host string) (keys []resource.Key) {
	names := conflicts.NamesOf(host)
	for object := range s.shadowed.All() {
		for _, loser := range s.candidates(object.Key())[1:] {
			if slices.ContainsFunc(conflicts.HostsOf(loser.Resource), func(h string) bool { return slices.Contains(names, h) }) {
				keys = append(keys, object.Key())
				break
			}
		}
	}
	return keys
}

// Competing returns all conflicts between resources of different keys, in order of rule and subject. It costs
// O(changes since the last call + conflicts).
func (v *View) Competing() []conflicts.Conflict {
	v.indexMu.Lock()
	defer v.indexMu.Unlock()
	v.index.Follow(v)
	list := append(v.index.Conflicts(), v.pool.conflicts()...)
	slices.SortFunc(list, conflicts.Compare)
	return list
}

func (v *View) explain(s *state, key resource.Key, competing []conflicts.Conflict) Explanation {
	e := s.explain(key, competing)
	v.pool.explain(&e)
	return e
}

func (s *state) explain(key resource.Key, competing []conflicts.Conflict) Explanation {
	explanation := Explanation{Object: conflicts.Ref(key), Conflicts: competing}
	for layer, object := range layersWith(s.layers, key) {
		if explanation.Winner == nil {
			explanation.Winner = new(layer.describe(ranked(object, layer.rank)))
		} else {
			explanation.Shadowed = append(explanation.Shadowed, layer.describe(object))
		}
	}
	explanation.Why = why(explanation, s)
	return explanation
}

// why returns the outcome as a sentence.
func why(explanation Explanation, s *state) string {
	if explanation.Winner == nil {
		var unread []string
		for _, source := range s.sources {
			if !source.Synced && !source.Retired {
				unread = append(unread, source.Name)
			}
		}
		if len(unread) > 0 {
			return "no source has it; not read yet: " + strings.Join(unread, ", ")
		}
		return "no source has it"
	}
	var text strings.Builder
	switch first := explanation.Winner; {
	case first.Retired:
		fmt.Fprintf(&text, "%s was removed from the configuration; its last content is served until the new sources are read",
			first.Source)
	case len(explanation.Shadowed) == 0 && first.fromPool:
		text.WriteString("no other source has it")
	case len(explanation.Shadowed) == 0:
		fmt.Fprintf(&text, "only %s has it", first.Source)
	case first.Precedence != explanation.Shadowed[0].Precedence:
		fmt.Fprintf(&text, "%s has the higher precedence (%d; %s has %d)", first.Source, first.Precedence,
			explanation.Shadowed[0].Source,
			explanation.Shadowed[0].Precedence)
	default:
		fmt.Fprintf(&text, "%s comes before %s in the order of sources", first.Source, explanation.Shadowed[0].Source)
	}
	if len(explanation.Conflicts) > 0 {
		text.WriteString("; objects of other names compete with it: see conflicts")
	}
	return text.String()
}

// Candidate is one source's object of a key.
type Candidate struct {
	Source   string // for a merged object several names, separated by ", "
	Resource *resource.Resource
}

// Shadow is a key that more than one source has.
type Shadow struct {
	Key    resource.Key
	Winner Candidate
	Losers []Candidate // in order of precedence
}

// Shadows yields every key that more than one source has, in key order, all as of one moment.
func (v *View) Shadows() iter.Seq[Shadow] {
	state := v.published.Load()
	return func(yield func(Shadow) bool) {
		for r := range state.shadowed.All() {
			candidates := state.candidates(r.Key())
			if !yield(Shadow{Key: r.Key(), Winner: candidates[0], Losers: candidates[1:]}) {
				return
			}
		}
	}
}

// SourceStatus describes a source of the view.
type SourceStatus struct {
	Name       string `json:"name"`
	Precedence int    `json:"precedence"`
	Optional   bool   `json:"optional,omitempty"`
	Synced     bool   `json:"synced"`
	// Retired: the source was removed, and is served until all new sources are synced.
	Retired  bool              `json:"retiring,omitempty"`
	Revision memstore.Revision `json:"revision"` // the merged revision of the source's store
	Objects  int               `json:"objects"`
}

// Sources returns the sources in order of precedence.
func (v *View) Sources() []SourceStatus { return slices.Clone(v.published.Load().sources) }

// status returns the present status of the sources. It is called by the loop.
func (v *View) status() (statuses []SourceStatus) {
	for _, source := range v.withRetired() {
		statuses = append(statuses, SourceStatus{
			Name: source.Name, Precedence: source.Precedence, Optional: source.Optional,
			Synced: source.synced, Retired: source.retired,
			Revision: source.snapshot.Revision(), Objects: source.snapshot.Len(),
		})
	}
	return statuses
}

// candidates returns the layers' objects of key, the winner first.
func (s *state) candidates(key resource.Key) (candidates []Candidate) {
	for l, r := range layersWith(s.layers, key) {
		candidates = append(candidates, Candidate{Source: cmp.Or(l.source, r.Origin().Source), Resource: r})
	}
	return candidates
}
