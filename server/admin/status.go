package admin

import (
	"fmt"
	"slices"
	"time"

	"tributary/aggregate"
	"tributary/aggregate/conflicts"
	"tributary/internal/history"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/transport"
	"tributary/sources"
)

// Status is the answer of /debug/status.
type Status struct {
	Version string        `json:"version"`
	Started time.Time     `json:"started"`
	Uptime  string        `json:"uptime"`
	Missing []string      `json:"missing,omitempty"` // what is in the way of serving; nothing if it is ready
	Config  ConfigStatus  `json:"config"`
	Sources []SourceState `json:"sources"` // in order of precedence

	Content     string                `json:"content"` // a hash of what is served: equal where the same objects are served
	Objects     int                   `json:"objects"` // that are served
	Kinds       map[resource.Kind]int `json:"kinds"`
	Conflicts   ConflictCounts        `json:"conflicts"`
	Quarantined int                   `json:"quarantined"`
	Invalid     []Quarantined         `json:"invalid,omitempty"` // the first few of these
	Unsure      int                   `json:"unsure,omitempty"`  // objects served only because something cannot be read
	Unread      int                   `json:"unread,omitempty"`  // objects in what cannot be read at present, served as they were read before
	Warnings    int                   `json:"warnings,omitempty"`
	LeftOut     int                   `json:"leftOut,omitempty"` // instances that sources have, and that are not served
	// WithoutEffect are objects that say something that has no effect on Envoys and gRPC clients. It is there if such clients are connected.
	WithoutEffect int `json:"without_effect,omitempty"`
	// Unenforced is how many security objects Envoys and gRPC clients do not enforce, and NotEnforced the first few of these.
	Unenforced  int           `json:"unenforced,omitempty"`
	NotEnforced []NotEnforced `json:"not_enforced,omitempty"`
	// Unresolved are the first few references that lead to no object, Unchecked the first few that cannot be checked, and
	// Refused the first few objects that limits.productBytes keeps from Envoys and gRPC clients.
	Unresolved      []ObjectProblem `json:"unresolved,omitempty"`
	UnresolvedCount int             `json:"unresolved_count,omitempty"`
	Unchecked       []string        `json:"unchecked,omitempty"`
	UncheckedCount  int             `json:"unchecked_count,omitempty"`
	Refused         []ObjectProblem `json:"refused,omitempty"`
	RefusedCount    int             `json:"refused_count,omitempty"`
	// Rejected are resources that clients reject, and RejectedMore is how many more there are.
	Rejected     []Rejected `json:"rejected,omitempty"`
	RejectedMore int        `json:"rejected_more,omitempty"`
	Holds        int        `json:"holds"` // sources of which a loss is held

	Certificates []transport.Status `json:"certificates,omitempty"` // of our own listeners

	History *history.Health `json:"history,omitempty"` // what is wrong with it; nil if nothing is

	Clients []ClientState `json:"clients"` // in order of arrival
}

// maxListed is how many things of a sort are told in full; the others are counted.
const maxListed = 3

// SourceState is a source without its lists.
type SourceState struct {
	Name        string    `json:"name"`
	Address     string    `json:"address,omitempty"`
	State       string    `json:"state"`
	Message     string    `json:"message,omitempty"`
	Since       time.Time `json:"since"`
	Synced      bool      `json:"synced"`
	Stale       bool      `json:"stale,omitempty"` // what is served was read before, or by an earlier run
	Precedence  int       `json:"precedence"`
	Objects     int       `json:"objects"`
	Quarantined int       `json:"quarantined"`
	Unsure      int       `json:"unsure,omitempty"` // objects that are served only because something cannot be read
	Unread      int       `json:"unread,omitempty"` // objects in what cannot be read at present
	Warnings    int       `json:"warnings,omitempty"`
	LeftOut     int       `json:"leftOut,omitempty"` // instances that are not served: not to be called, or not to be reached
	Foreign     int       `json:"foreign,omitempty"` // objects of other APIs, which were passed over
	// Duplicates are the first few of the keys that it has several times, of which it serves one each.
	Duplicates []sources.Conflict `json:"duplicates,omitempty"`
	Hold       *Hold              `json:"hold,omitempty"`
	// Restored is what an earlier run left; NotKept is why what is read now is not kept for the next.
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
type Hold struct {
	ID        string     `json:"id"`
	Since     time.Time  `json:"since"`
	Until     *time.Time `json:"until,omitempty"`
	Why       string     `json:"why"`
	Objects   int        `json:"objects"`
	Endpoints int        `json:"endpoints"`
}

// ConflictCounts are the numbers of the kinds of conflict.
type ConflictCounts struct {
	Shadowed   int `json:"shadowed"`   // keys that several sources have
	Duplicates int `json:"duplicates"` // keys that one source has several times
	Competing  int `json:"competing"`  // hosts claimed by several objects
}

// Status returns the state of the server.
func (s *Server) Status() Status {
	snapshot := s.opts.View.Snapshot()
	all := s.opts.Sources.Status()
	st := Status{
		Version: s.opts.Version, Started: s.started, Uptime: time.Since(s.started).Round(time.Second).String(),
		Missing: s.missing(), Config: s.opts.Config.Status(), Sources: s.sourceStates(all),
		Content: s.content(snapshot), Objects: snapshot.Len(), Kinds: map[resource.Kind]int{}, Clients: s.clientStates(),
		History: s.historyHealth(),
	}
	st.Rejected, st.RejectedMore = s.rejected()
	if s.opts.Certificates != nil {
		st.Certificates = s.opts.Certificates()
	}
	for _, kind := range snapshot.Kinds() {
		st.Kinds[kind] = snapshot.LenKind(kind)
	}
	for _, src := range st.Sources {
		st.Quarantined += src.Quarantined
		st.Unsure += src.Unsure
		st.Unread += src.Unread
		st.Warnings += src.Warnings
		st.LeftOut += src.LeftOut
		if src.Hold != nil {
			st.Holds++
		}
	}
	st.Conflicts.Shadowed, st.Conflicts.Competing = shadowed(s.opts.View), competing(s.opts.View)
	for _, src := range all {
		st.Conflicts.Duplicates += len(src.Conflicts)
	}
	if st.Quarantined > 0 {
		all := s.Quarantined()
		st.Invalid = all[:min(len(all), maxListed)]
	}
	if s.opts.Affected != nil {
		unresolved := make(map[resource.Key]bool) // status names their references as problems
		for _, problem := range s.ObjectProblems().Unresolved {
			unresolved[problem.Key()] = true
		}
		for _, key := range s.opts.Affected() {
			if !unresolved[key] {
				st.WithoutEffect++
			}
		}
	}
	s.fillProblems(&st)
	if s.opts.Unenforced != nil {
		all := s.opts.Unenforced()
		st.Unenforced = len(all)
		for _, key := range all[:min(len(all), maxListed)] {
			entry := NotEnforced{Ref: conflicts.Ref(key)}
			if s.opts.WhyUnenforced != nil {
				entry.Why = s.opts.WhyUnenforced(key)
			}
			st.NotEnforced = append(st.NotEnforced, entry)
		}
	}
	return st
}

// content returns a hash of the objects of a snapshot, whatever order they have come in.
func (s *Server) content(of memstore.Snapshot) string {
	s.hashed.Lock()
	defer s.hashed.Unlock()
	if s.hashed.text == "" || s.hashed.of != of.Revision() {
		var sum uint64
		for r := range of.All() {
			key, hash := r.Key(), uint64(14695981039346656037) // FNV-1a, without an allocation for each of many objects
			for _, part := range [...]string{string(key.Kind), key.Namespace, key.Name, r.Version()} {
				for i := range len(part) {
					hash = (hash ^ uint64(part[i])) * 1099511628211
				}
				hash = (hash ^ '/') * 1099511628211 // which no part has
			}
			sum += hash
		}
		s.hashed.of, s.hashed.text = of.Revision(), fmt.Sprintf("%016x", sum)
	}
	return s.hashed.text
}

// sourceStates are the sources in the order in which the view has them, and after them those that it does not have yet.
func (s *Server) sourceStates(all []sources.Status) []SourceState {
	order := s.opts.View.Sources()
	position := func(name string) int {
		if i := slices.IndexFunc(order, func(src aggregate.SourceStatus) bool { return src.Name == name }); i >= 0 {
			return i
		}
		return len(order)
	}
	states := []SourceState{}
	for _, src := range all {
		state := SourceState{
			Name: src.Name, Address: src.Address, State: src.State.String(), Message: src.Message, Since: src.Since,
			Synced: src.Synced, Stale: src.Stale, Quarantined: len(src.Quarantined), LastPublish: src.LastPublish,
			Restarts: src.Restarts, LastError: src.LastError, Restored: src.Restored, Foreign: src.Foreign, Unsure: src.Unsure,
			Unread: src.Unread, Warnings: len(src.Warnings), LeftOut: src.LeftOutCount,
			Unconfirmed: src.Unconfirmed, UnconfirmedUntil: src.UnconfirmedUntil,
			Duplicates: src.Conflicts[:min(len(src.Conflicts), maxListed)],
		}
		if src.Kept != nil {
			state.NotKept = src.Kept.Error
		}
		if i := position(src.Name); i < len(order) {
			state.Precedence = order[i].Precedence
		}
		for _, n := range src.Objects {
			state.Objects += n
		}
		if h := src.Held; h != nil {
			state.Hold = &Hold{ID: h.ID, Since: h.Since, Until: h.Until, Why: h.Why, Objects: h.Objects, Endpoints: h.Endpoints}
		}
		states = append(states, state)
	}
	slices.SortStableFunc(states, func(a, b SourceState) int { return position(a.Name) - position(b.Name) })
	return states
}
