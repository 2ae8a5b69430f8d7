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

// Table stores the resources of a source: a memstore.Table, or a filter in front of one. Apply and SetInvalid make one
// commit each. They must not block, since the sink's other callers wait for it, so that commits are in the order of the
// ledger. MarkSynced says that the table has all resources of the source.
type Table interface {
	memstore.Reader
	Apply(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot)
	SetInvalid(keys []resource.Key)
	MarkSynced()
}

// sink is the Sink of one source, and has the state of the source.
type sink struct {
	source    string // its name
	table     Table
	lastGood  *lastgood.Store // or nil
	log       *slog.Logger
	commitLog *changeLog
	validate  func(*resource.Resource) (warnings resource.Errors, err error)
	onEvent   func(event, text string)
	wake      chan struct{} // wakes endHolds; its buffer has one place

	mu             sync.Mutex
	rules          admissionRules
	ledger         *ledger
	health         Health
	stateSince     time.Time     // of health.State
	synced         bool          // the source called Synced
	partialStart   bool          // see Spec.Partial
	allInvalid     bool          // it was read as a whole, but is not synced, since no object is valid
	firstRead      chan struct{} // closed when synced turns true
	restored       *Restored
	unread         map[string]string    // see Doubter; never modified
	unconfirmed    map[string]string    // see UnconfirmedSink; never modified
	note           []byte               // the note of the source for its next run
	leftOutByGroup map[string][]LeftOut // by group
	leftOutCount   int                  // left-out instances of all groups
	publishes      int
	absentInvalid  map[resource.Key]string // invalid keys of removed groups, during a hold
	lastChange     time.Time               // time of the last change of the table; zero before

	unreadPolicies map[string]string // see PolicyReader; never modified
}

// newSink makes the sink of a source. It begins with the objects of the table and their last good state, or nil.
func newSink(spec Spec, opts Options, restored *lastgood.State, log *slog.Logger) *sink {
	sink := &sink{
		source: spec.Name, table: spec.Table, lastGood: spec.LastGood, log: log, validate: opts.Validate,
		onEvent: func(event, text string) {
			if opts.Happened != nil {
				opts.Happened(event, spec.Name, text)
			}
		},
		rules:  admissionRules{spec.Transform, spec.Lenient, spec.LenientMetadata},
		ledger: newLedger(guard.New(spec.Guard, spec.Table.Snapshot())), stateSince: time.Now(),
		firstRead: make(chan struct{}), wake: make(chan struct{}, 1), partialStart: spec.Partial,
		commitLog: newChangeLog(), leftOutByGroup: map[string][]LeftOut{},
		absentInvalid: map[resource.Key]string{},
	}
	if sink.lastGood != nil {
		sink.lastGood.SetGuard(sink)
	}
	sink.ledger.restore(spec.Table.Snapshot(), restored)
	sink.updateInvalid()
	if restored != nil {
		sink.resume(restored)
	}
	return sink
}

// configure applies the settings of another spec of the same source.
func (s *sink) configure(spec Spec) {
	s.act(func(g *guard.Guard, m guard.Moment) guard.Change { return g.Configure(m, spec.Guard) })
	s.mu.Lock()
	if s.rules.lenient != spec.Lenient {
		for _, g := range s.ledger.groups { // the next publish validates all resources again
			g.restored = true
		}
	}
	s.rules, s.partialStart = admissionRules{spec.Transform, spec.Lenient, spec.LenientMetadata}, spec.Partial
	s.updateInvalid()
	s.mu.Unlock()
	s.syncIfValid()
}

// ReplaceAll implements Sink.
func (s *sink) ReplaceAll(contents []Content) error {
	admitted := s.admit(contents)
	s.logCommit(s.commit(admitted))
	s.syncIfValid()
	return rejected(admitted)
}

// Groups implements Sink.
func (s *sink) Groups() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.groupNames()
}

// Synced implements Sink.
func (s *sink) Synced() {
	s.mu.Lock()
	if !s.synced && s.isAllInvalid() {
		first := !s.allInvalid
		s.allInvalid = true
		health := s.currentHealth()
		s.mu.Unlock()
		if first {
			s.log.Warn("source was read, but does not count as read", "why", health.Message)
		}
		return
	}
	first := !s.synced
	s.synced, s.allInvalid = true, false
	s.ledger.guard.MarkRead()
	s.mu.Unlock()
	s.table.MarkSynced()
	if first {
		close(s.firstRead)
		s.log.Info("source synced")
	}
	s.report(Health{State: Healthy}, onlyWhileStarting)
}

// Report implements Sink.
func (s *sink) Report(h Health) {
	s.report(h, inAnyState)
}

// The states in which report changes the health.
const (
	inAnyState        = false
	onlyWhileStarting = true
)

// report changes the health. It logs a change of the state, but not of the message.
func (s *sink) report(health Health, whileStarting bool) {
	s.mu.Lock()
	old := s.health
	if whileStarting && old.State != Starting {
		s.mu.Unlock()
		return
	}
	s.health = health
	if health.State != old.State {
		s.stateSince = time.Now()
	}
	isMisleading := s.allInvalid && health.State == Healthy // no line may call a source without valid objects healthy
	s.mu.Unlock()
	if health == old || isMisleading {
		return
	}
	attrs := []any{"from", old.State.String(), "to", health.State.String()}
	if health.Message != "" {
		attrs = append(attrs, "message", health.Message)
	}
	level := slog.LevelInfo
	switch health.State {
	case old.State:
		s.log.Debug("source state message changed", attrs...)
		return
	case Unreachable, Denied, Degraded:
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, "source state changed", attrs...)
	if level == slog.LevelWarn {
		s.onEvent(EventUnreadable, health.State.String()+": "+health.Message)
	} else if health.State == Healthy && old.State != Starting {
		s.onEvent(EventReadable, health.State.String())
	}
}

// admitted is content with valid resources only, which name their source.
type admitted struct {
	Content
	warned   map[resource.Key][]string // warnings of validation
	excluded []Excluded                // objects that the transforms exclude
	print    *lastgood.Print           // confirms the content later; nil without one
}

// admissionRules are the settings of a source about its resources; see Spec.
type admissionRules struct {
	transform                *transform.Rules
	lenient, lenientMetadata bool // as in Spec
}

// admit transforms and validates resources, and sets the time when each key was first seen. Invalid ones become
// rejects. It does not change the caller's slices. Resources that the group has already are valid.
func (s *sink) admit(contents []Content) []admitted {
	before := make([]group, len(contents))
	s.mu.Lock()
	rules := s.rules
	for i, c := range contents {
		if before[i].remarks = noRemarks; s.ledger.groups[c.Group] != nil {
			before[i] = *s.ledger.groups[c.Group]
		}
	}
	s.mu.Unlock()

	served, now := s.table.Snapshot(), time.Now().UTC().Truncate(time.Second)
	firstSeen := func(object *resource.Resource) *resource.Resource {
		if old := served.Get(object.Key()); old != nil && !old.Seen().IsZero() {
			return object.WithSeen(old.Seen())
		}
		return object.WithSeen(now)
	}
	contentsAdmitted := make([]admitted, len(contents))
	inParallel(len(contents), func(i int) {
		contentsAdmitted[i] = s.admitGroup(contents[i], before[i], rules, firstSeen)
	})
	return contentsAdmitted
}

// verdict is a resource after transforms and validation.
type verdict struct {
	resource *resource.Resource // nil if the transforms exclude it
	warnings []string
	err      error
}

// judge validates a transformed resource of a group, unless the group has it already.
func (s *sink) judge(object *resource.Resource, before *group, rules admissionRules) verdict {
	warned := before.warned[object.Key()] // the warnings have lines of the text
	if old, ok := find(before.resources, object.Key()); ok && !before.restored && resource.Equal(old, object) &&
		(len(warned) == 0 || resource.SameOrigin(old, object)) {
		return verdict{resource: object, warnings: warned}
	}
	judged := verdict{resource: object}
	warnings, err := s.validate(object)
	switch {
	case rules.lenient:
		warnings, err = resource.Lenient(warnings, err)
	case rules.lenientMetadata:
		warnings, err = resource.LenientMetadata(warnings, err)
	}
	for _, warning := range warnings {
		judged.warnings = append(judged.warnings, warning.Error())
	}
	judged.err = err
	return judged
}

func (s *sink) admitGroup(
	content Content, before group, rules admissionRules, firstSeen func(*resource.Resource) *resource.Resource,
) admitted {
	verdicts := make([]verdict, len(content.Resources))
	inParallel(len(content.Resources), func(i int) {
		object := rules.transform.Apply(content.Resources[i])
		if object == nil {
			return // excluded
		}
		if o := object.Origin(); o.Source != s.source || o.Group != content.Group {
			object = object.WithOrigin(resource.Origin{Source: s.source, Place: o.Place, Group: content.Group, Rules: o.Rules})
		}
		if object.Seen().IsZero() { // here, so that the ledger and the table share one resource
			object = firstSeen(object)
		}
		verdicts[i] = s.judge(object, &before, rules)
	})

	admitted := admitted{Content: content}
	admitted.Resources = make([]*resource.Resource, 0, len(verdicts))
	admitted.Rejects = nil
	for _, reject := range content.Rejects {
		key, isTaken := rules.transform.Key(reject.Key)
		reject.Key = key
		reject.MayRestrict = reject.MayRestrict || reject.Unread && (before.name == "" || before.neverValid > 0)
		if isTaken || !reject.isIdentified() { // an unidentified reject may be an object that the group has
			admitted.Rejects = append(admitted.Rejects, reject)
		}
	}
	admitted.Warnings = slices.Clip(content.Warnings)
	for i, verdict := range verdicts {
		if verdict.resource == nil {
			excluded := content.Resources[i]
			admitted.excluded = append(admitted.excluded,
				Excluded{Source: s.source, Key: excluded.Key(), Place: excluded.Origin().Place})
			continue
		}
		key := verdict.resource.Key()
		if verdict.err != nil {
			if applied := verdict.resource.Origin().Rules; applied != "" {
				verdict.err = fmt.Errorf("%w (as it is after the transforms: %s)", verdict.err, applied)
			}
			origin := verdict.resource.Origin()
			if faults := resource.ErrorsIn(verdict.err); len(faults) > 0 {
				origin.Place = faults[0].Origin.Place // may have the line of the field
			}
			admitted.Rejects = append(admitted.Rejects, Reject{Key: key, Origin: origin, Err: verdict.err})
			continue
		}
		admitted.Resources = append(admitted.Resources, verdict.resource)
		if len(verdict.warnings) > 0 {
			if admitted.warned == nil {
				admitted.warned = make(map[resource.Key][]string)
			}
			if _, repeated := admitted.warned[key]; !repeated { // the first is the one in force
				admitted.warned[key] = verdict.warnings
			}
			admitted.Warnings = append(admitted.Warnings, verdict.warnings...)
		}
	}
	if print := admitted.newPrint(rules); print != *noPrint {
		admitted.print = &print
	}
	return admitted
}

// commit updates the ledger and the table.
func (s *sink) commit(contents []admitted) change {
	s.mu.Lock()
	defer s.mu.Unlock()
	moment := guard.Moment{Now: time.Now(), Served: s.table.Snapshot()}
	before := make(map[string][]resource.Key)
	for _, content := range contents {
		if g := s.ledger.quarantines[content.Group]; g != nil {
			before[content.Group] = s.groupInvalidPolicyKeys(g)
		}
	}
	change, passes := s.ledger.commit(contents, moment)
	s.noteAbsentInvalid(before)
	s.recordLeftOut(contents)
	if change.served, change.holds = s.apply(moment, passes); len(change.served) > 0 {
		s.publishes++
	}
	if s.lastGood != nil {
		for _, content := range contents { // after the table changed: a print confirms only stored objects
			s.lastGood.SetPrint(content.Group, s.printOf(content))
		}
	}
	return change
}

// apply makes the changes of the table that the guard lets through. The caller holds mu.
func (s *sink) apply(moment guard.Moment, change guard.Change) ([]memstore.Change, []guard.Event) {
	// While the table changes, objects are invalid that were so before or are so afterwards.
	s.table.SetInvalid(append(s.invalidPolicyKeys(), moment.Served.Invalid()...))
	changes, _ := s.table.Apply(change.Puts, change.Deletes)
	s.updateInvalid()
	if len(changes) > 0 {
		s.lastChange = moment.Now
	}
	events, held := s.ledger.guard.TakeEvents()
	if len(events) > 0 || s.ledger.guard.IsHolding() {
		if s.lastGood != nil {
			s.lastGood.SetHeld(held)
		}
		select {
		case s.wake <- struct{}{}: // the hold may end at another time
		default: // endHolds will wake anyway
		}
	}
	return changes, events
}

// act lets decide change or end the hold of the guard.
func (s *sink) act(decide func(*guard.Guard, guard.Moment) guard.Change) {
	s.mu.Lock()
	m := guard.Moment{Now: time.Now(), Served: s.table.Snapshot()}
	held := s.ledger.guard.Status()
	changes, events := s.apply(m, decide(s.ledger.guard, m))
	s.mu.Unlock()
	s.logHolds(events)
	if held != nil {
		s.commitLog.logChanges(s.log, changes, "end_of_hold", held.ID)
	}
}

// endHolds ends each hold at its end time, until ctx ends.
func (s *sink) endHolds(ctx context.Context) {
	for {
		s.mu.Lock()
		end, _ := s.ledger.guard.EndTime()
		s.mu.Unlock()
		var due <-chan time.Time
		if !end.IsZero() {
			due = time.After(time.Until(end))
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-due:
			s.act((*guard.Guard).EndDue)
		}
	}
}

// release ends the hold on behalf of a caller; see guard.Guard.Release.
func (s *sink) release(hold, caller string) (objects, endpoints int, err error) {
	var losses guard.Change
	unread := false
	s.act(func(g *guard.Guard, m guard.Moment) guard.Change {
		losses, objects, endpoints, err = g.Release(m, hold, caller)
		unread = !s.synced
		return losses
	})
	if s.lastGood != nil && unread { // else it follows the table
		s.lastGood.SetReleased(losses.Keys())
	}
	return objects, endpoints, err
}

// logHolds logs beginnings and ends of holds.
func (s *sink) logHolds(events []guard.Event) {
	for _, event := range events {
		event.Log(s.log)
		if !event.Resumed {
			s.onEvent(map[bool]string{true: EventHeld, false: EventHoldEnded}[event.Began], event.String())
		}
	}
}

// BetweenCommits implements lastgood.Guard.
func (s *sink) BetweenCommits(read func(state []byte)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	read(s.ledger.guard.State(time.Now()))
}

// Held implements lastgood.Guard.
func (s *sink) Held(key resource.Key) (previous, desired *resource.Resource, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger.guard.Held(key)
}

// maxLogged is the number of lines of one sort that a commit logs. The status has all.
const maxLogged = 20

// logCommit logs the effects of a commit.
func (s *sink) logCommit(change change) {
	s.logHolds(change.holds)
	s.commitLog.logChanges(s.log, change.served)
	logFirst(s, change.quarantined, "quarantined", func(q Quarantined) {
		s.log.Warn("resource quarantined",
			"resource", quarantinedName(q), "place", q.Place, "serves", q.Serves(), "err", q.Reason)
		s.onEvent(EventQuarantined, quarantinedName(q)+" at "+q.Place+": "+q.Reason)
	})
	logFirst(s, change.recovered, "recovered", func(q Quarantined) {
		s.log.Info("quarantine ended", "resource", quarantinedName(q), "place", q.Place)
		s.onEvent(EventQuarantineEnd, quarantinedName(q)+" at "+q.Place)
	})
	logFirst(s, change.warnings, "warnings", func(w string) {
		s.log.Warn("resource read with a warning", "warning", w)
	})
	logFirst(s, change.duplicates, "conflicts", func(c Duplicate) {
		s.log.Warn("resource is there more than once", "resource", c.Key().String(), "winner", c.Winner, "loser", c.Losers[0])
	})
}

// logFirst logs the first elements of a list, and the number of the others.
func logFirst[T any](sink *sink, list []T, sort string, log func(T)) {
	for i, element := range list {
		if i == maxLogged {
			sink.log.Warn("further ones are only in the status", "what", sort, "count", len(list)-maxLogged)
			return
		}
		log(element)
	}
}

// quarantinedName returns the name of a quarantined object or document.
func quarantinedName(quarantined Quarantined) string {
	if quarantined.Kind == "" {
		return "a document of " + quarantined.Group
	}
	return quarantined.Key().String()
}

// rejected returns the error that names every reject, or nil.
func rejected(contents []admitted) error {
	var errs []error
	for _, c := range contents {
		for _, r := range c.Rejects {
			errs = append(errs, r.Err)
		}
	}
	return errors.Join(errs...)
}

// fillStatus fills the status. Without lists, its cost is that of the number of kinds.
func (s *sink) fillStatus(status *Status, lists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	health := s.currentHealth()
	status.State, status.Message, status.Since = health.State, health.Message, s.stateSince
	if status.Unconfirmed = health.Unconfirmed; !health.End.IsZero() {
		status.UnconfirmedUntil = &health.End
	}
	status.Synced = s.synced
	status.Restored = s.restored
	status.Stale = s.stale()
	status.Held = s.ledger.guard.Status()
	status.Publishes = s.publishes
	if t := s.lastChange; !t.IsZero() {
		status.LastPublish = &t
	}
	status.Groups = len(s.ledger.groups)
	status.Objects = maps.Clone(s.ledger.winnerCounts)
	status.Foreign = s.ledger.foreignCount
	status.Unsure = s.ledger.uncertainCount
	status.LeftOutCount = s.leftOutCount
	status.quarantined = s.ledger.quarantinedCount
	status.warnings = s.ledger.warningCount
	status.duplicates = s.ledger.countDuplicates()
	status.holds = s.ledger.guard.Holds()
	if lists {
		status.Quarantined = s.ledger.quarantineList()
		status.Duplicates = s.ledger.duplicateList()
		status.Warnings = s.ledger.warningList()
		status.Unserved = s.ledger.unservedList()
		status.LeftOut = s.leftOutIf(func(LeftOut) bool { return true })
		status.Unread = s.countUnread()
	}
}

// inParallel calls work with 0 … n-1, on all processors if n is large.
func inParallel(n int, work func(i int)) {
	const worth = 64
	processors := runtime.GOMAXPROCS(0)
	if n < worth {
		processors = 1
	}
	worker.Each(n, processors, work)
}

// isAllInvalid reports whether the source has objects, but no valid, excluded, kept or held one. If all objects are
// invalid before any was served, the cause is more likely a setting of the source than each object. Clients would drop
// their objects after an empty answer. So such a source does not count as read. The caller holds mu.
func (s *sink) isAllInvalid() bool {
	return !s.partialStart && s.restored == nil && s.ledger.allInvalid() && s.table.Snapshot().Len() == 0
}

func (l *ledger) allInvalid() bool {
	if l.quarantinedCount == 0 || len(l.winners) > 0 {
		return false
	}
	hasInvalid := false
	for _, group := range l.groups {
		if len(group.excluded) > 0 {
			return false
		}
		for _, q := range group.quarantine {
			hasInvalid = hasInvalid || !q.foreign || q.derives
		}
	}
	return hasInvalid
}

// syncIfValid makes a source count as read when its objects are no longer all invalid.
func (s *sink) syncIfValid() {
	s.mu.Lock()
	due := s.allInvalid && !s.isAllInvalid()
	s.mu.Unlock()
	if due {
		s.Synced()
	}
}

// currentHealth returns the health that the source reported, or that all of its objects are invalid. The caller holds
// mu.
func (s *sink) currentHealth() Health {
	health := s.health
	if !s.allInvalid {
		return health
	}
	reason := fmt.Sprintf("not synced, because not one object is valid (partialStart: true allows that): %d in quarantine",
		s.ledger.quarantinedCount)
	if health.Message != "" {
		reason = health.Message + "; " + reason
	}
	if health.State == Starting || health.State == Healthy {
		health.State = Degraded
	}
	health.Message = reason
	return health
}
