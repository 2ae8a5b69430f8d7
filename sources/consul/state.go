package consul

import (
	"cmp"
	"fmt"
	"iter"
	"time"

	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
	"tributary/sources/presence"
)

// state reduces answers of Consul to the services to publish. Its methods do no I/O and take no locks; time is an
// argument. The mutex of run guards it. An answer that raises doubts requests the next read by an interrupt.
type state struct {
	settings Settings
	limits   limits
	scopes   []*catalogScope
	restored map[string]bool // services that an earlier run published, until they are complete or withdrawn

	changedServices   map[string]bool
	namesChanged      bool
	unselectedChanged bool
	synced            bool
	recordChanged     bool
	recordedAt        time.Time
}

// catalogScope is the state of one scope.
type catalogScope struct {
	scope
	resetHold time.Duration
	reread    dial.Interrupt // interrupts the watcher of its names
	lifeline  dial.Lifeline  // ends its blocking queries
	changes   changeResults

	// The names.
	namesRead      bool            // this run read them
	listing        listing         // the last one applied, or that of the record
	heldNames      []string        // services that an earlier run held, until the names are read
	recorded       map[string]bool // services that an earlier run had or held here; nil without a listing of that run
	trouble        *trouble        // why the names cannot be read; nil after a good read
	recovered      chan struct{}   // closed at the end of trouble or doubt; nil without
	confirmedReads confirmedReads

	services       map[string]*service
	instanceCount  int
	datacenterSeen string // datacenter of its instances, where the scope names none

	// The servers and their data.
	serverTrouble *trouble           // no leader, or too long without contact to it
	clusterID     string             // identity of the last cluster; empty if unknown
	suspicion     presence.Suspicion // that Consul lost its data; away while the names are in trouble
	nodes         nodes
}

// mayRestore reports whether an earlier run may have published instances here of a service.
func (s *catalogScope) mayRestore(name string) bool { return s.recorded == nil || s.recorded[name] }

// trouble is a failed read.
type trouble struct {
	state   sources.State // Unreachable, Denied or Degraded
	message string
	request bool // the request or the answer is at fault, and not the connection
}

// suspect starts a hold. The nodes as they are now are no reason for the next suspicion.
func (s *catalogScope) suspect(reason string, now time.Time) {
	s.suspicion = presence.Suspect(now, s.resetHold, reason)
	if s.trouble != nil {
		s.suspicion = s.suspicion.Leave(now)
	}
	s.nodes.reset(now)
}

const setToken = "set tokenFile or CONSUL_HTTP_TOKEN" //nolint:gosec // no token

// hiddenText is the message about data that Consul hides.
func hiddenText(anonymous bool, tokenText, anonymousText string) string {
	if anonymous {
		return anonymousText
	}
	return tokenText
}

// tally counts the services of a scope by their state.
type tally struct {
	pending, readable, denied int
	healthy                   bool     // the last read of some service was good
	troubled                  []string // services in trouble, without the quarantined ones
}

func (s *catalogScope) tally() (tally tally) {
	for name, service := range s.services {
		switch {
		case service.readState == readPending:
			tally.pending++
		case service.readState == readApplied && service.trouble == nil:
			tally.healthy = true
		}
		if service.quarantine != nil {
			continue
		}
		tally.readable++
		if service.trouble != nil {
			tally.troubled = append(tally.troubled, name)
			if service.trouble.state == sources.Denied {
				tally.denied++
			}
		}
	}
	return tally
}

// complete reports whether the first full read ended. A service that the token may not read does not delay it; if the
// token may read no service, the scope is denied.
func (s *catalogScope) complete() bool {
	tally := s.tally()
	return s.namesRead && tally.pending == 0 && (tally.denied == 0 || tally.denied < tally.readable)
}

// applyNames applies a listing, and returns its verdict, the new names, and the services to read again.
func (s *catalogScope) applyNames(listing listing, now time.Time) (
	verdict judge.Verdict, added []string, reread []*service,
) {
	compared := s.compare(listing)
	s.nodes.accepted.Compare(listing.nodes, 0, &compared)
	verdict, wiped := verdictOnNames(compared, listing.Answer)
	switch verdict {
	case judge.Doubtful:
		return verdict, nil, nil
	case judge.Foreign:
		s.fail(&trouble{state: sources.Unreachable, message: dial.ErrForeign.Error()}, now)
		return verdict, nil, nil
	case judge.Denied:
		s.fail(&trouble{state: sources.Denied, message: hiddenText(listing.Anonymous,
			"the token does not show any service (service:read and node:read are needed)",
			"no token is sent, and Consul shows nothing to anonymous requests: "+setToken)}, now)
		return verdict, nil, nil
	}
	s.nodes.learn(listing.nodes, now)
	switch {
	case wiped:
		s.suspect(judge.Why(compared, listing.Answer, "services"), now)
	case s.namesRead && s.tally().pending == 0: // first reads are compared with the nodes of the earlier run
		s.nodes.accept(now.Add(-s.resetHold))
		s.forgetNodes()
	}
	wentBack := s.namesRead && listing.Index < s.listing.Index // earlier watches wait for indexes of the future
	s.namesRead = true
	s.listing = listing
	s.clusterID = cmp.Or(listing.Cluster, s.clusterID)
	if listing.Confirmed {
		s.confirmedReads.applied = listing.confirmedRead
	}
	for name := range listing.names {
		service := s.services[name]
		if service == nil {
			added = append(added, name)
			continue
		}
		if service.nameState != nameListed || wentBack {
			reread = append(reread, service)
		}
		service.nameState = nameListed
		service.unselectedConfirmedBy = 0
	}
	provesAbsence := listing.Confirmed && !listing.Filtered && !s.suspicion.Holds(now)
	for name, service := range s.services {
		if _, listed := listing.names[name]; listed || service.nameState == nameDelisted {
			continue
		}
		if provesAbsence {
			service.delist(now)
			verdict = judge.Changed
		} else if service.nameState == nameListed {
			service.nameState = nameMissing
			reread = append(reread, service)
		}
	}
	s.recover(now)
	return verdict, added, reread
}

// fail stores why the names cannot be read.
func (s *catalogScope) fail(trouble *trouble, now time.Time) {
	s.trouble = trouble
	s.suspicion = s.suspicion.Leave(now)
	s.suspend()
}

// suspend makes watchers that retry wait for the names.
func (s *catalogScope) suspend() {
	if s.recovered == nil {
		s.recovered = make(chan struct{})
	}
}

// recover ends trouble and doubt.
func (s *catalogScope) recover(now time.Time) {
	s.suspicion = s.suspicion.Return(now)
	s.trouble = nil
	if s.recovered != nil {
		close(s.recovered)
		s.recovered = nil
	}
}

// observeCluster stores the identity of the cluster. Another cluster has lost its data.
func (s *catalogScope) observeCluster(cluster string, now time.Time) {
	if judge.IsOtherCluster(s.clusterID, cluster) {
		s.suspect("Consul seems to have lost its data: it is another cluster than before", now)
	}
	s.clusterID = cmp.Or(cluster, s.clusterID)
}

// servicesNamed returns the services of a name in all scopes.
func (st *state) servicesNamed(name string) iter.Seq[*service] {
	return func(yield func(*service) bool) {
		for _, scope := range st.scopes {
			if service := scope.services[name]; service != nil && !yield(service) {
				return
			}
		}
	}
}

// rejects are those of the scopes that cannot read a service.
func (st *state) rejects(name string) (rejects []sources.Reject) {
	for service := range st.servicesNamed(name) {
		if service.quarantine != nil {
			rejects = append(rejects, service.reject())
		}
	}
	return rejects
}

// The number of services and of instances is bounded. Beyond it, answers are errors, and the last good ones stay.
const (
	maxServices  = 100_000   // in one scope
	maxInstances = 1_000_000 // in all services together
)

type limits struct{ services, instances int }

func (st *state) checkServiceLimit(listing listing) error {
	if count := len(listing.names); count > st.limits.services {
		return fmt.Errorf("read the names of services: there are %d, and at most %d are followed: %w", count,
			st.limits.services, dial.ErrTooMuch)
	}
	return nil
}

func (st *state) checkInstanceLimit(service *service, answer serviceAnswer) error {
	before, count := len(service.instances.list), len(answer.instances.list)
	total := count - before
	for _, scope := range st.scopes {
		total += scope.instanceCount
	}
	if count > before && total > st.limits.instances {
		return fmt.Errorf("read service %s: with its %d instances there would be %d, and at most %d are kept: %w",
			service.name, count, total, st.limits.instances, dial.ErrTooMuch)
	}
	return nil
}
