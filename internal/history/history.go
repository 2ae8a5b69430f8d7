// Package history remembers on disk what was served: each change with its time, its source and place, and what the object
// was before and after. It follows the view as any client does, on a goroutine of its own: a commit neither waits for it nor
// knows of it, and a history that cannot keep up sees several commits as one change, which it counts.
//
// The directory has numbered segments, to which records are only ever appended, each with its length and a checksum; and the
// base, which has the version of each object that was served when a segment was begun. A process that is killed leaves at
// most a record that is not whole at the end, which is passed over: the next process begins a segment of its own. Base and records together
// tell what was served last, so that the next process notices also what changed while none was running.
package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"tributary/resource"
)

// The events of entries.
const (
	Added   = "added"
	Updated = "updated"
	Deleted = "deleted"
	Moved   = "moved" // the content is the same, and comes from another source or place
)

// Events of the program that are no change of an object; those of sources are in package sources.
const (
	Reloaded      = "reloaded"
	ReloadRefused = "reload-refused"
)

// Entry is one change of one object, or an event, which has no Kind and Name but Text. Without Details, Old and New are nil.
type Entry struct {
	resource.Ref

	At        time.Time `json:"at"` // when it was seen; with Unwatched, it was earlier
	Event     string    `json:"event"`
	Text      string    `json:"text,omitempty"`   // what happened, in words
	Source    string    `json:"source,omitempty"` // of what it is now, or of what was deleted
	Place     string    `json:"place,omitempty"`
	Unwatched bool      `json:"unwatched,omitempty"` // it changed while no process wrote the history
	Unknown   bool      `json:"unknown,omitempty"`   // what it was before is not known

	Old *Object `json:"old,omitempty"`
	New *Object `json:"new,omitempty"`
}

// Object is what an object was.
type Object struct {
	resource.Ref

	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Created     time.Time         `json:"created,omitzero"`
	Body        []byte            `json:"body,omitempty"` // the encoded spec
	Spec        json.RawMessage   `json:"spec,omitempty"` // the same for people, in place of Body; it is not on disk
	Source      string            `json:"source,omitempty"`
	Place       string            `json:"place,omitempty"`
	Version     string            `json:"version"`
}

// ObjectOf is r as the history keeps it; nil of nil.
func ObjectOf(r *resource.Resource) *Object {
	if r == nil {
		return nil
	}
	m := r.Meta()
	return &Object{
		Ref: resource.Ref(m.Key), Labels: m.Labels, Annotations: m.Annotations, Created: m.Created, Body: r.Body(),
		Source: m.Origin.Source, Place: m.Origin.Place, Version: r.Version(),
	}
}

// Resource is the object again; nil of nil.
func (o *Object) Resource() *resource.Resource {
	if o == nil {
		return nil
	}
	return resource.FromBody(resource.Meta{
		Key: o.Key(), Labels: maps.Clone(o.Labels), Annotations: maps.Clone(o.Annotations), Created: o.Created,
		Origin: resource.Origin{Source: o.Source, Place: o.Place},
	}, o.Body)
}

// Read puts the spec as JSON in the place of the encoded one, if it can be decoded. The object is no Resource any more then.
func (o *Object) Read() {
	if o == nil {
		return
	}
	text, err := resource.MarshalJSON(o.Resource())
	var read struct{ Spec json.RawMessage }
	if err == nil && json.Unmarshal(text, &read) == nil {
		o.Body, o.Spec = nil, read.Spec
	}
}

// entryOf is the change from before to now, one of which may be nil.
func entryOf(at time.Time, before, now *resource.Resource) *Entry {
	e := &Entry{At: at, Event: Updated, Old: ObjectOf(before), New: ObjectOf(now)}
	of := now
	switch {
	case before == nil:
		e.Event = Added
	case now == nil:
		e.Event, of = Deleted, before
	case resource.Equal(before, now):
		e.Event = Moved
	}
	e.about(of.Key(), of.Origin())
	return e
}

func (e *Entry) about(key resource.Key, from resource.Origin) {
	e.Ref, e.Source, e.Place = resource.Ref(key), from.Source, from.Place
}

// NotBegun says that a history has no objects yet.
const NotBegun = "the history of objects begins when all sources were read"

// EarlierError says that the history does not know a time: it is complete only since From, or changes cannot be written since Gap. With
// neither, it has not begun.
type EarlierError struct{ Asked, From, Gap time.Time }

func (e *EarlierError) Error() string {
	switch {
	case !e.Gap.IsZero():
		return fmt.Sprintf("the history has a gap at %s: changes cannot be written to it since %s (free space in its directory, see status)",
			e.Asked.UTC().Format(time.RFC3339), e.Gap.UTC().Format(time.RFC3339))
	case e.From.IsZero():
		return NotBegun
	}
	return fmt.Sprintf("the history does not reach back to %s: it is whole since %s", e.Asked.UTC().Format(time.RFC3339),
		e.From.UTC().Format(time.RFC3339))
}
