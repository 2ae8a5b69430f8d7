package consul

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/judge"
	"tributary/sources/consul/mapping"
	"tributary/sources/registry"
)

// Mapper makes resources of services: see package mapping, whose Mapper makes of them what they are to Consul. Its methods are called one
// after another.
type Mapper interface {
	// Service makes the content of a service of what is known of it in each part of Consul; of nothing, if it is withdrawn.
	Service(name string, in []mapping.Service) sources.Content
	// Names is told the names of all services, and returns those of which something else is to be made now.
	Names(names []string) (again []string)
	// Restore is told what an earlier run published of a service.
	Restore(rs []*resource.Resource)
}

// outlet is where goes what is believed.
type outlet interface {
	// names is told the names of all services, and returns those of which something else is to be made now.
	names(names []string) (again []string)
	// take is told what changed.
	take(now gathered)
}

// publish hands on what changed, until ctx ends.
func (r *run) publish(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := r.gather(time.Now())
		if now.note != nil && r.keeper != nil {
			r.keeper.Keep(now.note) // before what it explains
		}
		r.out.take(now)
		timer.Reset(now.next)
		select {
		case <-ctx.Done():
			if r.keeper != nil {
				r.mu.Lock()
				note := r.records(time.Now()).Encode()
				r.mu.Unlock()
				r.keeper.Keep(note)
			}
			return
		case <-r.wakeup:
		case <-timer.C:
		}
	}
}

// published is the outlet of a source of its own: a sink, for which a mapper makes resources.
type published struct {
	sink   sources.Sink
	mapper Mapper
}

func (p published) names(names []string) []string { return p.mapper.Names(names) }

func (p published) take(now gathered) {
	contents := make([]sources.Content, 0, len(now.work))
	for _, w := range now.work {
		c := sources.Content{Group: w.name}
		if len(w.in) > 0 || len(w.rejects) == 0 { // of nothing that was read nothing is to be made
			c = p.mapper.Service(w.name, w.in)
		}
		c.Rejects = append(c.Rejects, w.rejects...)
		if len(w.in) > 0 {
			if all, err := mapping.Retain(c.Resources, w.before, w.in); err == nil { // of what cannot be decoded nothing can be kept
				c.Resources = all
			}
		}
		contents = append(contents, c)
	}
	if len(contents) > 0 {
		_ = p.sink.ReplaceAll(contents) // what is refused is shown by the status, and not ours to mend
	}
	if now.synced {
		p.sink.Synced()
	}
	p.sink.Report(now.health)
}

// work is a service to publish: what is known of it in each domain.
type work struct {
	name string
	in   []mapping.Service
	// rejects are about what cannot be read.
	rejects []sources.Reject
	before  []*resource.Resource // what an earlier run published, of which something stays that has no instance
	more    bool                 // it may have instances besides, as an earlier run knew them, and it cannot be told which
}

// gathered is what there is to hand on at one moment.
type gathered struct {
	work   []work
	unread []string  // services that an earlier run knew, and of which it is not known whether they are there: with synced, once
	note   []byte    // to keep for the next run, or nil
	left   *[]string // the names that are not wanted, if they may be others than before
	synced bool      // with this work, the first full read is in
	health sources.Health
	next   time.Duration // there is nothing more before, unless somebody rings
}

func (r *run) gather(now time.Time) (g gathered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.next = r.expire(now)
	if r.renamed {
		r.renamed = false
		for _, name := range r.out.names(r.names()) {
			r.dirty[name] = true
		}
	}
	if r.recounted {
		r.recounted = false
		var left []string
		for _, p := range r.parts {
			left = append(left, p.listing.left...)
		}
		slices.Sort(left)
		left = slices.Compact(left)
		g.left = &left
	}
	if r.started() {
		for _, name := range slices.Sorted(maps.Keys(r.dirty)) {
			if in, ok := r.content(name, now); ok {
				delete(r.dirty, name)
				w := work{name: name, in: in, rejects: r.rejects(name)}
				if w.more = r.unsettled(name); w.more {
					w.before = r.before[name]
				}
				g.work = append(g.work, w)
			}
		}
	}
	if !r.synced && !slices.ContainsFunc(r.parts, func(p *part) bool { return !p.complete() }) {
		r.synced, g.synced, r.unkept = true, true, true
		for _, name := range slices.Sorted(maps.Keys(r.restored)) {
			if _, ok := r.content(name, now); !ok {
				g.unread = append(g.unread, name)
			}
		}
	}
	if r.unkept || now.Sub(r.keptAt) >= indexAfter {
		r.unkept, r.keptAt = false, now
		g.note = r.records(now).Encode()
	}
	g.health = r.health(now)
	return g
}

// expire ends what has lasted long enough: the grace of services that are gone, and suspicions. It returns when there
// is more to end. The caller holds mu.
func (r *run) expire(now time.Time) time.Duration {
	wait := time.Hour
	until := func(t time.Time) bool {
		if left := t.Sub(now); left > 0 {
			wait = min(wait, left)
			return false
		}
		return true
	}
	for _, p := range r.parts {
		if p.trouble == nil && !p.suspicion.Until.IsZero() && until(p.suspicion.Until) {
			p.suspicion, r.unkept = judge.Suspicion{}, true
			p.nodes.believe(now) // or the same nodes would be a reason for the next suspicion
			p.again.raise()
			for _, s := range p.services {
				if s.held > 0 || !s.listed {
					s.again.raise()
				}
			}
		}
		for name, s := range p.services {
			if s.gone.IsZero() || !until(s.gone.Add(r.settings.Grace)) {
				continue
			}
			r.dirty[name] = true
			if !s.listed {
				s.stop()
				s.keep(instances{})
				delete(p.services, name)
				r.renamed = true
			}
		}
	}
	return wait
}

// unsettled reports whether something of what an earlier run published of a service may stay although no instance of it is known. The
// caller holds mu.
func (r *run) unsettled(name string) bool {
	for s := range r.named(name) {
		if s.restored {
			return true
		}
	}
	return false
}

// names are those of all services. The caller holds mu.
func (r *run) names() []string {
	all := make(map[string]bool)
	for _, p := range r.parts {
		for name := range p.services {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// started reports whether every domain was read, or cannot be for now. Until then nothing is published, so that a start
// is one commit. The caller holds mu.
func (r *run) started() bool {
	return r.synced || !slices.ContainsFunc(r.parts, func(p *part) bool {
		return p.trouble == nil && !p.complete() && len(p.tally().troubled) == 0
	})
}

// content is what is known of a service in all domains; ok is false while too little is known to publish it: what an
// earlier run published may have been read from a domain that cannot be read now. The caller holds mu.
func (r *run) content(name string, now time.Time) (in []mapping.Service, ok bool) {
	for _, p := range r.parts {
		s := p.services[name]
		if r.restored[name] && (!p.known || s != nil && !s.known && s.refusal == nil) {
			return nil, false
		}
		if r.restored[name] && s != nil && s.refusal != nil && !s.known {
			return nil, true // its part in what an earlier run made of the service is not known
		}
		if s == nil || !s.known {
			continue
		}
		if !s.gone.IsZero() && now.Sub(s.gone) >= r.settings.Grace {
			continue
		}
		in = append(in, mapping.Service{
			Name: name, Datacenter: p.datacenterOf(s), Namespace: p.namespace, Partition: p.partition, Peer: p.peer,
			Entries: s.instances.list,
		})
	}
	return in, true
}

// datacenterOf is that of the instances, since a domain need not name it.
func (p *part) datacenterOf(s *service) string {
	if p.datacenter != "" {
		return p.datacenter
	}
	for _, e := range s.instances.list {
		if e.Node.Datacenter != "" {
			p.learned = e.Node.Datacenter
			break
		}
	}
	return p.learned
}

// health says how the source is. The caller holds mu.
func (r *run) health(now time.Time) sources.Health {
	var messages []string
	down, state, starting := 0, sources.Unreachable, false
	unconfirmed, end := 0, time.Time{}
	for _, p := range r.parts {
		t, some := p.condition()
		if t == nil && p.behind != nil {
			if some = p.behind.message; p.behind.state != sources.Degraded {
				t = p.behind
			}
		}
		switch {
		case t != nil:
			down++
			if t.state == sources.Denied {
				state = sources.Denied
			}
			messages = append(messages, p.prefix()+t.message)
		case some != "":
			messages = append(messages, p.prefix()+some)
		case !p.complete():
			starting = true
		}
		if p.suspected(now) {
			suspicion := p.suspicionAt(now)
			messages = append(messages, fmt.Sprintf("%s%s; missing instances stay until %s UTC", p.prefix(), suspicion.Why,
				suspicion.Until.UTC().Format(time.TimeOnly)))
			if held := registry.First(p.heldServices(), "services"); len(held) > 0 {
				messages[len(messages)-1] += " (" + held[0] + ")"
			}
			unconfirmed += p.unconfirmed()
			if suspicion.Until.After(end) {
				end = suspicion.Until
			}
		} else if count := p.unconfirmed(); count > 0 && t == nil && some == "" && p.complete() {
			messages = append(messages, fmt.Sprintf("%sthe hold has ended: %s read again, with missing instances", p.prefix(),
				words.Count(count, "service is", "services are")))
			unconfirmed += count
		}
	}
	message := strings.Join(messages, "; ")
	switch {
	case down == len(r.parts):
		return sources.Health{State: state, Message: message}
	case message != "":
		return sources.Health{State: sources.Degraded, Message: message, Unconfirmed: unconfirmed, End: end}
	case starting && !r.synced:
		return sources.Health{State: sources.Starting, Message: "reading the services"}
	default:
		return sources.Health{State: sources.Healthy}
	}
}

// heldServices returns the names of the services that stay, or instances of which do, in order.
func (p *part) heldServices() (names []string) {
	for name, s := range p.services {
		if s.held > 0 || !s.listed && s.gone.IsZero() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// prefix names the domain in messages, where it has a name.
func (p *part) prefix() string {
	if s := p.String(); s != "" {
		return s + ": "
	}
	return ""
}

// condition returns the trouble of the domain as a whole, or what is to be said about some of its services.
func (p *part) condition() (whole *trouble, some string) {
	t := p.tally()
	if p.trouble != nil || len(t.troubled) == 0 {
		return p.trouble, ""
	}
	slices.Sort(t.troubled)
	message := p.services[t.troubled[0]].trouble.message
	if more := len(t.troubled) - 1; more > 0 {
		message += fmt.Sprintf(", and %d services more", more)
	}
	if len(t.troubled) < t.readable {
		return nil, message
	}
	state := sources.Denied
	for _, name := range t.troubled {
		if is := p.services[name].trouble.state; is != sources.Denied {
			state = is
		}
	}
	return &trouble{state: state, message: message}, ""
}

// Follower is another source, which is told what Consul has, and publishes what it makes of that itself: its groups are not Consul's
// services. What Consul's answers prove is decided for it as for a source of Consul's: what it is told is believed, and what is in doubt
// stays.
type Follower interface {
	// Keeper keeps what is known for the next run.
	sources.Keeper
	// Groups are the services of which an earlier run may have had something, which is asked for if what it kept does not tell, and Lost is
	// how much it had of one that has no instance in.
	Groups() []string
	Lost(name string, in []mapping.Service) int
	// Take is told what changed. It is called by one goroutine at a time, and is not to keep it waiting.
	Take(now Now)
}

// Now is what changed of what is believed.
type Now struct {
	Services []Service
	// Left are the names of services that the settings do not select; nil while they are those that were told last, or were not read yet.
	Left   *[]string
	Synced bool // with these, the first full read is in
	Health sources.Health
}

// Service is all that is believed of one.
type Service struct {
	Name string
	In   []mapping.Service // in each part of Consul that has it, if only without instances; none if it is withdrawn, or cannot be read
	More bool              // it may have instances besides that an earlier run knew: that one is missing proves nothing
	Err  error             // why it cannot be read, in some part of Consul; nil if it can
}

// followed is the outlet of a source that is followed by another one.
type followed struct{ Follower }

func (followed) names([]string) []string { return nil }

func (f followed) take(now gathered) {
	told := Now{Left: now.left, Synced: now.synced, Health: now.health}
	for _, w := range now.work {
		s := Service{Name: w.name, In: w.in, More: w.more}
		var reasons []error
		for _, r := range w.rejects {
			reasons = append(reasons, r.Err)
		}
		s.Err = errors.Join(reasons...)
		told.Services = append(told.Services, s)
	}
	for _, name := range now.unread {
		told.Services = append(told.Services, Service{Name: name, More: true})
	}
	f.Take(told)
}

// tell has a run tell a follower.
func (r *run) tell(f Follower) {
	r.out, r.keeper, r.lost = followed{f}, f, f.Lost
	r.inherit = func(kept judge.Records) {
		for _, p := range r.parts {
			record := kept.Parts[p.String()]
			names := slices.Concat(record.Names, record.Held)
			if record.Index == 0 {
				names = f.Groups()
			}
			for _, name := range names {
				r.restored[name] = true
			}
		}
	}
}
