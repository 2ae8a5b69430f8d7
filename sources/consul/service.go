package consul

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
)

// nameState says whether the names of a scope list a service. The package comment has the transitions.
type nameState int

const (
	nameListed   nameState = iota
	nameMissing            // it was listed, and the names that lack it prove no absence
	nameAdopted            // an earlier run published it, and the names of this run never listed it
	nameDelisted           // it is certainly not among the names: answers about it do not count
)

// readState says whether a service was read.
type readState int

const (
	readPending readState = iota
	readRefused           // it was answered or quarantined, without instances to apply: a start does not wait for it
	readApplied           // its instances are those of an answer, and those that stay
)

// service is the state of one service in one scope.
type service struct {
	name   string
	scope  *catalogScope
	reread dial.Interrupt // interrupts its watcher: the next read is a confirmed one
	stop   context.CancelFunc

	nameState nameState
	readState readState
	restored  bool // an earlier run published endpoints of it that may still exist
	hasSlot   bool // a watch slot
	resyncing bool // the next read is part of the full compare

	instances     instances
	heldInstances int       // instances that Consul lacks, and that stay for now
	emptySince    time.Time // since when it certainly has no instances; zero if it has some
	graceEnded    bool      // without instances it is not served here: no longer, or it never was
	lastIndex     uint64    // index of the last answer applied

	trouble    *trouble // of its last read; nil after a good one
	failures   int      // consecutive failed reads that only concern this service
	quarantine error    // why the service itself cannot be read; nil if it can

	// Numbers of the confirmed reads of the names that have to precede a loss (confirmation.go); 0 for none.
	lossConfirmedBy       int // the loss of instances
	unselectedConfirmedBy int // the end of an adopted service that has instances
}

// applyAnswer applies an answer about the service, and returns the verdict on it.
func (s *service) applyAnswer(answer serviceAnswer, now time.Time) judge.Verdict {
	verdict := s.verdictOn(answer)
	if verdict == judge.Doubtful {
		return verdict // the next read decides
	}
	scope := s.scope
	scope.observeCluster(answer.Cluster, now)
	if s.needsConfirmation(answer, verdict) {
		scope.requestConfirmedNames()
		return judge.Unconfirmed
	}
	if len(answer.instances.list) == 0 {
		s.unselectedConfirmedBy = 0
	} else if s.nameState == nameAdopted {
		return s.dropUnselected(now)
	}
	s.settle()
	s.lastIndex = answer.Index
	s.failures = 0
	s.quarantine = nil
	s.trouble = nil
	if s.nameState == nameDelisted && verdict != judge.Denied && verdict != judge.Foreign {
		return judge.Absent
	}
	missing := answer.instances.missing(s.instances)
	var sinceLoss judge.Compared
	if len(missing)+answer.lost > 0 {
		sinceLoss = scope.nodes.compareSinceLoss(answer.instances.nodes())
	}
	scope.nodes.learn(answer.instances.nodes(), now)
	switch verdict {
	case judge.Foreign:
		if s.readState != readApplied {
			s.readState = readPending
		}
		s.fail(sources.Unreachable, dial.ErrForeign.Error())
	case judge.Denied:
		s.fail(sources.Denied, hiddenText(answer.Anonymous,
			"the token does not show its instances (node:read and service:read are needed)",
			"no token is sent, and Consul does not show its instances to anonymous requests: "+setToken))
	case judge.Partial:
		s.setInstances(answer.instances, missing, answer.lost)
		s.fail(sources.Denied, hiddenText(answer.Anonymous,
			fmt.Sprintf("the token no longer shows %d of its instances, which stay", s.heldInstances),
			fmt.Sprintf("no token is sent, and Consul may hide %d of its instances, which stay, from anonymous requests: %s",
				s.heldInstances, setToken)))
	case judge.Changed:
		if lost := len(missing) + answer.lost; lost > 0 {
			s.compareNodes(answer, lost, sinceLoss, now)
		}
		if scope.suspicion.Holds(now) {
			s.setInstances(answer.instances, missing, answer.lost)
		} else {
			s.setInstances(answer.instances, nil, 0)
		}
	case judge.Emptied:
		if scope.suspicion.Holds(now) {
			s.heldInstances = len(s.instances.list)
			return judge.Absent
		}
		if !s.emptySince.IsZero() && s.nameState != nameListed {
			return judge.Absent
		}
		s.markEmpty(now)
	case judge.Unchanged:
		s.heldInstances = 0
		s.restored = false
	}
	return verdict
}

// settle lets a start go on without the service.
func (s *service) settle() {
	if s.readState == readPending {
		s.readState = readRefused
	}
}

func (s *service) fail(state sources.State, message string) {
	s.trouble = &trouble{state: state, message: fmt.Sprintf("service %s: %s", s.name, message)}
}

// compareNodes suspects a loss of data if all nodes of the remaining instances were created again. During a suspicion,
// it compares the nodes that were read since the loss: if they were created again, Consul lost its data again.
func (s *service) compareNodes(answer serviceAnswer, missing int, sinceLoss judge.Compared, now time.Time) {
	compared := judge.Compared{
		HasBaseline: true,
		Before:      len(s.instances.list) + answer.lost,
		Now:         len(answer.instances.list),
		Missing:     missing,
	}
	if s.scope.suspicion.Holds(now) {
		compared.SameCreation, compared.Recreated = sinceLoss.SameCreation, sinceLoss.Recreated
	} else {
		s.scope.nodes.accepted.Compare(answer.instances.nodes(), 0, &compared)
	}
	if judge.Reset(compared, answer.Answer) {
		s.scope.suspect("Consul seems to have lost its data: the nodes of service "+s.name+" were made anew", now)
	}
}

// loses reports whether an answer with this verdict lacks instances.
func (s *service) loses(answer serviceAnswer, verdict judge.Verdict) bool {
	switch verdict {
	case judge.Emptied:
		return len(s.instances.list) > 0 || s.restored
	case judge.Changed:
		return len(answer.instances.missing(s.instances))+answer.lost > 0
	}
	return false
}

// setInstances stores the instances read, the missing ones that stay, and the number of restored endpoints that stay.
func (s *service) setInstances(read instances, missing []*api.ServiceEntry, lost int) {
	s.replaceInstances(read.plus(missing))
	s.readState = readApplied
	s.heldInstances = len(missing) + lost
	s.emptySince = time.Time{}
	s.graceEnded = false
	s.restored = s.restored && lost > 0
}

func (s *service) markEmpty(now time.Time) {
	s.replaceInstances(instances{})
	s.readState = readApplied
	s.heldInstances = 0
	s.restored = false
	if s.emptySince.IsZero() {
		s.emptySince = now
	}
}

// delist empties a service that the names certainly lack.
func (s *service) delist(now time.Time) {
	s.nameState = nameDelisted
	s.trouble = nil
	s.markEmpty(now)
}

// replaceInstances keeps the count of the scope.
func (s *service) replaceInstances(instances instances) {
	s.scope.instanceCount += len(instances.list) - len(s.instances.list)
	s.instances = instances
}

// maxFailures is how many consecutive reads have to fail before a service is quarantined.
const maxFailures = 3

// applyFailure stores why the service cannot be read. A service that fails alone is quarantined: it is settled, keeps
// its last instances, and does not delay others. It reports whether the service is quarantined now.
func (s *service) applyFailure(trouble *trouble) (quarantined bool) {
	scope := s.scope
	if trouble.state == sources.Denied && scope.recovered == nil && s.trouble == nil {
		scope.reread.Raise() // the token may have expired, for all services
	}
	if s.nameState == nameAdopted && s.trouble == nil { // the names may lack it
		scope.requestConfirmedNames()
	}
	if s.nameState == nameDelisted {
		return false
	}
	s.trouble = trouble
	if !trouble.request {
		s.failures = 0
		return false
	}
	s.failures++
	inexpressible := !dial.Expressible("/v1/health/service/" + s.name)
	// If no other service can be read, the filter is at fault, or a proxy.
	failsAlone := s.failures >= maxFailures && scope.trouble == nil && scope.tally().healthy
	if s.quarantine != nil || !inexpressible && !failsAlone {
		return false
	}
	s.settle()
	reason := "it cannot be read"
	if inexpressible {
		reason = "its name cannot be read over HTTP: register it under another one"
	}
	s.quarantine = fmt.Errorf("service %q: %s: %s", s.name, reason, trouble.message)
	return true
}

// reject is the rejection of a quarantined service. Without a key it stands for all objects of the service.
func (s *service) reject() sources.Reject {
	return sources.Reject{
		Origin:   resource.Origin{Place: "consul " + s.scope.prefix() + "service " + s.name},
		Err:      s.quarantine,
		LastGood: len(s.instances.list) > 0,
	}
}
