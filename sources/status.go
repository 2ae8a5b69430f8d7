package sources

import (
	"fmt"
	"strings"
	"time"

	"tributary/resource"
	"tributary/sources/guard"
	"tributary/sources/lastgood"
)

// Status is what there is to know of a source at one moment. It is a copy, and may be encoded as JSON.
type Status struct {
	Name    string    `json:"name"`
	Address string    `json:"address,omitempty"`
	State   State     `json:"state"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"` // when the state last changed
	// Synced says that the source has been read once as a whole. It stays true when the source fails later.
	Synced bool `json:"synced"`
	// Stale says that what is served may be out of date: the source cannot be read any more, or has not been read as a
	// whole yet, and what an earlier run read is served.
	Stale    bool      `json:"stale,omitempty"`
	Restored *Restored `json:"restored,omitempty"` // what that was; nil if there was nothing

	// Unconfirmed counts the services, instances, keys or objects that the system no longer lists and that stay, until
	// UnconfirmedUntil at most.
	Unconfirmed      int        `json:"unconfirmed,omitempty"`
	UnconfirmedUntil *time.Time `json:"unconfirmedUntil,omitempty"`

	Restarts  int    `json:"restarts"` // of Run, after failures
	LastError string `json:"lastError,omitempty"`

	Publishes   int        `json:"publishes"` // that changed something
	LastPublish *time.Time `json:"lastPublish,omitempty"`

	Held *guard.Status    `json:"held,omitempty"` // the loss that is held back, if there is one
	Kept *lastgood.Status `json:"kept,omitempty"` // how the source is kept on disk, if it is

	Groups      int                   `json:"groups"`
	Objects     map[resource.Kind]int `json:"objects"`           // that the source has in force, by kind; what is held is not of them
	Foreign     int                   `json:"foreign,omitempty"` // objects of other APIs, which were passed over
	Unsure      int                   `json:"unsure,omitempty"`  // objects that are in force only because something cannot be read
	Unread      int                   `json:"unread,omitempty"`  // objects in what cannot be read at present, as they were read before
	Quarantined []Quarantined         `json:"quarantined,omitempty"`
	Conflicts   []Conflict            `json:"conflicts,omitempty"`
	Warnings    []string              `json:"warnings,omitempty"`
	Unattached  []Unattached          `json:"-"`
	// LeftOut is what could be called and is not published, the first of LeftOutCount.
	LeftOut      []LeftOut `json:"leftOut,omitempty"`
	LeftOutCount int       `json:"leftOutCount,omitempty"`
}

// Quarantined is something of a source that is not served because it is not valid. Ref is empty if
// it is too broken to tell.
type Quarantined struct {
	resource.Ref

	Group          string    `json:"group"`
	Place          string    `json:"place"`
	Reason         string    `json:"reason"`
	Since          time.Time `json:"since"`
	LastGoodServes bool      `json:"lastGoodServes"` // an earlier, valid version is in its place
	// Keeps are the first of the objects ("Kind namespace/name") that no group has any longer, and that are served because it
	// cannot be told whether this is one of them; KeepsMore is how many there are besides.
	Keeps     []string `json:"keeps,omitempty"`
	KeepsMore int      `json:"keepsMore,omitempty"`

	foreign bool // nothing of ours is meant
	derives bool // see Reject

	mayRestrict bool // it may be an object that restricts traffic, but it is not known which one
}

// id identifies what is quarantined: by its place, if that is all that is known.
func (q Quarantined) id() resource.Ref {
	if q.Name == "" {
		return resource.Ref{Namespace: q.Namespace, Name: q.Place}
	}
	return q.Ref
}

// Serves says what is served in the place of what is quarantined.
func (q Quarantined) Serves() string {
	switch {
	case q.LastGoodServes:
		return "its last good version"
	case q.KeepsMore > 0:
		return fmt.Sprintf("what it may be: %s and %d more", strings.Join(q.Keeps, ", "), q.KeepsMore)
	case len(q.Keeps) > 0:
		return "what it may be: " + strings.Join(q.Keeps, ", ")
	}
	return "nothing"
}

// Excluded is an object that a source has, and that its transforms leave out.
type Excluded struct {
	Source string       `json:"source"`
	Key    resource.Key `json:"-"` // at the source
	Place  string       `json:"place"`
}

// Conflict is a key that a source has more than once.
type Conflict struct {
	resource.Ref

	Winner string   `json:"winner"` // the place of the resource in force
	Losers []string `json:"losers"` // the places of the others
}
