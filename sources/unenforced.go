package sources

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"tributary/resource"
	"tributary/sources/lastgood"
)

// PolicyReader is an optional interface of a Sink, for sources that can name namespaces with policies that they never
// read.
type PolicyReader interface {
	// UnreadPolicies replaces the reasons why policies were never read, by namespace; the empty one stands for all. Envoys
	// of these namespaces refuse all requests. Call it before Synced.
	UnreadPolicies(why map[string]string)
}

// UnreadPolicies implements PolicyReader.
func (s *sink) UnreadPolicies(reasons map[string]string) {
	s.mu.Lock()
	before := s.unreadPolicies
	if !s.rules.takesPolicies() {
		reasons = nil
	}
	s.unreadPolicies = maps.Clone(reasons)
	s.updateInvalid()
	s.mu.Unlock()
	tell := func(event string, from, to map[string]string) {
		for namespace, text := range to {
			if _, isOld := from[namespace]; !isOld {
				s.log.Warn("objects that may restrict traffic", "event", event, "namespace", namespace, "why", text)
				s.onEvent(event, "objects that may restrict traffic: "+text)
			}
		}
	}
	tell(EventQuarantined, before, reasons)
	tell(EventQuarantineEnd, reasons, before)
}

// takesPolicies reports whether the transforms take objects of some kind that restricts traffic.
func (a admissionRules) takesPolicies() bool {
	kinds := append([]resource.Kind{resource.MeshConfig}, resource.SecurityKinds...)
	return slices.ContainsFunc(kinds, a.transform.TakesKind)
}

// noteNeverValid counts the rejects that may restrict traffic and are no versions of kept objects. A reject that was
// counted stays counted until it is gone. One reject may stand for several kept objects, such as a broken list: a later
// reject that comes without a further kept object was never valid. Nor was one in a namespace without a kept object.
func (g *group) noteNeverValid() {
	rejects, keptCount, elsewhere := 0, 0, 0
	keptIn, keepsMesh := make(map[string]bool), false // by namespace; a MeshConfig has none
	for key, sure := range g.lastGood {
		if !sure && resource.Restricts(key.Kind) {
			keptCount++
			keptIn[key.Namespace], keepsMesh = true, keepsMesh || key.Kind == resource.MeshConfig
		}
	}
	for _, quarantined := range g.quarantine {
		if !quarantined.mayRestrict {
			continue
		}
		isMesh := keepsMesh && (quarantined.Kind == "" || quarantined.Kind == resource.MeshConfig)
		if rejects++; quarantined.Namespace != "" && !keptIn[quarantined.Namespace] && !isMesh {
			elsewhere++
		}
	}
	further := max(0, rejects-g.restrictingRejects-max(0, keptCount-g.restrictingKept))
	neverValid := max(rejects-keptCount, elsewhere, min(g.neverValid+further, rejects))
	if neverValid != g.neverValid || rejects != g.restrictingRejects || keptCount != g.restrictingKept {
		remarks := g.ownRemarks()
		remarks.neverValid, remarks.restrictingRejects, remarks.restrictingKept = neverValid, rejects, keptCount
	}
}

// unenforcedKey returns the key that Envoys refuse for a reject, and whether they do: no valid version of it is
// served, and it may restrict traffic. The caller holds mu.
func (s *sink) unenforcedKey(quarantined Quarantined) (key resource.Key, unenforced bool) {
	switch reject := (Reject{Key: quarantined.Key()}); {
	case quarantined.foreign:
	case reject.isIdentified():
		return quarantined.Key(), !quarantined.LastGoodServes
	case quarantined.mayRestrict && s.ledger.groups[quarantined.Group].neverValid > 0 && s.rules.takesPolicies():
		key = resource.Key{Kind: resource.Unrecognised, Namespace: quarantined.Namespace, Name: quarantined.Place}
		return key, true
	}
	return key, false
}

// printOf returns the print of a group as it is stored. The caller holds mu.
func (s *sink) printOf(content admitted) lastgood.Print {
	notes := groupNotes{TextID: content.textID()}
	if g := s.ledger.groups[content.Group]; g != nil && len(content.Rejects) > 0 {
		notes.Rejects = s.storedRejects(g)
	}
	if len(notes.Rejects) > 0 || notes.TextID != "" { // the print is not confirmed, but recognised
		return lastgood.Print{Notes: encoded(notes)}
	}
	return *cmp.Or(content.print, noPrint)
}

// storedRejects returns the rejects of a group that Envoys cannot enforce, for its print. The caller holds mu.
func (s *sink) storedRejects(g *group) (stored []storedReject) {
	rejects := slices.Clone(g.quarantine)
	s.ledger.fillServing(rejects)
	for _, q := range rejects {
		if key, unenforced := s.unenforcedKey(q); unenforced && resource.Restricts(key.Kind) {
			stored = append(stored, storedReject{q, q.mayRestrict})
		}
	}
	return stored
}

// storeRejects stores the prints of all groups with rejects that Envoys cannot enforce: those of other settings were
// dropped. The caller holds mu, or no other method was called.
func (s *sink) storeRejects() {
	if s.memory == nil {
		return
	}
	for name, g := range s.ledger.quarantines {
		if rejects := s.storedRejects(g); len(rejects) > 0 {
			s.memory.SetPrint(name, lastgood.Print{Notes: encoded(groupNotes{TextID: g.textID, Rejects: rejects})})
		}
	}
}

// unenforcedIn returns the keys of rejects of security objects in a group that Envoys cannot enforce. The caller holds
// mu.
func (s *sink) unenforcedIn(g *group) (keys []resource.Key) {
	for _, q := range g.quarantine {
		q.LastGoodServes = s.ledger.winners[q.Key()].isLastGood
		if key, unenforced := s.unenforcedKey(q); unenforced && resource.Restricts(key.Kind) {
			keys = append(keys, key)
		}
	}
	return keys
}

// noteAbsentInvalid records the invalid keys of groups that a commit removed, and forgets those of groups that are
// there. before has the keys of the groups of the commit. The caller holds mu.
func (s *sink) noteAbsentInvalid(before map[string][]resource.Key) {
	for key, name := range s.absentInvalid {
		if s.ledger.groups[name] != nil {
			delete(s.absentInvalid, key)
		}
	}
	for name, keys := range before {
		if s.ledger.groups[name] == nil {
			for _, key := range keys {
				s.absentInvalid[key] = name
			}
		}
	}
}

// updateInvalid tells the table which objects have no valid version; see unenforced. While the guard holds a loss,
// those of removed groups stay so: they may be part of the loss. The caller holds mu.
func (s *sink) updateInvalid() {
	invalid := s.unenforced()
	if held := s.ledger.guard.Status(); held == nil || held.Objects == 0 {
		clear(s.absentInvalid)
	}
	for key := range s.absentInvalid {
		if s.table.Snapshot().Get(key) == nil {
			invalid = append(invalid, key)
		}
	}
	s.table.SetInvalid(invalid)
}

// unenforced returns the keys of all rejects of security objects that Envoys cannot enforce, and of policies that were
// never read. The caller holds mu.
func (s *sink) unenforced() (keys []resource.Key) {
	for _, g := range s.ledger.quarantines {
		keys = append(keys, s.unenforcedIn(g)...)
	}
	for namespace, reason := range s.unreadPolicies {
		if namespace != "" {
			key, _ := s.rules.transform.Key(resource.Key{Namespace: namespace})
			namespace = key.Namespace
		}
		name := fmt.Sprintf("%s: %s", s.source, reason)
		keys = append(keys, resource.Key{Kind: resource.Unrecognised, Namespace: namespace, Name: name})
	}
	return keys
}
