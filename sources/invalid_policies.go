package sources

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"tributary/resource"
	"tributary/sources/lastgood"
)

// This file decides which rejects count as invalid policies: they may restrict traffic, no valid version of them is
// served, and Envoys refuse the requests that they may concern.

// PolicyReader is an optional interface of a Sink, for sources that can name namespaces with policies that they never
// read.
type PolicyReader interface {
	// UnreadPolicies replaces the reasons why policies were never read, by namespace; the empty one stands for all.
	// Envoys of these namespaces refuse all requests. Call it before Synced.
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
	logAdded := func(event string, from, to map[string]string) {
		for namespace, text := range to {
			if _, exists := from[namespace]; !exists {
				s.log.Warn("objects that may restrict traffic", "event", event, "namespace", namespace, "why", text)
				s.onEvent(event, "objects that may restrict traffic: "+text)
			}
		}
	}
	logAdded(EventQuarantined, before, reasons)
	logAdded(EventQuarantineEnd, reasons, before)
}

// takesPolicies reports whether the transforms keep objects of a kind that restricts traffic.
func (a admissionRules) takesPolicies() bool {
	kinds := append([]resource.Kind{resource.MeshConfig}, resource.SecurityKinds...)
	return slices.ContainsFunc(kinds, a.transform.TakesKind)
}

// countNeverValid counts the rejects that may restrict traffic and are no versions of kept objects: of two broken
// documents in a group that keeps one policy, one was never valid. A reject that was counted stays counted until it is
// gone. One reject may stand for several kept objects, such as a broken list: a later reject that comes without a new
// kept object was never valid. Nor was a reject in a namespace without a kept object.
func (g *group) countNeverValid() {
	rejects, keptCount, withoutKept := 0, 0, 0
	keepingNamespaces := make(map[string]bool)
	keepsMesh := false // a MeshConfig has no namespace
	for key, isNamed := range g.lastGoodNamed {
		if !isNamed && resource.Restricts(key.Kind) {
			keptCount++
			keepingNamespaces[key.Namespace] = true
			keepsMesh = keepsMesh || key.Kind == resource.MeshConfig
		}
	}
	for _, quarantined := range g.quarantine {
		if !quarantined.mayRestrict {
			continue
		}
		rejects++
		mayBeMesh := keepsMesh && (quarantined.Kind == "" || quarantined.Kind == resource.MeshConfig)
		if quarantined.Namespace != "" && !keepingNamespaces[quarantined.Namespace] && !mayBeMesh {
			withoutKept++
		}
	}
	newKept := max(0, keptCount-g.restrictingKept)
	newNeverValid := max(0, rejects-g.restrictingRejects-newKept)
	neverValid := max(rejects-keptCount, withoutKept, min(g.neverValid+newNeverValid, rejects))
	if neverValid != g.neverValid || rejects != g.restrictingRejects || keptCount != g.restrictingKept {
		remarks := g.ownRemarks()
		remarks.neverValid = neverValid
		remarks.restrictingRejects = rejects
		remarks.restrictingKept = keptCount
	}
}

// invalidPolicyKey returns the key of a reject that Envoys cannot enforce, and reports whether the reject is one: it
// may restrict traffic, and no valid version of it is served. The caller holds mu.
func (s *sink) invalidPolicyKey(quarantined Quarantined) (key resource.Key, isInvalidPolicy bool) {
	switch reject := (Reject{Key: quarantined.Key()}); {
	case quarantined.foreign:
	case reject.isIdentified():
		return quarantined.Key(), !quarantined.LastGoodServes && resource.Restricts(quarantined.Kind)
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

// storedRejects returns the invalid policies of a group, to be stored with its print. The caller holds mu.
func (s *sink) storedRejects(g *group) (stored []storedReject) {
	rejects := slices.Clone(g.quarantine)
	s.ledger.fillServing(rejects)
	for _, q := range rejects {
		if _, isInvalidPolicy := s.invalidPolicyKey(q); isInvalidPolicy {
			stored = append(stored, storedReject{q, q.mayRestrict})
		}
	}
	return stored
}

// storeRejects stores the prints of all groups with invalid policies: the prints of other settings were dropped. The
// caller holds mu, or no other method was called.
func (s *sink) storeRejects() {
	if s.lastGood == nil {
		return
	}
	for name, g := range s.ledger.quarantines {
		if rejects := s.storedRejects(g); len(rejects) > 0 {
			s.lastGood.SetPrint(name, lastgood.Print{Notes: encoded(groupNotes{TextID: g.textID, Rejects: rejects})})
		}
	}
}

// groupInvalidPolicyKeys returns the keys of the invalid policies of a group. The caller holds mu.
func (s *sink) groupInvalidPolicyKeys(g *group) (keys []resource.Key) {
	for _, q := range g.quarantine {
		q.LastGoodServes = s.ledger.winners[q.Key()].isLastGood
		if key, isInvalidPolicy := s.invalidPolicyKey(q); isInvalidPolicy {
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

// updateInvalid sets the invalid policies of the table. While the guard holds a loss, those of removed groups stay:
// they may be part of the loss. The caller holds mu.
func (s *sink) updateInvalid() {
	invalid := s.invalidPolicyKeys()
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

// invalidPolicyKeys returns the keys of all invalid policies, and of policies that were never read. The caller holds
// mu.
func (s *sink) invalidPolicyKeys() (keys []resource.Key) {
	for _, g := range s.ledger.quarantines {
		keys = append(keys, s.groupInvalidPolicyKeys(g)...)
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
