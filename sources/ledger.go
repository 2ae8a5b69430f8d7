package sources

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/lastgood"
)

// ledger is the bookkeeping of one source: what each group has, which of the candidates for a key is in force, and
// what is quarantined. It is plain state, without locks or I/O. A call costs in proportion to the groups that it is
// about, never to the whole.
type ledger struct {
	groups map[string]*group
	// winners has the resource in force for each key, and contenders, for those keys that several groups have, all of
	// them in order of group. The first contender is the winner. A last good version wins only where no group has the key.
	winners    map[resource.Key]candidate
	contenders map[resource.Key]*btree.BTreeG[candidate]
	rejecting  map[resource.Key]*btree.BTreeG[*group] // by key, those that have a reject of it, in order
	unclear    map[string]*group                      // those that were read and are unclear, by what identifies their text
	held       held                                   // what is served besides
	incomplete bool                                   // what an earlier run left may lack newer versions

	counts      map[resource.Kind]int // winners by kind
	quarantined int                   // over all groups
	repeated    int                   // the same, of group.repeated
	warnings    int                   // the same
	foreign     int                   // the same
	unsure      int                   // last good versions in force of which it is not sure that they are meant
}

// held is who knows what is served though the source has it no longer: the guard, while it holds a loss. For the ledger that
// is a last good version like any other.
type held interface {
	Gone(key resource.Key) *resource.Resource
	GoneFrom(group string) []*resource.Resource
}

// group is what one group has. Its slices are never changed, only replaced, so that they may be read without the lock.
type group struct {
	*remarks // noRemarks for most groups, which there may be many of
	name     string
	has      []*resource.Resource // by key, each once
	print    *lastgood.Print      // by which it can be confirmed, or noPrint
	restored bool                 // it was not found valid yet, as an earlier run left it or by the rules that count now
	outdated bool                 // it was made by other settings of the source
}

// remarks are what there is to say of a group besides what it has. Whoever changes a field has a copy of its own by remark.
type remarks struct {
	repeated   []*resource.Resource // further ones with a key that it has, by key
	rejects    rejects
	keeps      map[resource.Key]bool // the last good versions in force for its rejects, and whether it is sure that they are meant
	quarantine []Quarantined
	warnings   []string
	unattached []Unattached
	warned     map[resource.Key][]string // those of the warnings that validation gave
	excluded   []Excluded                // by the transforms
	foreign    int                       // objects that were passed over
	unclear    string                    // see admitted.unclear
	neverValid int                       // see noteNeverValid

	restrictingRejects, restrictingKept int // rejects that may restrict traffic, and kept policies
}

var (
	noRemarks = new(remarks)
	noPrint   = new(lastgood.Print)
)

func (g *group) remark() *remarks {
	own := *g.remarks
	g.remarks = &own
	return g.remarks
}

// nothing reports whether there is nothing to say.
func (r *remarks) nothing() bool {
	return len(r.repeated)+len(r.rejects.keys)+len(r.rejects.namesakes)+len(r.keeps)+len(r.quarantine)+len(r.warnings)+len(r.excluded)+
		r.foreign+len(r.unclear) == 0 && !r.rejects.anonymous
}

type candidate struct {
	group    *group
	resource *resource.Resource
	kept     bool // it is the last good version, and the group has a reject in its place
	moved    bool // the same, but other settings had given it another namespace
}

func newLedger(by held) *ledger {
	return &ledger{
		held:       by,
		groups:     make(map[string]*group),
		winners:    make(map[resource.Key]candidate),
		contenders: make(map[resource.Key]*btree.BTreeG[candidate]),
		rejecting:  make(map[resource.Key]*btree.BTreeG[*group]),
		unclear:    make(map[string]*group),
		counts:     make(map[resource.Kind]int),
	}
}

// change is what a call did to the winners: what a store must do to follow.
type change struct {
	puts      []*resource.Resource
	deletes   []resource.Key
	withdrawn []resource.Key // deletes that nothing may hold

	quarantined []Quarantined // newly, or for another reason than before
	recovered   []Quarantined // no longer
	warnings    []string      // new ones
	conflicts   []Conflict    // new ones

	served []memstore.Change // what became of these, behind the guard
}

// touched remembers how the keys that a call is about stood before it, in the order in which they were touched.
type touched struct {
	keys []resource.Key
	was  map[resource.Key]keyState
}

type keyState struct {
	winner    *resource.Resource // nil for none
	held      *resource.Resource // what is served though there was no winner; nil for nothing
	group     string             // that had what is served
	unclear   string             // what identifies the text of that, if it was unclear
	restored  bool               // it was as an earlier run left it
	outdated  bool               // it was as other settings of the source had made it
	contended bool
}

// replace makes contents the whole of their groups, at a time now, and returns what that changed. The contents have been
// validated.
func (l *ledger) replace(contents []admitted, now time.Time) change {
	var c change
	n := 0
	for _, content := range contents {
		n += len(content.Resources)
	}
	before := &touched{was: make(map[resource.Key]keyState, n)}
	if len(l.groups) == 0 { // the first read; let the maps not grow step by step
		l.groups = make(map[string]*group, len(contents))
		l.winners = make(map[resource.Key]candidate, n)
	}
	var may suspects
	for _, content := range contents {
		g := l.replaceOne(content, now, before, &c)
		if content.Renamable {
			may.add(g)
		}
	}
	for _, content := range contents {
		l.noteHeld(content.Group, before)
	}
	names := make(sameNameIndex)
	for _, key := range before.keys {
		was := before.was[key]
		older := false
		if _, ok := l.winners[key]; !ok {
			older = l.restoreLastGood(key, was, may, names)
		}
		if older {
			c.withdrawn = append(c.withdrawn, key)
		}
		w, ok := l.winners[key]
		switch {
		case !ok && was.winner != nil:
			if !older {
				c.deletes = append(c.deletes, key)
			}
			if l.counts[key.Kind]--; l.counts[key.Kind] == 0 {
				delete(l.counts, key.Kind)
			}
		case ok && was.winner == nil:
			c.puts = append(c.puts, w.resource)
			l.counts[key.Kind]++
		case ok && w.resource != was.winner:
			c.puts = append(c.puts, w.resource)
		}
		if all := l.contenders[key]; all != nil && !was.contended {
			second, _ := all.GetAt(1)
			c.conflicts = append(c.conflicts, conflict(key, w.resource, second.resource))
		}
	}
	for _, content := range contents {
		if g := l.groups[content.Group]; g != nil {
			g.noteNeverValid()
		}
	}
	l.describeServing(c.quarantined)
	return c
}

func (l *ledger) replaceOne(content admitted, now time.Time, before *touched, c *change) *group {
	g := l.groups[content.Group]
	if g == nil {
		g = &group{name: content.Group, remarks: noRemarks}
	}
	old := *g
	g.remark()
	l.releaseKept(g, before)
	l.reject(g, content.Rejects)
	has, repeated := split(content.Resources)
	g.repeated, g.warnings, g.warned, g.excluded = repeated, content.Warnings, content.warned, content.excluded
	g.unattached = content.Unattached
	g.foreign, g.print = content.Foreign, cmp.Or(content.print, noPrint)
	g.quarantine = quarantine(content, old.quarantine, now)
	g.has = l.follow(g, old.has, has, before)
	g.restored, g.outdated = false, false
	if l.unclear[old.unclear] == g {
		delete(l.unclear, old.unclear)
	}
	if g.unclear = content.unclear(); g.unclear != "" && l.unclear[g.unclear] == nil {
		l.unclear[g.unclear] = g
	}
	if g.nothing() {
		g.remarks = noRemarks
	}

	l.quarantined += len(g.quarantine) - len(old.quarantine)
	l.repeated += len(g.repeated) - len(old.repeated)
	l.warnings += len(g.warnings) - len(old.warnings)
	l.foreign += g.foreign - old.foreign
	if len(g.has)+len(g.quarantine)+len(g.warnings)+len(g.excluded)+g.foreign > 0 {
		l.groups[g.name] = g
	} else {
		delete(l.groups, g.name)
	}
	reasonOf := func(q Quarantined) any { return [2]any{q.Key(), q.Reason} }
	c.quarantined = append(c.quarantined, missingFrom(old.quarantine, g.quarantine, reasonOf)...)
	c.recovered = append(c.recovered, missingFrom(g.quarantine, old.quarantine, Quarantined.id)...)
	c.warnings = append(c.warnings, missingFrom(old.warnings, g.warnings, func(w string) string { return w })...)
	for _, r := range missingFrom(old.repeated, g.repeated, (*resource.Resource).Key) {
		first, _ := find(g.has, r.Key())
		c.conflicts = append(c.conflicts, conflict(r.Key(), first, r))
	}
	return g
}

// split orders rs by key and parts the first of each key from those that repeat it.
func split(rs []*resource.Resource) (first, repeated []*resource.Resource) {
	if !slices.IsSortedFunc(rs, compareKeys) {
		rs = slices.Clone(rs)
		slices.SortStableFunc(rs, compareKeys)
	}
	for i, r := range rs {
		if i > 0 && rs[i-1].Key() == r.Key() {
			if repeated == nil {
				first = slices.Clone(rs[:i])
			}
			repeated = append(repeated, r)
		} else if repeated != nil {
			first = append(first, r)
		}
	}
	if repeated == nil {
		first = rs
	}
	return first, repeated
}

// follow makes the winners follow from group g having next instead of old, and returns next with those resources that
// bring nothing new replaced by the old ones, so that what did not change is the same pointer everywhere.
func (l *ledger) follow(g *group, old, next []*resource.Resource, before *touched) []*resource.Resource {
	taken := make([]*resource.Resource, 0, len(next))
	i := 0
	for _, r := range next {
		for i < len(old) && compareKeys(old[i], r) < 0 {
			l.removeCandidate(g, old[i].Key(), before)
			i++
		}
		if i < len(old) && old[i].Key() == r.Key() {
			was := old[i]
			i++
			if !differs(was, r) {
				taken = append(taken, was)
				continue
			}
		}
		taken = append(taken, l.add(g, r, before))
	}
	for ; i < len(old); i++ {
		l.removeCandidate(g, old[i].Key(), before)
	}
	return taken
}

// add makes r the candidate of g for its key, and returns it.
func (l *ledger) add(g *group, r *resource.Resource, before *touched) *resource.Resource {
	key := r.Key()
	w, taken := l.winners[key]
	all, contended := l.contenders[key]
	before.noteWinner(key, w, contended)
	switch {
	case taken && w.kept: // it is not needed any more
		l.unkeep(w.group, key)
		l.winners[key] = candidate{group: g, resource: r}
		return r
	case !taken, w.group == g && !contended:
		l.winners[key] = candidate{group: g, resource: r}
		return r
	case !contended:
		all = ordered(func(a, b candidate) bool { return a.group.name < b.group.name })
		all.Set(w)
		l.contenders[key] = all
	}
	all.Set(candidate{group: g, resource: r})
	l.winners[key], _ = all.Min()
	return r
}

// ordered returns a set in that order.
func ordered[T any](less func(a, b T) bool) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true, Degree: 4}) // most have two
}

// removeCandidate removes the candidate of g for key.
func (l *ledger) removeCandidate(g *group, key resource.Key, before *touched) {
	all, contended := l.contenders[key]
	before.noteWinner(key, l.winners[key], contended)
	if !contended {
		delete(l.winners, key)
		return
	}
	all.Delete(candidate{group: g})
	l.winners[key], _ = all.Min()
	if all.Len() == 1 {
		delete(l.contenders, key)
	}
}

// noteWinner notes how key stands, the first time.
func (t *touched) noteWinner(key resource.Key, winner candidate, contended bool) {
	was := keyState{winner: winner.resource, contended: contended}
	if winner.group != nil {
		was.group, was.restored, was.unclear = winner.group.name, winner.group.restored, winner.group.unclear
		was.outdated = winner.group.outdated || winner.moved
	}
	t.note(key, was)
}

func (t *touched) note(key resource.Key, was keyState) {
	if _, noted := t.was[key]; !noted {
		t.was[key] = was
		t.keys = append(t.keys, key)
	}
}

// outdate notes that all of it was made by other settings of the source, which is about to be read anew.
func (l *ledger) outdate() {
	for _, g := range l.groups {
		g.restored, g.outdated, g.print = true, true, noPrint
	}
}

// excluding returns what was left out under the key that it has at the source.
func (l *ledger) excluding(key resource.Key) (all []Excluded) {
	for _, name := range l.names() {
		for _, e := range l.groups[name].excluded {
			if e.Key == key {
				all = append(all, e)
			}
		}
	}
	return all
}

// names returns the groups in order.
func (l *ledger) names() []string { return slices.Sorted(maps.Keys(l.groups)) }

// quarantineList returns all that is quarantined, by group.
func (l *ledger) quarantineList() []Quarantined {
	if l.quarantined == 0 {
		return nil
	}
	qs := make([]Quarantined, 0, l.quarantined)
	for _, g := range l.groups {
		qs = append(qs, g.quarantine...)
	}
	slices.SortStableFunc(qs, func(a, b Quarantined) int { return cmp.Compare(a.Group, b.Group) })
	l.describeServing(qs)
	return qs
}

// warningList returns all warnings, by group.
func (l *ledger) warningList() []string {
	if l.warnings == 0 {
		return nil
	}
	ws := make([]string, 0, l.warnings)
	for _, name := range l.names() {
		ws = append(ws, l.groups[name].warnings...)
	}
	return ws
}

// unattachedList returns all routes that a parent does not take.
func (l *ledger) unattachedList() (routes []Unattached) {
	for _, name := range l.names() {
		routes = append(routes, l.groups[name].unattached...)
	}
	return routes
}

// conflictList returns the keys that occur more than once, by key.
func (l *ledger) conflictList() []Conflict {
	if len(l.contenders) == 0 && l.repeated == 0 {
		return nil
	}
	losers := make(map[resource.Key][]string)
	for key, all := range l.contenders {
		all.Scan(func(c candidate) bool {
			if c.group != l.winners[key].group {
				losers[key] = append(losers[key], c.resource.Origin().Place)
			}
			return true
		})
	}
	if l.repeated > 0 {
		for _, name := range l.names() {
			for _, r := range l.groups[name].repeated {
				losers[r.Key()] = append(losers[r.Key()], r.Origin().Place)
			}
		}
	}
	conflicts := make([]Conflict, 0, len(losers))
	for key, places := range losers {
		c := conflict(key, l.winners[key].resource)
		c.Losers = places
		conflicts = append(conflicts, c)
	}
	slices.SortFunc(conflicts, func(a, b Conflict) int { return a.Key().Compare(b.Key()) })
	return conflicts
}

// conflicts counts the resources that lost their key to another.
func (l *ledger) conflicts() int {
	n := l.repeated
	for _, all := range l.contenders {
		n += all.Len() - 1
	}
	return n
}

func compareKeys(a, b *resource.Resource) int { return a.Key().Compare(b.Key()) }

// differs reports whether b brings something new to a, be it in content or in what is shown of it.
func differs(a, b *resource.Resource) bool {
	return a != b && (!resource.Equal(a, b) || !resource.SameOrigin(a, b))
}

func find(rs []*resource.Resource, key resource.Key) (*resource.Resource, bool) {
	i, ok := slices.BinarySearchFunc(rs, key, func(r *resource.Resource, k resource.Key) int { return r.Key().Compare(k) })
	if !ok {
		return nil, false
	}
	return rs[i], true
}

// conflict describes one.
func conflict(key resource.Key, winner *resource.Resource, losers ...*resource.Resource) Conflict {
	c := Conflict{Ref: resource.Ref(key), Winner: winner.Origin().Place}
	for _, r := range losers {
		c.Losers = append(c.Losers, r.Origin().Place)
	}
	return c
}

// missingFrom returns those of list that known lacks, by what identifies them.
func missingFrom[T any, K comparable](known, list []T, id func(T) K) []T {
	if len(list) == 0 {
		return nil
	}
	have := make(map[K]bool, len(known))
	for _, x := range known {
		have[id(x)] = true
	}
	var missing []T
	for _, x := range list {
		if !have[id(x)] {
			missing = append(missing, x)
		}
	}
	return missing
}
