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

// Status is the answer of /debug/status. Of each kind of problem, it has the number and the first maxListed ones.
type Status struct {
	Version   string        `json:"version"`
	Started   time.Time     `json:"started"`
	Uptime    string        `json:"uptime"`
	Obstacles []string      `json:"missing,omitempty"` // obstacles to serving; empty if the server is ready
	Config    ConfigStatus  `json:"config"`
	Sources   []SourceState `json:"sources"` // in order of precedence

	Content     string                `json:"content"` // a hash of the served objects: equal for equal objects
	Objects     int                   `json:"objects"` // served objects
	Kinds       map[resource.Kind]int `json:"kinds"`
	Conflicts   ConflictCounts        `json:"conflicts"`
	Quarantined int                   `json:"quarantined"`
	Invalid     []Quarantined         `json:"invalid,omitempty"`
	Unsure      int                   `json:"unsure,omitempty"`   // objects that only an unreadable document may have
	Unread      int                   `json:"unread,omitempty"`   // objects of unreadable files or keys
	Warnings    int                   `json:"warnings,omitempty"` // warnings of validation
	LeftOut     int                   `json:"leftOut,omitempty"`  // instances that sources do not serve
	// WithoutEffect counts the objects with parts that the connected Envoys and gRPC clients ignore.
	WithoutEffect int `json:"without_effect,omitempty"`
	// Unenforced are security objects that Envoys and gRPC clients do not enforce.
	UnenforcedCount int                `json:"unenforced,omitempty"`
	Unenforced      []UnenforcedObject `json:"not_enforced,omitempty"`
	// Unresolved, Unchecked and Refused are those of ObjectProblems.
	Unresolved       []ObjectProblem `json:"unresolved,omitempty"`
	UnresolvedCount  int             `json:"unresolved_count,omitempty"`
	Unchecked        []string        `json:"unchecked,omitempty"`
	UncheckedCount   int             `json:"unchecked_count,omitempty"`
	Refused          []ObjectProblem `json:"refused,omitempty"`
	RefusedCount     int             `json:"refused_count,omitempty"`
	Rejected         []Rejected      `json:"rejected,omitempty"` // resources that clients reject
	RejectedUnlisted int             `json:"rejected_more,omitempty"`
	Holds            int             `json:"holds"` // sources with a held loss

	Certificates []transport.Status `json:"certificates,omitempty"` // certificates of the listeners

	History *history.Health `json:"history,omitempty"` // nil without defects

	Clients []ClientState `json:"clients"` // in order of arrival
}

// maxListed limits the problems of one kind in a status.
const maxListed = 3

// SourceState is the state of a source, with counts in place of its lists.
type SourceState struct {
	Name        string    `json:"name"`
	Address     string    `json:"address,omitempty"`
	State       string    `json:"state"`
	Message     string    `json:"message,omitempty"`
	Since       time.Time `json:"since"`
	Synced      bool      `json:"synced"`
	Stale       bool      `json:"stale,omitempty"` // the served objects may be out of date
	Precedence  int       `json:"precedence"`
	Objects     int       `json:"objects"`
	Quarantined int       `json:"quarantined"`
	Unsure      int       `json:"unsure,omitempty"` // objects that only an unreadable document may have
	Unread      int       `json:"unread,omitempty"` // objects of unreadable files or keys
	Warnings    int       `json:"warnings,omitempty"`
	LeftOut     int       `json:"leftOut,omitempty"` // instances that the source does not serve
	Foreign     int       `json:"foreign,omitempty"` // objects of other APIs, which the source skips
	// Duplicates are the first keys that the source has more than once. It serves one object of each.
	Duplicates []sources.Duplicate `json:"duplicates,omitempty"`
	Hold       *Hold               `json:"hold,omitempty"`
	// Restored is the state of an earlier run that the source began with.
	Restored *sources.Restored `json:"restored,omitempty"`
	// NotKept is the reason why the present state is not stored for the next run.
	NotKept string `json:"notKept,omitempty"`
	// Unconfirmed counts the items that the source no longer lists and still serves, at most until UnconfirmedUntil.
	Unconfirmed      int        `json:"unconfirmed,omitempty"`
	UnconfirmedUntil *time.Time `json:"unconfirmedUntil,omitempty"`

	LastPublish *time.Time `json:"lastPublish,omitempty"`
	Restarts    int        `json:"restarts"`
	LastError   string     `json:"lastError,omitempty"`
}

// UnenforcedObject is a security object that clients do not enforce, with the effect and one of these clients.
type UnenforcedObject struct {
	conflicts.Ref
	Why string `json:"why,omitempty"`
}

// Hold is a held loss.
type Hold = guard.Summary

// ConflictCounts are the numbers of conflicts by kind.
type ConflictCounts struct {
	Shadowed   int `json:"shadowed"`   // keys that several sources have
	Duplicates int `json:"duplicates"` // keys that one source has several times
	Competing  int `json:"competing"`  // hosts and workloads claimed by several objects
}

// Status returns the state of the server.
func (s *Server) Status() Status {
	snapshot := s.opts.View.Snapshot()
	sourceList := s.opts.Sources.Status()
	status := Status{
		Version: s.opts.Version, Started: s.started, Uptime: time.Since(s.started).Round(time.Second).String(),
		Obstacles: s.obstacles(), Config: s.opts.Config.Status(), Sources: s.sourceStates(sourceList),
		Content: s.hashContent(snapshot), Objects: snapshot.Len(), Kinds: map[resource.Kind]int{}, Clients: s.clientStates(),
		History: s.historyHealth(),
	}
	status.Rejected, status.RejectedUnlisted = s.rejected()
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
	status.Conflicts.Shadowed = countShadowed(s.opts.View)
	status.Conflicts.Competing = countCompeting(s.opts.View)
	for _, source := range sourceList {
		status.Conflicts.Duplicates += len(source.Duplicates)
	}
	if status.Quarantined > 0 {
		status.Invalid = firstListed(s.Quarantined())
	}
	s.fillProblems(&status)
	s.fillUnenforced(&status)
	return status
}

// fillUnenforced adds the security objects that clients do not enforce to a status.
func (s *Server) fillUnenforced(status *Status) {
	if s.opts.Unenforced == nil {
		return
	}
	keys := s.opts.Unenforced()
	status.UnenforcedCount = len(keys)
	for _, key := range firstListed(keys) {
		entry := UnenforcedObject{Ref: conflicts.Ref(key)}
		if s.opts.WhyUnenforced != nil {
			entry.Why = s.opts.WhyUnenforced(key)
		}
		status.Unenforced = append(status.Unenforced, entry)
	}
}

// firstListed returns the first maxListed elements.
func firstListed[T any](list []T) []T { return list[:min(len(list), maxListed)] }

// hashContent returns a hash of the objects of a snapshot. It does not depend on their order.
func (s *Server) hashContent(snapshot memstore.Snapshot) string {
	s.contentHash.Lock()
	defer s.contentHash.Unlock()
	if s.contentHash.text == "" || s.contentHash.revision != snapshot.Revision() {
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
		s.contentHash.revision = snapshot.Revision()
		s.contentHash.text = fmt.Sprintf("%016x", sum)
	}
	return s.contentHash.text
}

// sourceStates returns the sources in order of precedence. Those that the view does not have yet come last.
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
			UnconfirmedUntil: source.UnconfirmedUntil, Duplicates: firstListed(source.Duplicates),
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
