package admin

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"time"

	"tributary/aggregate"
	"tributary/aggregate/conflicts"
	"tributary/internal/history"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/transport"
	"tributary/sources"
	"tributary/sources/guard"
)

// Status is the answer of /debug/status. Its lists of problems have the first few.
type Status struct {
	Version string        `json:"version"`
	Started time.Time     `json:"started"`
	Uptime  string        `json:"uptime"`
	Missing []string      `json:"missing,omitempty"` // obstacles to serving; empty if the server is ready
	Config  ConfigStatus  `json:"config"`
	Sources []SourceState `json:"sources"` // in order of precedence

	Content     string                `json:"content"` // a hash of the served objects: equal for equal objects
	Objects     int                   `json:"objects"` // served
	Kinds       map[resource.Kind]int `json:"kinds"`
	Conflicts   ConflictCounts        `json:"conflicts"`
	Quarantined int                   `json:"quarantined"`
	Invalid     []Quarantined         `json:"invalid,omitempty"`
	Unsure      int                   `json:"unsure,omitempty"`   // objects served only because something is unreadable
	Unread      int                   `json:"unread,omitempty"`   // objects of unreadable files or keys, served as before
	Warnings    int                   `json:"warnings,omitempty"` // of validation
	LeftOut     int                   `json:"leftOut,omitempty"`  // instances of sources that are not served
	// WithoutEffect counts objects with parts that have no effect on the connected Envoys and gRPC clients.
	WithoutEffect int `json:"without_effect,omitempty"`
	// Unenforced counts security objects that Envoys and gRPC clients do not enforce.
	Unenforced  int           `json:"unenforced,omitempty"`
	NotEnforced []NotEnforced `json:"not_enforced,omitempty"`
	// Unresolved are references without an object, Unchecked those that cannot be checked, and Refused the objects that
	// limits.productBytes keeps from Envoys and gRPC clients.
	Unresolved      []ObjectProblem `json:"unresolved,omitempty"`
	UnresolvedCount int             `json:"unresolved_count,omitempty"`
	Unchecked       []string        `json:"unchecked,omitempty"`
	UncheckedCount  int             `json:"unchecked_count,omitempty"`
	Refused         []ObjectProblem `json:"refused,omitempty"`
	RefusedCount    int             `json:"refused_count,omitempty"`
	Rejected        []Rejected      `json:"rejected,omitempty"` // by clients
	RejectedMore    int             `json:"rejected_more,omitempty"`
	Holds           int             `json:"holds"` // sources with a loss on hold

	Certificates []transport.Status `json:"certificates,omitempty"` // of the listeners

	History *history.Health `json:"history,omitempty"` // nil without defects

	Clients []ClientState `json:"clients"` // in order of arrival
}

// maxListed limits the lists of problems.
const maxListed = 3

// SourceState is a source without its lists.
type SourceState struct {
	Name        string    `json:"name"`
	Address     string    `json:"address,omitempty"`
	State       string    `json:"state"`
	Message     string    `json:"message,omitempty"`
	Since       time.Time `json:"since"`
	Synced      bool      `json:"synced"`
	Stale       bool      `json:"stale,omitempty"` // the served objects were read before, or by an earlier run
	Precedence  int       `json:"precedence"`
	Objects     int       `json:"objects"`
	Quarantined int       `json:"quarantined"`
	Unsure      int       `json:"unsure,omitempty"` // objects that are served only because something cannot be read
	Unread      int       `json:"unread,omitempty"` // objects in unreadable inputs
	Warnings    int       `json:"warnings,omitempty"`
	// instances that are not served: not to be called, or not to be reached
	LeftOut int `json:"leftOut,omitempty"`
	Foreign int `json:"foreign,omitempty"` // objects of other APIs, which were passed over
	// Duplicates are the first few of the keys that it has several times, of which it serves one each.
	Duplicates []sources.Duplicate `json:"duplicates,omitempty"`
	Hold       *Hold               `json:"hold,omitempty"`
	// Restored is the state of an earlier run; NotKept is why the present state is not stored for the next.
	Restored *sources.Restored `json:"restored,omitempty"`
	NotKept  string            `json:"notKept,omitempty"`
	// Unconfirmed are objects that the source serves without confirmation, at most until UnconfirmedUntil.
	Unconfirmed      int        `json:"unconfirmed,omitempty"`
	UnconfirmedUntil *time.Time `json:"unconfirmedUntil,omitempty"`

	LastPublish *time.Time `json:"lastPublish,omitempty"`
	Restarts    int        `json:"restarts"`
	LastError   string     `json:"lastError,omitempty"`
}

// NotEnforced is a security object that clients do not enforce, with the effect and one of these clients.
type NotEnforced struct {
	conflicts.Ref
	Why string `json:"why,omitempty"`
}

// Hold is a loss that is held back.
type Hold = guard.Summary

// ConflictCounts are the numbers of the kinds of conflict.
type ConflictCounts struct {
	Shadowed   int `json:"shadowed"`   // keys that several sources have
	Duplicates int `json:"duplicates"` // keys that one source has several times
	Competing  int `json:"competing"`  // hosts and workloads claimed by several objects
}

// Status returns the state of the server.
func (s *Server) Status() Status {
	snapshot, sourceList := s.opts.View.Snapshot(), s.opts.Sources.Status()
	status := Status{
		Version: s.opts.Version, Started: s.started, Uptime: time.Since(s.started).Round(time.Second).String(),
		Missing: s.missing(), Config: s.opts.Config.Status(), Sources: s.sourceStates(sourceList),
		Content: s.content(snapshot), Objects: snapshot.Len(), Kinds: map[resource.Kind]int{}, Clients: s.clientStates(),
		History: s.historyHealth(),
	}
	status.Rejected, status.RejectedMore = s.rejected()
	if s.opts.Certificates != nil {
		status.Certificates = s.opts.Certificates()
	}
	for _, kind := range snapshot.Kinds() {
		status.Kinds[kind] = snapshot.LenKind(kind)
	}
	for _, source := range status.Sources {
		status.Quarantined += source.Quarantined
		status.Unsure += source.Unsure
		status.Unread += source.Unread
		status.Warnings += source.Warnings
		status.LeftOut += source.LeftOut
		if source.Hold != nil {
			status.Holds++
		}
	}
	status.Conflicts.Shadowed, status.Conflicts.Competing = shadowed(s.opts.View), competing(s.opts.View)
	for _, source := range sourceList {
		status.Conflicts.Duplicates += len(source.Duplicates)
	}
	if status.Quarantined > 0 {
		status.Invalid = firstOf(s.Quarantined())
	}
	s.fillProblems(&status)
	if s.opts.Unenforced != nil {
		keys := s.opts.Unenforced()
		status.Unenforced = len(keys)
		for _, key := range firstOf(keys) {
			entry := NotEnforced{Ref: conflicts.Ref(key)}
			if s.opts.WhyUnenforced != nil {
				entry.Why = s.opts.WhyUnenforced(key)
			}
			status.NotEnforced = append(status.NotEnforced, entry)
		}
	}
	return status
}

// firstOf returns the first maxListed elements.
func firstOf[T any](list []T) []T { return list[:min(len(list), maxListed)] }

// content returns a hash of the objects of a snapshot in any order.
func (s *Server) content(snapshot memstore.Snapshot) string {
	s.hashed.Lock()
	defer s.hashed.Unlock()
	if s.hashed.text == "" || s.hashed.revision != snapshot.Revision() {
		var sum uint64
		hash := fnv.New64a()
		for object := range snapshot.All() {
			hash.Reset()
			key := object.Key()
			for _, part := range [...]string{string(key.Kind), key.Namespace, key.Name, object.Version()} {
				_, _ = io.WriteString(hash, part+"/") // no part has a slash; a hash returns no errors
			}
			sum += hash.Sum64()
		}
		s.hashed.revision, s.hashed.text = snapshot.Revision(), fmt.Sprintf("%016x", sum)
	}
	return s.hashed.text
}

// sourceStates returns the sources in the order of the view, and then those that the view does not have yet.
func (s *Server) sourceStates(list []sources.Status) []SourceState {
	order := s.opts.View.Sources()
	position := func(name string) int {
		i := slices.IndexFunc(order, func(source aggregate.SourceStatus) bool { return source.Name == name })
		if i < 0 {
			return len(order)
		}
		return i
	}
	states := []SourceState{}
	for _, source := range list {
		state := SourceState{
			Name: source.Name, Address: source.Address, State: source.State.String(), Message: source.Message,
			Since: source.Since, Synced: source.Synced, Stale: source.Stale, Quarantined: len(source.Quarantined),
			LastPublish: source.LastPublish, Restarts: source.Restarts, LastError: source.LastError,
			Restored: source.Restored, Foreign: source.Foreign, Unsure: source.Unsure, Unread: source.Unread,
			Warnings: len(source.Warnings), LeftOut: source.LeftOutCount, Unconfirmed: source.Unconfirmed,
			UnconfirmedUntil: source.UnconfirmedUntil, Duplicates: firstOf(source.Duplicates),
		}
		if source.Held != nil {
			state.Hold = &source.Held.Summary
		}
		if source.Stored != nil {
			state.NotKept = source.Stored.Error
		}
		if i := position(source.Name); i < len(order) {
			state.Precedence = order[i].Precedence
		}
		for _, count := range source.Objects {
			state.Objects += count
		}
		states = append(states, state)
	}
	slices.SortStableFunc(states, func(a, b SourceState) int { return position(a.Name) - position(b.Name) })
	return states
}
