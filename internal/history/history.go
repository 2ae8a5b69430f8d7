// Package history records the changes of served objects on disk, with their time, source and place, and with the
// object before and after. It reads the view like a client does: a commit never waits for it. A history that cannot
// keep up records several commits as one change.
//
// The directory has numbered segments, files to which records are appended. A base is a record with the versions of all
// objects that were served at its time. A base and the records after it give the objects that a process served last, so
// that the next process can record the differences. If records are missing, it writes a new base instead, and the
// history is complete from that base on.
package history

import (
	"encoding/json"
	"maps"
	"time"

	"tributary/resource"
)

// The events of entries.
const (
	Added   = "added"
	Updated = "updated"
	Deleted = "deleted"
	Moved   = "moved" // equal content from another source or place
)

// Events of the program. Package sources has those of sources.
const (
	Reloaded      = "reloaded"
	ReloadRefused = "reload-refused"
)

// Entry is a change of an object, or an event, which has a Text and no Kind and Name. On disk, an entry without an
// Event is a base, and Unknown says that the base follows a gap.
type Entry struct {
	resource.Ref

	Time      time.Time `json:"at"` // of the observation; an Unwatched change is older
	Event     string    `json:"event"`
	Text      string    `json:"text,omitempty"`
	Source    string    `json:"source,omitempty"` // of the new object, or of the deleted one
	Place     string    `json:"place,omitempty"`
	Unwatched bool      `json:"unwatched,omitempty"` // the object changed while no process ran
	Unknown   bool      `json:"unknown,omitempty"`   // the object before the change is not recorded

	// Old and New are nil without Query.Details.
	Old *Object `json:"old,omitempty"`
	New *Object `json:"new,omitempty"`

	packed []byte // the objects of a record, compressed
	gap    bool   // records before it are missing
}

// Object is an object at some time.
type Object struct {
	resource.Ref

	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Created     time.Time         `json:"created,omitzero"`
	Body        []byte            `json:"body,omitempty"` // the encoded spec
	Spec        json.RawMessage   `json:"spec,omitempty"` // the spec after DecodeSpec; never on disk
	Source      string            `json:"source,omitempty"`
	Place       string            `json:"place,omitempty"`
	Version     string            `json:"version"`

	versionOnly bool // the content is not recorded
}

// NewObject returns the object of a resource, or nil.
func NewObject(object *resource.Resource) *Object {
	if object == nil {
		return nil
	}
	meta := object.Meta()
	return &Object{
		Ref: resource.Ref(meta.Key), Labels: meta.Labels, Annotations: meta.Annotations, Created: meta.Created,
		Body: object.Body(), Source: meta.Origin.Source, Place: meta.Origin.Place, Version: object.Version(),
	}
}

// Resource returns the resource of an object, or nil for nil.
func (o *Object) Resource() *resource.Resource {
	if o == nil {
		return nil
	}
	return resource.FromBody(resource.Meta{
		Key: o.Key(), Labels: maps.Clone(o.Labels), Annotations: maps.Clone(o.Annotations), Created: o.Created,
		Origin: resource.Origin{Source: o.Source, Place: o.Place},
	}, o.Body)
}

// DecodeSpec replaces Body by Spec if the body can be decoded. Resource does not work afterwards.
func (o *Object) DecodeSpec() {
	if o == nil {
		return
	}
	text, err := resource.MarshalJSON(o.Resource())
	var decoded struct{ Spec json.RawMessage }
	if err == nil && json.Unmarshal(text, &decoded) == nil {
		o.Body, o.Spec = nil, decoded.Spec
	}
}

// newEntry returns the change between two states of an object. One may be nil.
func newEntry(now time.Time, before, after *Object) *Entry {
	entry := &Entry{Time: now, Event: Updated, Old: before, New: after}
	subject := after
	switch {
	case before == nil:
		entry.Event = Added
	case after == nil:
		entry.Event, subject = Deleted, before
	case before.Version == after.Version:
		entry.Event = Moved
	}
	entry.Ref, entry.Source, entry.Place = subject.Ref, subject.Source, subject.Place
	if before != nil && before.versionOnly {
		entry.Old, entry.Unknown = nil, true
	}
	return entry
}

// NotBegun is the message for a history without objects.
const NotBegun = "the history of objects begins when all sources were read"

// EarlierError reports a time without recorded objects.
type EarlierError struct{ reason string }

func (e *EarlierError) Error() string { return e.reason }
