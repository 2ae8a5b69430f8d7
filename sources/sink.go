package sources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"tributary/internal/worker"
	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/guard"
	"tributary/sources/lastgood"
	"tributary/sources/transform"
)

// Table is where the resources of a source go: a memstore.Table, or what stands in front of one. Apply makes one commit,
// and must not block: it is called while the sink's other callers wait, so that commits are in the order of the
// bookkeeping. MarkSynced says that everything applied before is the whole of the source.
type Table interface {
	memstore.Reader
	Apply(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot)
	MarkSynced()
}

// sink is the Sink of one source, and keeps what is to be known about it.
type sink struct {
	source   *label
	guard    *guard.Guard // in front of the table
	log      *slog.Logger
	changes  *changeLog
	validate func(*resource.Resource) (warnings resource.Errors, err error)
	happened func(event, text string)

	mu            sync.Mutex
	judge         judge
	ledger        *ledger
	health        Health
	since         time.Time     // of health.State
	synced        bool          // by the source itself
	partial       bool          // see Spec.Partial
	allInvalid    bool          // it was read as a whole, but is not synced, since no object is valid
	read          chan struct{} // closed when synced turns true
	restored      *Restored
	unread        map[string]string                    // see Doubter; never modified
	note          []byte                               // of the source, for its next run
	remember      func(note []byte)                    // keeps it on disk; nil if nothing does
	setPrint      func(group string, p lastgood.Print) // the same of prints
	left          map[string][]LeftOut                 // by group
	leftOut       int                                  // all of them
	invalidBefore []resource.Key                       // see invalid
	publishes     int

	unreadPolicies map[string]string // see PolicyReader; never modified
}

// newSink makes the sink of a source, which begins with what the table has, and what is known of that, or nil.
func newSink(spec Spec, opts Options, kept *lastgood.State, log *slog.Logger) *sink {
	source := new(label)
	source.name.Store(&spec.Name)
	log = slog.New(labelled{log.Handler(), source})
	changes := newChangeLog()
	happened := func(event, text string) {
		if opts.Happened != nil {
			opts.Happened(event, source.String(), text)
		}
	}
	guarded := guard.Options{Settings: spec.Guard, Log: log, Ended: func(hold string, all []memstore.Change) {
		changes.say(log, all, "end_of_hold", hold)
	}}
	guarded.OnEvent = func(began bool, text string) {
		happened(map[bool]string{true: EventHeld, false: EventHoldEnded}[began], text)
	}
	if spec.Memory != nil {
		guarded.Changed = spec.Memory.SetHeld
	}
	before := guard.New(spec.Table, guarded)
	s := &sink{
		source: source, guard: before, log: log, validate: opts.Validate, happened: happened,
		judge:  judge{spec.Transform, spec.Lenient, spec.LenientMetadata},
		ledger: newLedger(before), since: time.Now(), read: make(chan struct{}),
		partial: spec.Partial, changes: changes, left: map[string][]LeftOut{},
	}
	if spec.Memory != nil {
		s.remember, s.setPrint = spec.Memory.SetNote, spec.Memory.SetPrint
		spec.Memory.SetGuard(s.guard)
	}
	s.ledger.restore(spec.Table.Snapshot(), kept)
	return s
}

// configure takes over the settings of another spec of the same source.
func (s *sink) configure(spec Spec) {
	s.guard.Configure(spec.Guard)
	s.mu.Lock()
	if s.judge.lenient != spec.Lenient {
		for _, g := range s.ledger.groups { // all of it is validated again when it is published the next time
			g.restored = true
		}
	}
	s.judge, s.partial = judge{spec.Transform, spec.Lenient, spec.LenientMetadata}, spec.Partial
	s.mu.Unlock()
	s.syncIfValid()
}

// ReplaceAll implements Sink.
func (s *sink) ReplaceAll(contents []Content) error {
	admitted := s.admit(contents)
	s.announce(s.commit(admitted))
	s.syncIfValid()
	return rejected(admitted)
}

// Groups implements Sink.
func (s *sink) Groups() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.names()
}

// Synced implements Sink.
func (s *sink) Synced() {
	s.mu.Lock()
	if !s.synced && s.isAllInvalid() {
		first := !s.allInvalid
		s.allInvalid = true
		health := s.condition()
		s.mu.Unlock()
		if first {
			s.log.Warn("source was read, but does not count as read", "why", health.Message)
		}
		return
	}
	first := !s.synced
	s.synced, s.allInvalid = true, false
	s.mu.Unlock()
	s.guard.MarkSynced()
	if first {
		close(s.read)
		s.log.Info("source synced")
	}
	s.report(Health{State: Healthy}, func(now State) bool { return now == Starting })
}

// Report implements Sink.
func (s *sink) Report(h Health) {
	s.report(h, func(State) bool { return true })
}

// report changes the health if the state allows. A change of state is logged; a change of the message only is not worth a
// line.
func (s *sink) report(h Health, allowed func(now State) bool) {
	s.mu.Lock()
	old := s.health
	if !allowed(old.State) {
		s.mu.Unlock()
		return
	}
	s.health = h
	if h.State != old.State {
		s.since = time.Now()
	}
	well := s.allInvalid && h.State == Healthy // which was said not to be so
	s.mu.Unlock()
	if h == old || well {
		return
	}
	attrs := []any{"from", old.State.String(), "to", h.State.String()}
	if h.Message != "" {
		attrs = append(attrs, "message", h.Message)
	}
	level := slog.LevelInfo
	switch h.State {
	case old.State:
		s.log.Debug("source state message changed", attrs...)
		return
	case Unreachable, Denied, Degraded:
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, "source state changed", attrs...)
	if level == slog.LevelWarn {
		s.happened(EventUnreadable, h.State.String()+": "+h.Message)
	} else if h.State == Healthy && old.State != Starting {
		s.happened(EventReadable, h.State.String())
	}
}

// admitted is content whose resources are all valid and name their source.
type admitted struct {
	Content
	warned   map[resource.Key][]string // what validation had to say all the same
	excluded []Excluded                // what the transforms left out
	print    *lastgood.Print           // nil for none
}

// judge is what the settings of a source say about what to make of its resources; see Spec.
type judge struct {
	transform                *transform.Rules
	lenient, lenientMetadata bool // as in Spec
}

// admit transforms the resources, notes when each key was first seen, and turns those that are not valid then into rejects. It leaves the
// caller's slices as they are. What the group holds already has been found valid before.
func (s *sink) admit(contents []Content) []admitted {
	before := make([]group, len(contents))
	s.mu.Lock()
	source, j := s.source.String(), s.judge
	for i, c := range contents {
		if before[i].remarks = noRemarks; s.ledger.groups[c.Group] != nil {
			before[i] = *s.ledger.groups[c.Group]
		}
	}
	s.mu.Unlock()

	served, now := s.guard.Snapshot(), time.Now().UTC().Truncate(time.Second)
	firstSeen := func(r *resource.Resource) *resource.Resource {
		if old := served.Get(r.Key()); old != nil && !old.Seen().IsZero() {
			return r.WithSeen(old.Seen())
		}
		return r.WithSeen(now)
	}
	all := make([]admitted, len(contents))
	inParallel(len(contents), func(i int) { all[i] = s.admitOne(contents[i], before[i], source, j, firstSeen) })
	return all
}

func (s *sink) admitOne(c Content, before group, source string, j judge, firstSeen func(*resource.Resource) *resource.Resource) admitted {
	type verdict struct {
		resource *resource.Resource
		warnings []string
		err      error
	}
	verdicts := make([]verdict, len(c.Resources))
	inParallel(len(c.Resources), func(i int) {
		r := j.transform.Apply(c.Resources[i])
		if r == nil {
			return // left out
		}
		if o := r.Origin(); o.Source != source || o.Group != c.Group {
			r = r.WithOrigin(resource.Origin{Source: source, Place: o.Place, Group: c.Group, Rules: o.Rules})
		}
		if r.Seen().IsZero() { // here, so that the ledger and the table have one resource, not two
			r = firstSeen(r)
		}
		v := verdict{resource: r}
		warned := before.warned[r.Key()] // which has lines
		if old, ok := find(before.has, r.Key()); ok && !before.restored && resource.Equal(old, r) &&
			(len(warned) == 0 || resource.SameOrigin(old, r)) {
			v.warnings = warned
		} else {
			var warnings resource.Errors
			warnings, v.err = s.validate(r)
			switch {
			case j.lenient:
				warnings, v.err = resource.Lenient(warnings, v.err)
			case j.lenientMetadata:
				warnings, v.err = resource.LenientMetadata(warnings, v.err)
			}
			for _, w := range warnings {
				v.warnings = append(v.warnings, w.Error())
			}
		}
		verdicts[i] = v
	})

	a := admitted{Content: c}
	a.Resources = make([]*resource.Resource, 0, len(verdicts))
	a.Rejects = nil
	for _, reject := range c.Rejects {
		key, taken := j.transform.Key(reject.Key)
		reject.Key = key
		reject.MayRestrict = reject.MayRestrict || reject.Unread && (before.name == "" || before.neverValid > 0)
		if taken || !reject.identified() { // what is not identified may be an object that is taken
			a.Rejects = append(a.Rejects, reject)
		}
	}
	a.Warnings = slices.Clip(c.Warnings)
	for i, v := range verdicts {
		if v.resource == nil {
			left := c.Resources[i]
			a.excluded = append(a.excluded, Excluded{Source: source, Key: left.Key(), Place: left.Origin().Place})
			continue
		}
		key := v.resource.Key()
		if v.err != nil {
			if applied := v.resource.Origin().Rules; applied != "" {
				v.err = fmt.Errorf("%w (as it is after the transforms: %s)", v.err, applied)
			}
			origin := v.resource.Origin()
			if faults := resource.ErrorsIn(v.err); len(faults) > 0 {
				origin.Place = faults[0].Origin.Place // which may know the line of the field
			}
			a.Rejects = append(a.Rejects, Reject{Key: key, Origin: origin, Err: v.err})
			continue
		}
		a.Resources = append(a.Resources, v.resource)
		if len(v.warnings) > 0 {
			if a.warned == nil {
				a.warned = make(map[resource.Key][]string)
			}
			if _, repeated := a.warned[key]; !repeated { // the first is the one in force
				a.warned[key] = v.warnings
			}
			a.Warnings = append(a.Warnings, v.warnings...)
		}
	}
	if print := a.fingerprint(j); print != *noPrint {
		a.print = &print
	}
	return a
}

// commit enters contents in the ledger and has the table follow.
func (s *sink) commit(contents []admitted) change {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	c := s.ledger.replace(contents, now.UTC().Truncate(time.Second))
	s.recordLeftOut(contents)
	if len(c.puts)+len(c.deletes) > 0 {
		apply := s.guard.Apply
		if !slices.ContainsFunc(contents, func(a admitted) bool { return !a.Explained }) {
			apply = s.guard.ApplyExplained
		}
		c.served, _ = apply(c.puts, c.deletes)
	}
	if len(c.withdrawn) > 0 {
		c.served = append(c.served, s.guard.Withdraw(c.withdrawn)...)
	}
	if len(c.served) > 0 {
		s.publishes++
	}
	if s.setPrint != nil {
		for _, content := range contents { // after the table: prints of what is not there yet would be of no use
			s.setPrint(content.Group, s.printOf(content))
		}
	}
	return c
}

// announced is how many lines one commit may log of a sort. The status has them all.
const announced = 20

// announce logs what a commit brought that people should know.
func (s *sink) announce(c change) {
	s.changes.say(s.log, c.served)
	each(s, c.quarantined, "quarantined", func(q Quarantined) {
		s.log.Warn("resource quarantined", "resource", subject(q), "place", q.Place, "serves", q.Serves(), "err", q.Reason)
		s.happened(EventQuarantined, subject(q)+" at "+q.Place+": "+q.Reason)
	})
	each(s, c.recovered, "recovered", func(q Quarantined) {
		s.log.Info("quarantine ended", "resource", subject(q), "place", q.Place)
		s.happened(EventQuarantineEnd, subject(q)+" at "+q.Place)
	})
	each(s, c.warnings, "warnings", func(w string) {
		s.log.Warn("resource read with a warning", "warning", w)
	})
	each(s, c.conflicts, "conflicts", func(c Conflict) {
		s.log.Warn("resource is there more than once", "resource", c.Key().String(), "winner", c.Winner, "loser", c.Losers[0])
	})
}

// each logs the first of list, and how many more there are.
func each[T any](s *sink, list []T, what string, log func(T)) {
	for i, x := range list {
		if i == announced {
			s.log.Warn("further ones are only in the status", "what", what, "count", len(list)-announced)
			return
		}
		log(x)
	}
}

// invalid returns the objects that Envoys cannot enforce, see unenforced, and while the guard holds a loss, those that it returned
// before and that have gone: they may be part of the loss.
func (s *sink) invalid() (keys []resource.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys = s.unenforced()
	if held, _, _ := s.guard.Counts(); held > 0 {
		served := s.guard.Snapshot()
		for _, key := range s.invalidBefore {
			if served.Get(key) == nil && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	s.invalidBefore = keys
	return slices.Clone(keys)
}

// subject names what is quarantined.
func subject(q Quarantined) string {
	if q.Kind == "" {
		return "a document of " + q.Group
	}
	return q.Key().String()
}

// rejected is the error that names every reject, or nil.
func rejected(contents []admitted) error {
	var errs []error
	for _, c := range contents {
		for _, r := range c.Rejects {
			errs = append(errs, r.Err)
		}
	}
	return errors.Join(errs...)
}

// describe adds to st what the sink knows. Without lists it costs no more than the number of kinds.
func (s *sink) describe(st *Status, lists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	health := s.condition()
	st.State, st.Message, st.Since = health.State, health.Message, s.since
	if st.Unconfirmed = health.Unconfirmed; !health.End.IsZero() {
		st.UnconfirmedUntil = &health.End
	}
	st.Synced = s.synced
	st.Restored = s.restored
	st.Stale = s.stale()
	st.Held = s.guard.Status()
	st.Publishes = s.publishes
	if t := s.guard.LastChange(); !t.IsZero() {
		st.LastPublish = &t
	}
	st.Groups = len(s.ledger.groups)
	st.Objects = maps.Clone(s.ledger.counts)
	st.Foreign = s.ledger.foreign
	st.Unsure = s.ledger.unsure
	st.LeftOutCount = s.leftOut
	if lists {
		st.Quarantined = s.ledger.quarantineList()
		st.Conflicts = s.ledger.conflictList()
		st.Warnings = s.ledger.warningList()
		st.Unattached = s.ledger.unattachedList()
		st.LeftOut = s.leftOutIf(func(LeftOut) bool { return true })
		st.Unread = s.countUnread()
	}
}

// counts returns the lengths of the lists of Status.
func (s *sink) counts() (quarantined, conflicts, warnings int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.quarantined, s.ledger.conflicts(), s.ledger.warnings
}

// inParallel calls f for 0 … n-1, on all processors if n makes it worth while.
func inParallel(n int, f func(i int)) {
	const worth = 64
	workers := runtime.GOMAXPROCS(0)
	if n < worth || workers == 1 {
		for i := range n {
			f(i)
		}
		return
	}
	g, _ := worker.New(context.Background())
	for w := range workers {
		g.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	if err := g.Wait(); err != nil {
		panic(err) // as if it had been called here
	}
}

// isAllInvalid reports whether the source has objects, but not one that is valid, left out on purpose, kept or held. If all objects are
// invalid before anything was ever served, the cause is more often in how the source is read than in each object. Clients that are sent an
// empty answer would drop what they have. So such a source does not count as read. The caller holds mu.
func (s *sink) isAllInvalid() bool {
	return !s.partial && s.restored == nil && s.ledger.allInvalid() && s.guard.Snapshot().Len() == 0
}

func (l *ledger) allInvalid() bool {
	if l.quarantined == 0 || len(l.winners) > 0 {
		return false
	}
	found := false
	for _, g := range l.groups {
		if len(g.excluded) > 0 {
			return false
		}
		for _, q := range g.quarantine {
			found = found || !q.foreign || q.derives
		}
	}
	return found
}

// syncIfValid makes a source count as read that was read when all its objects were invalid, once that is no longer so.
func (s *sink) syncIfValid() {
	s.mu.Lock()
	due := s.allInvalid && !s.isAllInvalid()
	s.mu.Unlock()
	if due {
		s.Synced()
	}
}

// condition is the health as it is told: what the source says of itself, and that nothing of what it read is valid. The caller holds mu.
func (s *sink) condition() Health {
	h := s.health
	if !s.allInvalid {
		return h
	}
	why := fmt.Sprintf("not synced, because not one object of what was found is valid (partialStart: true does without): %d in quarantine",
		s.ledger.quarantined)
	if h.Message != "" {
		why = h.Message + "; " + why
	}
	if h.State == Starting || h.State == Healthy {
		h.State = Degraded
	}
	h.Message = why
	return h
}
