package consul

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/dial"
	"tributary/sources/consul/judge"
)

// part is a domain and what is known of it.
type part struct {
	domain
	resetHold time.Duration
	again     interrupt // of the loop that reads its names

	// Guarded by the mu of run.
	known     bool    // the names were read
	listing   listing // that was believed last
	services  map[string]*service
	learned   string          // the name of the datacenter, where the domain does not say it
	trouble   *trouble        // with the names; nil if the last read was good
	down      chan struct{}   // closed when trouble, or doubt, ends; nil without
	begun     int             // certain reads of the names that began
	certain   int             // the last of them that was good: it vouches for what was so when it began
	behind    *trouble        // with its servers: no leader, or too long without contact to it
	suspicion judge.Suspicion // that Consul lost its data
	away      time.Time       // when the trouble began
	cluster   string          // that was believed last; empty if it is not known
	based     bool            // the listing is the last one of an earlier run, until the names are known
	held      []string        // services that an earlier run held and Consul did not list; used until the names are known
	instances int             // that services have, together
	note      note            // of what changed, for those without a place
	nodes     nodes
}

// service is one service of a domain and what is known of it.
type service struct {
	name  string
	part  *part
	again interrupt // of its loop: its next read is a certain one
	stop  context.CancelFunc

	// Guarded by the mu of run.
	settled   bool // it was read, or we were told that we may not
	known     bool // it was read
	instances instances
	held      int       // instances that Consul does not have, and that stay for now
	gone      time.Time // since when it has none for certain; zero if it has
	listed    bool      // among the names
	placed    bool      // it has a place to wait
	failures  int       // reads in a row that failed for its own sake
	refusal   error     // why it cannot be read, itself; nil if it can, or if that is not known
	delisted  bool      // not among them for certain: what is read of it does not count
	trouble   *trouble  // with its last read
	healing   bool      // the full compare found a difference
	index     uint64    // of the last answer
	answers   int       // so far
	restored  bool      // an earlier run published it, and it is not settled yet whether all of that is there still
	adopted   bool      // an earlier run published it, and the names have not listed it yet
	asked     int       // from which certain read of the names on it is not ours, if adopted and still not listed; 0 if not asked
	vouch     int       // from which certain read of the names on a loss is to be believed, after something was odd
}

// trouble is why something could not be read.
type trouble struct {
	state   sources.State // Unreachable or Denied
	message string
	own     bool // what was asked is at fault, or what was answered, and not that Consul cannot be reached
}

// suspected reports whether the domain may have lost its data. While it cannot be read that does not end: nobody can tell it
// anything then.
func (p *part) suspected(now time.Time) bool {
	return p.suspicion.Holds(now) || p.trouble != nil && p.suspicion.Why != ""
}

// suspect notes that the domain lost its data, and why that is. What was made anew by that is no reason to suspect it again.
func (p *part) suspect(why string, now time.Time) {
	p.suspicion, p.away = judge.Suspicion{Until: now.Add(p.resetHold), Why: why}, now
	p.nodes.believe(now)
}

const setToken = "set tokenFile or CONSUL_HTTP_TOKEN" //nolint:gosec // no token

// unseen is what to say of something that Consul hides.
func unseen(anonymous bool, withToken, without string) string {
	if anonymous {
		return without
	}
	return withToken
}

// tally says how the services of a part are. Those that cannot be read, themselves, are in quarantine.
type tally struct {
	unsettled, readable, denied int
	well                        bool     // some was read, and nothing has been the matter with it since
	troubled                    []string // readable ones that are in trouble
}

func (p *part) tally() (t tally) {
	for name, s := range p.services {
		if !s.settled {
			t.unsettled++
		}
		t.well = t.well || s.known && s.trouble == nil
		if s.refusal != nil {
			continue
		}
		t.readable++
		if s.trouble != nil {
			t.troubled = append(t.troubled, name)
			if s.trouble.state == sources.Denied {
				t.denied++
			}
		}
	}
	return t
}

// unconfirmed counts the services with instances that Consul does not list now.
func (p *part) unconfirmed() (count int) {
	for _, s := range p.services {
		if s.held > 0 || !s.listed && len(s.instances.list) > 0 {
			count++
		}
	}
	return count
}

// complete reports whether all that the domain had at the start was read. A service that we may not read does not
// hold up the others; if it is all of them that can be read, we may not read the domain.
func (p *part) complete() bool {
	t := p.tally()
	return p.known && t.unsettled == 0 && (t.denied == 0 || t.denied < t.readable)
}

// take applies what was read of s, and returns what that meant. The caller holds mu of run, and publishes the service
// anew unless nothing changed.
func (s *service) take(r reading, now time.Time) meaning {
	m := meaningOf(s.instances, s.known, r)
	if m == doubtful {
		return m // the next read will tell
	}
	s.part.meet(r.cluster, now)
	if s.odd(r, m) {
		s.part.ask()
		return unvouched
	}
	if s.adopted && !s.delisted && len(r.instances.list) > 0 {
		return s.disown(now)
	}
	s.answers++
	s.index = r.Index
	s.settled = true
	s.failures, s.refusal = 0, nil
	if s.delisted && m != denied && m != foreign {
		s.trouble = nil
		return absent
	}
	s.part.nodes.learn(r.instances.nodes(), now)
	missing := r.instances.without(s.instances)
	switch m {
	case foreign:
		s.settled = s.known
		s.trouble = &trouble{state: sources.Unreachable, message: fmt.Sprintf("service %s: %v", s.name, dial.ErrForeign)}
	case denied:
		s.trouble = &trouble{state: sources.Denied, message: fmt.Sprintf("service %s: ", s.name) + unseen(r.anonymous,
			"the token does not show its instances (node:read and service:read are needed)",
			"no token is sent, and Consul does not show its instances to anonymous requests: "+setToken)}
	case partial:
		s.found(r.instances, missing, r.lost)
		s.trouble = &trouble{state: sources.Denied, message: fmt.Sprintf("service %s: ", s.name) + unseen(r.anonymous,
			fmt.Sprintf("the token no longer shows %d of its instances, which stay", s.held),
			fmt.Sprintf("no token is sent, and Consul may hide %d of its instances, which stay, from anonymous requests: %s", s.held, setToken))}
	case changed:
		if lost := len(missing) + r.lost; lost > 0 {
			s.compareNodes(r, lost, now)
		}
		if !s.part.suspected(now) {
			missing, r.lost = nil, 0
		}
		s.found(r.instances, missing, r.lost)
		s.trouble = nil
	case gone:
		s.trouble = nil
		if s.part.suspected(now) {
			s.held = len(s.instances.list)
			return absent
		}
		if !s.gone.IsZero() && !s.listed {
			return absent
		}
		s.lost(now)
	case unchanged:
		s.trouble = nil
		s.held, s.restored = 0, false
	}
	return m
}

// compareNodes suspects a Consul that has lost its data if all nodes of the instances that are left were made anew.
func (s *service) compareNodes(r reading, missing int, now time.Time) {
	c := judge.Compared{Known: true, Before: len(s.instances.list) + r.lost, Now: len(r.instances.list), Missing: missing}
	s.part.nodes.believed.Compare(r.instances.nodes(), 0, &c)
	if !s.part.suspected(now) && judge.Reset(c, r.Answer) {
		s.part.suspect(fmt.Sprintf("Consul seems to have lost its data: the nodes of service %s were made anew", s.name), now)
	}
}

// disown lets go of a service that an earlier run published, and that has instances, but that is not among the names: the
// settings no longer select it. If the names were not read since, it may be a new one.
func (s *service) disown(now time.Time) meaning {
	p := s.part
	if s.asked == 0 {
		s.asked = p.begun + 1
	}
	if p.certain < s.asked {
		p.ask()
		return unvouched
	}
	s.settled, s.delisted, s.trouble = true, true, nil
	s.lost(now)
	return gone
}

// odd reports whether a loss may be that of a Consul that has lost all its data, which the names tell. There are signs of that: nothing
// is left, although the names listed it, Consul was away, or it counts from the beginning. Services and names are read at the same
// time, so that the names may not have been read since, or not from before; then the caller has to wait until they are, and read again.
func (s *service) odd(r reading, m meaning) bool {
	p := s.part
	if !s.loses(r, m) {
		s.vouch = 0
		return false
	}
	away := p.trouble != nil || s.trouble != nil && s.trouble.state == sources.Unreachable
	all := m == gone && s.listed // as of everything else, if its data is lost
	if s.vouch == 0 && (all || away || r.Index < s.index) {
		s.vouch = p.begun + 1
	}
	if p.certain < s.vouch {
		return true
	}
	s.vouch = 0
	return false
}

// loses reports whether something that there was is not there any more, if r, which means m, is to be believed.
func (s *service) loses(r reading, m meaning) bool {
	had := len(s.instances.list) > 0 || s.restored
	return m == gone && had || m == changed && len(r.instances.without(s.instances))+r.lost > 0
}

// found notes what there is, with what is missing and stays: instances, and endpoints that an earlier run published.
func (s *service) found(i instances, missing []*api.ServiceEntry, lost int) {
	s.keep(i.with(missing))
	s.known, s.held, s.gone = true, len(missing)+lost, time.Time{}
	s.restored = s.restored && lost > 0
}

// lost notes that the service has no instances, for certain.
func (s *service) lost(now time.Time) {
	s.keep(instances{})
	s.known, s.held, s.restored = true, 0, false
	if s.gone.IsZero() {
		s.gone = now
	}
}

// compare says how a listing differs from what was believed, by an earlier run if need be.
func (p *part) compare(l listing) judge.Compared {
	c := l.compare(p.listing, p.known || p.based, p.trouble != nil || !p.known)
	c.Other = judge.Other(p.cluster, l.cluster)
	return c
}

// takeNames applies a listing of the names of p, and returns what it meant, the names that are new, and those of known
// services that are to be read again. The caller holds mu of run.
func (p *part) takeNames(l listing, now time.Time) (m meaning, added []string, check []*service) {
	c := p.compare(l)
	p.nodes.believed.Compare(l.nodes, 0, &c)
	m, wiped := meaningOfNames(c, l)
	switch m {
	case doubtful:
		return m, nil, nil
	case foreign:
		p.fail(&trouble{state: sources.Unreachable, message: dial.ErrForeign.Error()}, now)
		return m, nil, nil
	case denied:
		p.fail(&trouble{state: sources.Denied, message: unseen(l.anonymous,
			"the token does not show any service (service:read and node:read are needed)",
			"no token is sent, and Consul shows nothing to anonymous requests: "+setToken)}, now)
		return m, nil, nil
	}
	p.nodes.learn(l.nodes, now)
	switch {
	case wiped:
		p.suspect(judge.Why(c, l.Answer, "services"), now)
	case p.known && p.tally().unsettled == 0: // else what is read first is compared with what an earlier run knew, whatever was read before it
		p.nodes.believe(now.Add(-p.resetHold))
		p.forgetNodes()
	}
	back := p.known && l.Index < p.listing.Index // watches that began before wait for indexes of the future
	p.known, p.listing = true, l
	p.cluster = cmp.Or(l.cluster, p.cluster)
	if l.Confirming {
		p.certain = l.turn
	}
	for name := range l.names {
		s := p.services[name]
		switch {
		case s == nil:
			added = append(added, name)
		case !s.listed || back:
			s.delisted = false
			check = append(check, s)
		}
		if s != nil {
			s.listed, s.adopted, s.asked = true, false, 0
		}
	}
	for name, s := range p.services {
		if _, there := l.names[name]; there || s.delisted {
			continue
		}
		switch {
		case l.Filtered || p.suspected(now):
			if s.listed {
				check = append(check, s) // the names cannot vouch for it
			}
		case l.Confirming:
			s.settled, s.delisted = true, true
			s.trouble = nil
			s.lost(now)
			m = changed
		}
		s.listed = false
	}
	p.recover(now)
	return m, added, check
}

// fail notes that the names could not be read.
func (p *part) fail(t *trouble, now time.Time) {
	if p.trouble == nil {
		p.away = now
	}
	p.trouble = t
	if p.down == nil {
		p.down = make(chan struct{})
	}
}

// ask has the names read with certainty, for those who wait until they are.
func (p *part) ask() {
	p.again.raise()
	if p.down == nil {
		p.down = make(chan struct{})
	}
}

// suspicionAt returns the suspicion. It does not pass while the names cannot be read, since nobody can tell Consul anything then.
func (p *part) suspicionAt(now time.Time) judge.Suspicion {
	s := p.suspicion
	if p.trouble != nil && !s.Until.IsZero() {
		s.Until = s.Until.Add(max(0, now.Sub(p.away)))
	}
	return s
}

// recover notes that they could, and wakes all who waited for that.
func (p *part) recover(now time.Time) {
	p.suspicion, p.trouble = p.suspicionAt(now), nil
	if p.down != nil {
		close(p.down)
		p.down = nil
	}
}

// A service that cannot be read for its own sake, because no path can express its name or its answer cannot be understood,
// is settled: it is quarantined by name, and the rest is served. What was read of it before stays.

// refusedOften is how many reads in a row have to fail before a service is taken to be at fault itself.
const refusedOften = 3

// refuse takes up that s could not be read because of t, and reports whether it has come to be refused by that. The caller
// holds mu.
func (s *service) refuse(t *trouble) bool {
	if !t.own {
		s.failures = 0
		return false
	}
	s.failures++
	inexpressible := !dial.Expressible("/v1/health/service/" + s.name)
	// If nothing else can be read either, it is the filter that is at fault, or something in front of Consul.
	if s.refusal != nil || !inexpressible && (s.failures < refusedOften || s.part.trouble != nil || !s.part.tally().well) {
		return false
	}
	s.settled = true
	why := "it cannot be read"
	if inexpressible {
		why = "its name cannot be read over HTTP: register it under another one"
	}
	s.refusal = fmt.Errorf("service %q: %s: %s", s.name, why, t.message)
	return true
}

// rejects are those of a service that cannot be read in some domains. Without a key they stand for whatever was made of it.
// The caller holds mu.
func (r *run) rejects(name string) (all []sources.Reject) {
	for s := range r.named(name) {
		if s.refusal != nil {
			all = append(all, sources.Reject{
				Origin: resource.Origin{Place: "consul " + s.part.prefix() + "service " + name}, Err: s.refusal,
			})
		}
	}
	return all
}
