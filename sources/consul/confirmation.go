package consul

import (
	"time"

	"tributary/sources"
	"tributary/sources/consul/judge"
)

// This file lets confirmed names precede a loss. Services and names are read concurrently. So names that were read
// before a service do not show whether Consul lost its data before that read.
//
//  1. An answer lacks instances of a service, and there is a sign of lost data (needsConfirmation). Or an adopted
//     service has instances: the settings may not select it, or it was registered a moment ago (dropUnselected). The
//     service notes the number of the next confirmed read of the names to start: a read that runs already does not
//     count. It requests this read (requestConfirmedNames), and the verdict is Unconfirmed.
//  2. The watcher of the service waits for catalogScope.recovered (backOff). The watcher of the names reads them from
//     the leader. readNames gives the read its number as it starts.
//  3. applyNames stores the number of the read. If services are missing because Consul lost its data, a suspicion
//     begins. Then recover ends the wait of the watcher.
//  4. The watcher reads the service again. If the names of the noted read or of a later one were applied, the loss
//     counts, unless a suspicion holds the instances. Else it goes on with step 2.
//
// An answer without such a loss ends the note.

// confirmedReads numbers the confirmed reads of the names of a scope, from 1.
type confirmedReads struct {
	started int // number of the latest that started
	applied int // number of the latest with an accepted answer
}

// next is the number of the next read to start.
func (r confirmedReads) next() int { return r.started + 1 }

// requestConfirmedNames requests a confirmed read of the names. Watchers that retry wait for it.
func (s *catalogScope) requestConfirmedNames() {
	s.reread.Raise()
	s.suspend()
}

// needsConfirmation reports whether a loss may be that of a Consul without its data, which confirmed names exclude. The
// signs: the service is empty though the names list it, Consul was away, or the index went back.
func (s *service) needsConfirmation(answer serviceAnswer, verdict judge.Verdict) bool {
	reads := s.scope.confirmedReads
	if !s.loses(answer, verdict) {
		s.lossConfirmedBy = 0
		return false
	}
	contradictsNames := verdict == judge.Emptied && s.nameState == nameListed
	outage := s.scope.trouble != nil || s.trouble != nil && s.trouble.state == sources.Unreachable
	if s.lossConfirmedBy == 0 && (contradictsNames || outage || answer.Index < s.lastIndex) {
		s.lossConfirmedBy = reads.next()
	}
	if reads.applied < s.lossConfirmedBy {
		return true
	}
	s.lossConfirmedBy = 0
	return false
}

// dropUnselected empties an adopted service that has instances: the settings no longer select it. It waits for names
// that were read after the instances, which may be new.
func (s *service) dropUnselected(now time.Time) judge.Verdict {
	reads := s.scope.confirmedReads
	if s.unselectedConfirmedBy == 0 {
		s.unselectedConfirmedBy = reads.next()
	}
	if reads.applied < s.unselectedConfirmedBy {
		s.scope.requestConfirmedNames()
		return judge.Unconfirmed
	}
	s.delist(now)
	return judge.Emptied
}
