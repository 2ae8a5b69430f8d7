package consul

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/resource"
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
	restored map[string]bool // services that an earlier run published

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
	reread    dial.Interrupt // of the watcher of its names
	lifeline  dial.Lifeline  // of its blocking queries

	namesRead             bool
	listing               listing // the last one that was applied
	services              map[string]*service
	datacenterSeen        string             // where the scope names none
	trouble               *trouble           // with the names; nil after a good read
	recovered             chan struct{}      // closed at the end of trouble or doubt; nil without
	confirmedReadsStarted int                // of the names
	lastConfirmedRead     int                // the last good one proves the state when it started
	serverTrouble         *trouble           // no leader, or too long without contact to it
	suspicion             presence.Suspicion // that it lost its data; it is away while it is in trouble
	cluster               string             // identity of the last cluster; empty if unknown
	fromRecord            bool               // an earlier run left the listing, until the names are read
	heldNames             []string           // services that an earlier run held, until the names are read
	instanceCount         int
	changes               changeNotes
	nodes                 nodes
}

// service is the state of one service in one scope.
type service struct {
	name   string
	scope  *catalogScope
	reread dial.Interrupt // of its watcher: the next read is a confirmed one
	stop   context.CancelFunc

	settled       bool // read, or refused
	wasRead       bool
	instances     instances
	heldInstances int       // instances that Consul lacks, and that stay for now
	emptySince    time.Time // since when it certainly has no instances; zero if it has some
	listed        bool      // among the names
	watched       bool      // it has a watch slot
	failures      int       // consecutive failed reads that only concern this service
	quarantine    error     // why the service itself cannot be read; nil if it can
	delisted      bool      // certainly not among the names: reads of it do not count
	trouble       *trouble  // with its last read
	resyncing     bool      // the next read is part of the full compare
	lastIndex     uint64
	restored      bool // an earlier run published it, and some of that may still exist
	adopted       bool // an earlier run published it, and the names do not list it yet

	// unselectedAfterRead is the confirmed read of the names that proves an adopted service unselected. It starts after
	// its instances were read; 0 before that.
	unselectedAfterRead int
	// confirmAfterRead is the confirmed read of the names that has to precede a loss; 0 without doubts.
	confirmAfterRead int
}

// trouble is a failed read.
type trouble struct {
	state   sources.State // Unreachable, Denied or Degraded
	message string
	request bool // the request or the answer is at fault, and not the connection
}

// suspect starts a hold. The nodes as they are now are no reason for the next suspicion.
func (p *catalogScope) suspect(reason string, now time.Time) {
	p.suspicion = presence.Suspect(now, p.resetHold, reason)
	if p.trouble != nil {
		p.suspicion = p.suspicion.Leave(now)
	}
	p.nodes.reset(now)
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
	unsettled, readable, denied int
	healthy                     bool     // the last read of some service was good
	troubled                    []string // services in trouble, without the quarantined ones
}

func (p *catalogScope) tally() (tally tally) {
	for name, service := range p.services {
		if !service.settled {
			tally.unsettled++
		}
		tally.healthy = tally.healthy || service.wasRead && service.trouble == nil
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
func (p *catalogScope) complete() bool {
	t := p.tally()
	return p.namesRead && t.unsettled == 0 && (t.denied == 0 || t.denied < t.readable)
}

// applyAnswer applies a read of the service, and returns its meaning.
func (s *service) applyAnswer(answer reading, now time.Time) meaning {
	meaning := meaningOf(s.instances, s.wasRead, answer)
	if meaning == doubtful {
		return meaning // the next read decides
	}
	catalogScope := s.scope
	catalogScope.observeCluster(answer.Cluster, now)
	if s.needsConfirmation(answer, meaning) {
		catalogScope.requestConfirmedNames()
		return unvouched
	}
	if len(answer.instances.list) == 0 {
		s.unselectedAfterRead = 0
	} else if s.adopted && !s.delisted {
		return s.dropUnselected(now)
	}
	s.lastIndex, s.settled, s.failures, s.quarantine, s.trouble = answer.Index, true, 0, nil, nil
	if s.delisted && meaning != denied && meaning != foreign {
		return absent
	}
	missing := answer.instances.missing(s.instances)
	var sinceLoss judge.Compared
	if len(missing)+answer.lost > 0 {
		sinceLoss = catalogScope.nodes.compareSinceLoss(answer.instances.nodes())
	}
	catalogScope.nodes.learn(answer.instances.nodes(), now)
	fail := func(state sources.State, message string) {
		s.trouble = &trouble{state: state, message: fmt.Sprintf("service %s: %s", s.name, message)}
	}
	switch meaning {
	case foreign:
		s.settled = s.wasRead
		fail(sources.Unreachable, dial.ErrForeign.Error())
	case denied:
		fail(sources.Denied, hiddenText(answer.Anonymous,
			"the token does not show its instances (node:read and service:read are needed)",
			"no token is sent, and Consul does not show its instances to anonymous requests: "+setToken))
	case partial:
		s.setInstances(answer.instances, missing, answer.lost)
		fail(sources.Denied, hiddenText(answer.Anonymous,
			fmt.Sprintf("the token no longer shows %d of its instances, which stay", s.heldInstances),
			fmt.Sprintf("no token is sent, and Consul may hide %d of its instances, which stay, from anonymous requests: %s",
				s.heldInstances, setToken)))
	case changed:
		if lost := len(missing) + answer.lost; lost > 0 {
			s.compareNodes(answer, lost, sinceLoss, now)
		}
		if !catalogScope.suspicion.Holds(now) {
			missing, answer.lost = nil, 0
		}
		s.setInstances(answer.instances, missing, answer.lost)
	case emptied:
		if catalogScope.suspicion.Holds(now) {
			s.heldInstances = len(s.instances.list)
			return absent
		}
		if !s.emptySince.IsZero() && !s.listed {
			return absent
		}
		s.markEmpty(now)
	case unchanged:
		s.heldInstances, s.restored = 0, false
	}
	return meaning
}

// compareNodes suspects a loss of data if all nodes of the remaining instances were created again. During a suspicion,
// it compares the nodes that were read since the loss: if they were created again, Consul lost its data again.
func (s *service) compareNodes(r reading, missing int, c judge.Compared, now time.Time) {
	c.HasBaseline, c.Before, c.Now, c.Missing = true, len(s.instances.list)+r.lost, len(r.instances.list), missing
	if !s.scope.suspicion.Holds(now) {
		c.SameCreation, c.Recreated = 0, 0
		s.scope.nodes.accepted.Compare(r.instances.nodes(), 0, &c)
	}
	if judge.Reset(c, r.Answer) {
		s.scope.suspect("Consul seems to have lost its data: the nodes of service "+s.name+" were made anew", now)
	}
}

// dropUnselected empties an adopted service that has instances: the settings no longer select it. It waits for names
// that were read after the instances, which may be new.
func (s *service) dropUnselected(now time.Time) meaning {
	catalogScope := s.scope
	if s.unselectedAfterRead == 0 {
		s.unselectedAfterRead = catalogScope.confirmedReadsStarted + 1
	}
	if catalogScope.lastConfirmedRead < s.unselectedAfterRead {
		catalogScope.requestConfirmedNames()
		return unvouched
	}
	s.delist(now)
	return emptied
}

// needsConfirmation reports whether a loss may be that of a Consul without its data, which confirmed names exclude. The
// signs: the service is empty though the names list it, Consul was away, or the index went back. Services and names are
// read concurrently, so the names have to be read after the service, and then the service again.
func (s *service) needsConfirmation(answer reading, meaning meaning) bool {
	catalogScope := s.scope
	if !s.loses(answer, meaning) {
		s.confirmAfterRead = 0
		return false
	}
	outage := catalogScope.trouble != nil || s.trouble != nil && s.trouble.state == sources.Unreachable
	if s.confirmAfterRead == 0 && (meaning == emptied && s.listed || outage || answer.Index < s.lastIndex) {
		s.confirmAfterRead = catalogScope.confirmedReadsStarted + 1
	}
	if catalogScope.lastConfirmedRead < s.confirmAfterRead {
		return true
	}
	s.confirmAfterRead = 0
	return false
}

// loses reports whether instances are missing in a reading with this meaning.
func (s *service) loses(r reading, m meaning) bool {
	return m == emptied && (len(s.instances.list) > 0 || s.restored) ||
		m == changed && len(r.instances.missing(s.instances))+r.lost > 0
}

// setInstances stores the instances read, the missing ones that stay, and the number of restored endpoints that stay.
func (s *service) setInstances(i instances, missing []*api.ServiceEntry, lost int) {
	s.replaceInstances(i.plus(missing))
	s.wasRead, s.heldInstances, s.emptySince = true, len(missing)+lost, time.Time{}
	s.restored = s.restored && lost > 0
}

func (s *service) markEmpty(now time.Time) {
	s.replaceInstances(instances{})
	s.wasRead, s.heldInstances, s.restored = true, 0, false
	if s.emptySince.IsZero() {
		s.emptySince = now
	}
}

// delist empties a service that the names certainly lack.
func (s *service) delist(now time.Time) {
	s.settled, s.delisted, s.trouble = true, true, nil
	s.markEmpty(now)
}

// replaceInstances keeps the count of the scope.
func (s *service) replaceInstances(i instances) {
	s.scope.instanceCount += len(i.list) - len(s.instances.list)
	s.instances = i
}

// compare compares a listing with the last one, which an earlier run may have left.
func (p *catalogScope) compare(l listing) judge.Compared {
	c := l.compare(p.listing, p.namesRead || p.fromRecord, p.trouble != nil || !p.namesRead)
	c.OtherCluster = judge.IsOtherCluster(p.cluster, l.Cluster)
	return c
}

// applyNames applies a listing, and returns its meaning, the new names, and the services to read again.
func (p *catalogScope) applyNames(listing listing, now time.Time) (meaning meaning, added []string, reread []*service) {
	compared := p.compare(listing)
	p.nodes.accepted.Compare(listing.nodes, 0, &compared)
	meaning, wiped := meaningOfNames(compared, listing)
	switch meaning {
	case doubtful:
		return meaning, nil, nil
	case foreign:
		p.fail(&trouble{state: sources.Unreachable, message: dial.ErrForeign.Error()}, now)
		return meaning, nil, nil
	case denied:
		p.fail(&trouble{state: sources.Denied, message: hiddenText(listing.Anonymous,
			"the token does not show any service (service:read and node:read are needed)",
			"no token is sent, and Consul shows nothing to anonymous requests: "+setToken)}, now)
		return meaning, nil, nil
	}
	p.nodes.learn(listing.nodes, now)
	switch {
	case wiped:
		p.suspect(judge.Why(compared, listing.Answer, "services"), now)
	case p.namesRead && p.tally().unsettled == 0: // first reads are compared with the nodes of the earlier run
		p.nodes.accept(now.Add(-p.resetHold))
		p.forgetNodes()
	}
	wentBack := p.namesRead && listing.Index < p.listing.Index // earlier watches wait for indexes of the future
	p.namesRead, p.listing, p.cluster = true, listing, cmp.Or(listing.Cluster, p.cluster)
	if listing.Confirmed {
		p.lastConfirmedRead = listing.confirmedRead
	}
	for name := range listing.names {
		service := p.services[name]
		if service == nil {
			added = append(added, name)
			continue
		}
		if !service.listed || wentBack {
			service.delisted = false
			reread = append(reread, service)
		}
		service.listed, service.adopted, service.unselectedAfterRead = true, false, 0
	}
	for name, service := range p.services {
		if _, listed := listing.names[name]; listed || service.delisted {
			continue
		}
		if listing.Filtered || p.suspicion.Holds(now) {
			if service.listed { // the names cannot prove its end
				reread = append(reread, service)
			}
		} else if listing.Confirmed {
			service.delist(now)
			meaning = changed
		}
		service.listed = false
	}
	p.recover(now)
	return meaning, added, reread
}

// fail stores why the names cannot be read.
func (p *catalogScope) fail(t *trouble, now time.Time) {
	p.trouble, p.suspicion = t, p.suspicion.Leave(now)
	p.suspend()
}

// suspend has watchers that retry wait for the names.
func (p *catalogScope) suspend() {
	if p.recovered == nil {
		p.recovered = make(chan struct{})
	}
}

func (p *catalogScope) requestConfirmedNames() {
	p.reread.Raise()
	p.suspend()
}

// recover ends trouble and doubt.
func (p *catalogScope) recover(now time.Time) {
	p.suspicion, p.trouble = p.suspicion.Back(now), nil
	if p.recovered != nil {
		close(p.recovered)
		p.recovered = nil
	}
}

// observeCluster stores the identity of the cluster. Another cluster has lost its data.
func (p *catalogScope) observeCluster(cluster string, now time.Time) {
	if judge.IsOtherCluster(p.cluster, cluster) {
		p.suspect("Consul seems to have lost its data: it is another cluster than before", now)
	}
	p.cluster = cmp.Or(cluster, p.cluster)
}

// maxFailures is how many consecutive reads have to fail before a service is quarantined.
const maxFailures = 3

// applyFailure stores why the service cannot be read. A service that fails alone is quarantined: it is settled, keeps
// its last instances, and does not delay others. It reports whether the service is quarantined now.
func (s *service) applyFailure(trouble *trouble) (quarantined bool) {
	p := s.scope
	if trouble.state == sources.Denied && p.recovered == nil && s.trouble == nil {
		p.reread.Raise() // the token may have expired, for all services
	}
	if s.adopted && !s.delisted && s.trouble == nil { // the names may lack it
		p.requestConfirmedNames()
	}
	if s.delisted {
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
	if s.quarantine != nil || !inexpressible && (s.failures < maxFailures || p.trouble != nil || !p.tally().healthy) {
		return false
	}
	s.settled = true
	reason := "it cannot be read"
	if inexpressible {
		reason = "its name cannot be read over HTTP: register it under another one"
	}
	s.quarantine = fmt.Errorf("service %q: %s: %s", s.name, reason, trouble.message)
	return true
}

// servicesNamed returns the services of a name in all scopes.
func (st *state) servicesNamed(name string) iter.Seq[*service] {
	return func(yield func(*service) bool) {
		for _, p := range st.scopes {
			if s := p.services[name]; s != nil && !yield(s) {
				return
			}
		}
	}
}

// isRestored reports whether endpoints that an earlier run published may stay without a known instance.
func (st *state) isRestored(name string) bool {
	for s := range st.servicesNamed(name) {
		if s.restored {
			return true
		}
	}
	return false
}

// rejects are those of a service that cannot be read in some scopes. Without a key they stand for all its objects.
func (st *state) rejects(name string) (rejects []sources.Reject) {
	for s := range st.servicesNamed(name) {
		if s.quarantine != nil {
			place := "consul " + s.scope.prefix() + "service " + name
			rejects = append(rejects, sources.Reject{
				Origin: resource.Origin{Place: place}, Err: s.quarantine, LastGood: len(s.instances.list) > 0,
			})
		}
	}
	return rejects
}

// The number of services and of instances is bounded. Beyond it, answers are errors, and the last good ones stay.
const (
	maxServices  = 100_000   // of one scope
	maxInstances = 1_000_000 // of all services
)

type limits struct{ services, instances int }

func (st *state) checkServiceLimit(l listing) error {
	if count := len(l.names); count > st.limits.services {
		return fmt.Errorf("read the names of services: there are %d, of which %d at most are followed: %w", count,
			st.limits.services, dial.ErrTooMuch)
	}
	return nil
}

func (st *state) checkInstanceLimit(service *service, answer reading) error {
	before, count := len(service.instances.list), len(answer.instances.list)
	total := count - before
	for _, p := range st.scopes {
		total += p.instanceCount
	}
	if count > before && total > st.limits.instances {
		return fmt.Errorf("read service %s: with its %d instances there would be %d, of which %d at most are kept: %w",
			service.name, count, total, st.limits.instances, dial.ErrTooMuch)
	}
	return nil
}

// The record of a run lets the next one judge its first answers as a running source would: it detects a Consul that
// lost its data in between, and continues holds.

// indexRecordInterval is how long a change of indexes alone waits to be recorded, so that a busy Consul does not cause
// constant writes.
const indexRecordInterval = 30 * time.Second

// identity names the settings that select services, and the Consul.
func (s Settings) identity() string {
	fields := []any{s.address, s.Services, s.Skip, s.Tags, s.Filter, s.HealthFilter}
	if s.Selection != "" {
		fields = append(fields, s.Selection)
	}
	text, err := json.Marshal(fields)
	if err != nil { // of plain data
		panic(err)
	}
	return string(text)
}

// restore applies the record of an earlier run. It returns the services in it, and whether it has those of all scopes.
func (st *state) restore(record []byte, now time.Time) (names []string, complete bool) {
	records, err := judge.Decode(record, st.settings.identity(), now, st.settings.ResetHold)
	if err != nil {
		return nil, false // as at a first start
	}
	complete = true
	for _, catalogScope := range st.scopes {
		saved := records.Parts[catalogScope.String()]
		catalogScope.suspicion, catalogScope.heldNames = saved.Suspicion, saved.Held
		names = append(names, saved.Held...)
		if saved.Index == 0 {
			complete = false
			continue
		}
		catalogScope.fromRecord, catalogScope.cluster = true, saved.Cluster
		catalogScope.listing = listing{Answer: judge.Answer{Index: saved.Index}, names: make(map[string][]string)}
		for _, name := range saved.Names {
			catalogScope.listing.names[name] = nil
			names = append(names, name)
		}
		maps.Copy(catalogScope.nodes.accepted, saved.CreateIndexes)
	}
	return names, complete
}

// record returns the record for the next run.
func (st *state) record() []byte {
	records := judge.Records{Settings: st.settings.identity(), Parts: make(map[string]judge.Record)}
	for _, catalogScope := range st.scopes {
		r := judge.Record{Suspicion: catalogScope.suspicion}
		if catalogScope.namesRead || catalogScope.fromRecord {
			r.Index, r.Cluster, r.CreateIndexes = catalogScope.listing.Index, catalogScope.cluster, catalogScope.nodes.accepted
			r.Names = slices.Sorted(maps.Keys(catalogScope.listing.names))
		}
		if !catalogScope.namesRead {
			r.Held = slices.Clone(catalogScope.heldNames)
		}
		for name, s := range catalogScope.services {
			if _, listed := catalogScope.listing.names[name]; !listed && (s.restored || len(s.instances.list) > 0) {
				r.Held = append(r.Held, name)
			}
		}
		slices.Sort(r.Held)
		records.Parts[catalogScope.String()] = r
	}
	return records.Encode()
}
