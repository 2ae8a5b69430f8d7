package sources

import (
	"fmt"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources/guard"
	"tributary/sources/lastgood"
)

// Status is the state of a source at one moment. It is a copy, and may be encoded as JSON.
type Status struct {
	Name    string    `json:"name"`
	Address string    `json:"address,omitempty"`
	State   State     `json:"state"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"` // when the state last changed
	// Synced says that the source has been read once as a whole. It stays true when the source fails later.
	Synced bool `json:"synced"`
	// Stale says that served objects may be out of date: the source is unreadable, or was not read as a whole yet and
	// objects of an earlier run are served.
	Stale    bool      `json:"stale,omitempty"`
	Restored *Restored `json:"restored,omitempty"` // the state of an earlier run; nil without one

	// Unconfirmed counts the services, instances, keys or objects that the system no longer lists and that stay, until
	// UnconfirmedUntil at the latest.
	Unconfirmed      int        `json:"unconfirmed,omitempty"`
	UnconfirmedUntil *time.Time `json:"unconfirmedUntil,omitempty"`

	Restarts  int    `json:"restarts"` // restarts of Run after failures
	LastError string `json:"lastError,omitempty"`

	Publishes   int        `json:"publishes"` // publishes that changed the served objects
	LastPublish *time.Time `json:"lastPublish,omitempty"`

	Held   *guard.Status    `json:"held,omitempty"` // the loss that is held back, if there is one
	Stored *lastgood.Status `json:"kept,omitempty"` // the state on disk, if there is one

	Groups      int                   `json:"groups"`
	Objects     map[resource.Kind]int `json:"objects"`           // in force, by kind, without held ones
	Foreign     int                   `json:"foreign,omitempty"` // ignored objects of other APIs
	Unsure      int                   `json:"unsure,omitempty"`  // objects in force for unidentified rejects
	Unread      int                   `json:"unread,omitempty"`  // objects of unreadable groups, as they were read before
	Quarantined []Quarantined         `json:"quarantined,omitempty"`
	Duplicates  []Duplicate           `json:"conflicts,omitempty"`
	Warnings    []string              `json:"warnings,omitempty"`
	Unserved    []Unserved            `json:"-"`
	// LeftOut has the first of LeftOutCount instances that are not served.
	LeftOut      []LeftOut `json:"leftOut,omitempty"`
	LeftOutCount int       `json:"leftOutCount,omitempty"`

	quarantined, duplicates, warnings int // the lengths of the lists
	holds                             int // number of holds that began
}

// Quarantined is an invalid object or document of a source, which is not served. Ref is empty if the text names no
// object.
type Quarantined struct {
	resource.Ref

	Group          string    `json:"group"`
	Place          string    `json:"place"`
	Reason         string    `json:"reason"`
	Since          time.Time `json:"since"`
	LastGoodServes bool      `json:"lastGoodServes"` // an earlier, valid version is in its place
	// Keeps has the first objects ("Kind namespace/name") that no group has any longer, and that are served because this
	// may be a version of one; KeepsMore is the number of the others.
	Keeps     []string `json:"keeps,omitempty"`
	KeepsMore int      `json:"keepsMore,omitempty"`

	foreign bool // it is no version of an object of ours
	derives bool // see Reject

	mayRestrict bool // it may be an unknown object that restricts traffic
}

// id identifies a quarantined object, or a document by its place.
func (q Quarantined) id() resource.Ref {
	if q.Name == "" {
		return resource.Ref{Namespace: q.Namespace, Name: q.Place}
	}
	return q.Ref
}

// Serves describes the objects that are served instead.
func (q Quarantined) Serves() string {
	switch {
	case q.LastGoodServes:
		return "its last good version"
	case q.KeepsMore > 0:
		return fmt.Sprintf("the objects that it may be: %s and %d more", strings.Join(q.Keeps, ", "), q.KeepsMore)
	case len(q.Keeps) > 0:
		return "the objects that it may be: " + strings.Join(q.Keeps, ", ")
	}
	return "nothing"
}

// Excluded is an object of a source that its transforms exclude.
type Excluded struct {
	Source string       `json:"source"`
	Key    resource.Key `json:"-"` // the key at the source
	Place  string       `json:"place"`
}

// Duplicate is a key that a source has more than once.
type Duplicate struct {
	resource.Ref

	Winner string   `json:"winner"` // the place of the resource in force
	Losers []string `json:"losers"` // the places of the others
}
