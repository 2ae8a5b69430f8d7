package consul

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/mapping"
	"tributary/sources/presence"
	"tributary/sources/registry"
)

// Publisher receives the services of Consul. The source decides which answers to trust: a publisher applies the changes
// that it receives, and keeps everything else. One goroutine calls Names and Publish.
type Publisher interface {
	// Keeper stores the record for the next run.
	sources.Keeper
	// Groups returns the services that an earlier run published. The saved record names the recorded services; complete
	// says that the record covers all scopes.
	Groups(recorded []string, complete bool) []string
	// Lost returns the number of endpoints that an earlier run published for a service and that no instance has.
	Lost(name string, scopes []mapping.Service) int
	// Names receives the names of all services, and returns those to publish again.
	Names(names []string) []string
	// Publish receives changes. It must not block.
	Publish(changes Changes)
}

// Changes are the differences to the last changes published.
type Changes struct {
	Services   []Service
	Unselected *[]string // names of services that the settings do not select; nil without a change
	Synced     bool      // with these changes, the first full read is complete
	Health     sources.Health

	// Unconfirmed has the reason of each service that Consul lists no longer, or in part, and that stays.
	Unconfirmed map[string]string

	record []byte        // for the next run; nil without a change
	wait   time.Duration // until the state changes without an answer
}

// Service is the state of a service in all scopes.
type Service struct {
	Name string
	// Scopes has the instances in each scope that has the service; none in a datacenter that is not read yet. It is
	// empty for a service to withdraw, and for one that cannot be read.
	Scopes []mapping.Service
	// Incomplete says that instances of an earlier run may exist that are not listed.
	Incomplete bool
	// Unread says that a scope which may have instances of an earlier run was not read.
	Unread  bool
	Rejects []sources.Reject // of the scopes that cannot read it
}

// Err returns why the service cannot be read, in some scope; nil if it can.
func (s Service) Err() error {
	var failures []error
	for _, reject := range s.Rejects {
		failures = append(failures, reject.Err)
	}
	return errors.Join(failures...)
}

// publish publishes changes until ctx ends.
func (r *run) publish(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		changes := r.collect()
		if changes.record != nil {
			r.publisher.Keep(changes.record) // before the changes that it explains
		}
		r.publisher.Publish(changes)
		timer.Reset(changes.wait)
		select {
		case <-ctx.Done():
			r.mu.Lock()
			record := r.record()
			r.mu.Unlock()
			r.publisher.Keep(record)
			return
		case <-r.wakeup:
		case <-timer.C:
		}
	}
}

// collect returns the changes since the last call.
func (r *run) collect() Changes {
	r.mu.Lock()
	wait := r.expire(time.Now())
	var names, remapped []string
	if r.namesChanged {
		r.namesChanged = false
		names = r.names()
	}
	r.mu.Unlock()
	if names != nil {
		remapped = r.publisher.Names(names)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range remapped {
		r.changedServices[name] = true
	}
	changes := r.takeChanges(time.Now())
	changes.wait = wait
	return changes
}

// takeChanges returns the changes to publish, and forgets them. Services wait until the publisher has all names.
func (st *state) takeChanges(now time.Time) (changes Changes) {
	if st.unselectedChanged {
		st.unselectedChanged = false
		var names []string
		for _, scope := range st.scopes {
			names = append(names, scope.listing.unselected...)
		}
		slices.Sort(names)
		names = slices.Compact(names)
		changes.Unselected = &names
	}
	if st.started() && !st.namesChanged {
		for _, name := range slices.Sorted(maps.Keys(st.changedServices)) {
			service, ready := st.content(name)
			if !ready {
				continue
			}
			delete(st.changedServices, name)
			if !service.Incomplete {
				delete(st.restored, name)
			}
			changes.Services = append(changes.Services, service)
		}
		if !st.synced && !slices.ContainsFunc(st.scopes, func(scope *catalogScope) bool { return !scope.complete() }) {
			st.synced = true
			changes.Synced = true
			st.recordChanged = true
			for _, name := range slices.Sorted(maps.Keys(st.restored)) {
				if _, ready := st.content(name); !ready {
					changes.Services = append(changes.Services, Service{Name: name, Incomplete: true})
				}
			}
		}
	}
	if st.recordChanged || now.Sub(st.recordedAt) >= indexRecordInterval {
		st.recordChanged = false
		st.recordedAt = now
		changes.record = st.record()
	}
	changes.Health, changes.Unconfirmed = st.health(now)
	return changes
}

// expire ends the grace of empty services, and suspicions, and returns when the next one ends.
func (st *state) expire(now time.Time) time.Duration {
	wait := time.Hour
	passed := func(end time.Time) bool {
		rest := end.Sub(now)
		if rest > 0 {
			wait = min(wait, rest)
		}
		return rest <= 0
	}
	for _, scope := range st.scopes {
		if end := scope.suspicion.Next(); !end.IsZero() && passed(end) {
			scope.suspicion = presence.Suspicion{}
			st.recordChanged = true
			scope.nodes.accept(now) // they are no reason for the next suspicion
			scope.reread.Raise()
			for _, service := range scope.services {
				if service.heldInstances > 0 || service.nameState != nameListed {
					service.reread.Raise()
				}
			}
		}
		for name, service := range scope.services {
			if service.emptySince.IsZero() || !passed(service.emptySince.Add(st.settings.Grace)) {
				continue
			}
			if !service.graceEnded || service.nameState != nameListed {
				service.graceEnded = true
				st.changedServices[name] = true
			}
			if service.nameState != nameListed {
				service.stop()
				service.replaceInstances(instances{})
				delete(scope.services, name)
				st.namesChanged = true
			}
		}
	}
	return wait
}

// names returns the names of all services. An unread scope may have each service of an earlier run.
func (st *state) names() []string {
	names := make(map[string]bool)
	for _, scope := range st.scopes {
		if !scope.namesRead {
			maps.Copy(names, st.restored)
		}
		for name := range scope.services {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// started reports whether each scope was read, or is in trouble. A start is one commit: it publishes only then.
func (st *state) started() bool {
	return st.synced || !slices.ContainsFunc(st.scopes, func(scope *catalogScope) bool {
		return scope.trouble == nil && !scope.complete() && len(scope.tally().troubled) == 0
	})
}

// content returns a service with its instances in the scopes that were read. It is not ready before one of them was
// read, if an earlier run published it.
func (st *state) content(name string) (content Service, ready bool) {
	content = Service{Name: name, Rejects: st.rejects(name)}
	for _, scope := range st.scopes {
		service := scope.services[name]
		restored := st.restored[name] && scope.mayRestore(name)
		if scope.namesRead {
			restored = service != nil && service.restored
		}
		content.Incomplete = content.Incomplete || restored
		content.Unread = content.Unread || restored && (service == nil || service.readState != readApplied)
		var list []*api.ServiceEntry
		switch {
		case service != nil && service.readState == readApplied:
			if service.graceEnded {
				continue
			}
			list = service.instances.list
			ready = true
		case !restored || scope.datacenter == "" || !scope.recorded[name]:
			continue
		} // else it stays without entries: the aliases of its datacenter have endpoints of the earlier run
		content.Scopes = append(content.Scopes, mapping.Service{
			Name: name, Datacenter: scope.datacenterOf(service), Namespace: scope.namespace, Partition: scope.partition,
			Peer:    scope.peer,
			Entries: list,
		})
	}
	if !ready {
		content.Scopes = nil
	}
	// A quarantined service keeps its objects.
	return content, ready || !content.Incomplete || len(content.Rejects) > 0
}

// datacenterOf returns the datacenter of the instances where the scope names none.
func (s *catalogScope) datacenterOf(service *service) string {
	if s.datacenter != "" {
		return s.datacenter
	}
	for _, entry := range service.instances.list {
		if entry.Node.Datacenter != "" {
			s.datacenterSeen = entry.Node.Datacenter
			break
		}
	}
	return s.datacenterSeen
}

// health returns the state of the source, and why services stay that are not confirmed.
func (st *state) health(now time.Time) (health sources.Health, unconfirmed map[string]string) {
	var messages []string
	down, starting := 0, false
	health.State = sources.Unreachable
	unconfirmed = make(map[string]string)
	for _, scope := range st.scopes {
		failure, message := scope.condition()
		switch {
		case failure != nil:
			down++
			if failure.state == sources.Denied {
				health.State = sources.Denied
			}
			messages = append(messages, scope.prefix()+failure.message)
		case message != "":
			messages = append(messages, scope.prefix()+message)
		case !scope.complete():
			starting = true
		}
		missing := 0 // services with instances that Consul does not list
		var held []string
		for name, service := range scope.services {
			listed := service.nameState == nameListed
			if service.heldInstances > 0 || !listed && len(service.instances.list) > 0 {
				missing++
			}
			if service.heldInstances > 0 || !listed && service.emptySince.IsZero() {
				held = append(held, name)
			}
		}
		if scope.suspicion.Holds(now) {
			suspicion := scope.suspicion.Return(now)
			hold := fmt.Sprintf("%s%s; missing instances stay until %s UTC", scope.prefix(), suspicion.Why,
				suspicion.End.UTC().Format(time.TimeOnly))
			for _, name := range held {
				unconfirmed[name] = hold
			}
			slices.Sort(held)
			if names := registry.First(held, "service", "services"); len(names) > 0 {
				hold += " (" + names[0] + ")"
			}
			messages = append(messages, hold)
			health.Unconfirmed += missing
			if suspicion.End.After(health.End) {
				health.End = suspicion.End
			}
		} else if missing > 0 && failure == nil && message == "" && scope.complete() {
			messages = append(messages, scope.prefix()+"the hold has ended: "+
				words.Count(missing, "service is", "services are")+" read again, with missing instances")
			health.Unconfirmed += missing
		}
	}
	health.Message = strings.Join(messages, "; ")
	switch {
	case down == len(st.scopes):
		return sources.Health{State: health.State, Message: health.Message}, unconfirmed
	case health.Message != "":
		health.State = sources.Degraded
		return health, unconfirmed
	case starting && !st.synced:
		return sources.Health{State: sources.Starting, Message: "reading the services"}, nil
	default:
		return sources.Health{State: sources.Healthy}, nil
	}
}

// prefix names the scope in messages, if it has a name.
func (s *catalogScope) prefix() string {
	if name := s.String(); name != "" {
		return name + ": "
	}
	return ""
}

// condition returns the failure of the whole scope, or a message about a part of it.
func (s *catalogScope) condition() (failure *trouble, message string) {
	tally := s.tally()
	if s.trouble != nil {
		return s.trouble, ""
	}
	if len(tally.troubled) > 0 {
		slices.Sort(tally.troubled)
		message = s.services[tally.troubled[0]].trouble.message
		if rest := len(tally.troubled) - 1; rest > 0 {
			message += ", and " + words.Count(rest, "more service", "more services")
		}
		if len(tally.troubled) == tally.readable {
			failure = &trouble{state: sources.Denied, message: message}
			if tally.denied < tally.readable {
				failure.state = sources.Unreachable
			}
			return failure, ""
		}
	}
	if server := s.serverTrouble; server != nil {
		message = server.message
		if server.state != sources.Degraded {
			return server, message
		}
	}
	return nil, message
}

// sinkPublisher publishes the resources that a mapper makes of services.
type sinkPublisher struct {
	sources.Sink
	mapper Mapper
	keeper sources.Keeper // nil without

	mu     sync.Mutex
	before map[string][]*resource.Resource // objects of an earlier run by service, while some of them may stay
}

func newSinkPublisher(sink sources.Sink, mapper Mapper) *sinkPublisher {
	publisher := &sinkPublisher{Sink: sink, mapper: mapper, before: make(map[string][]*resource.Resource)}
	publisher.keeper, _ = sink.(sources.Keeper)
	recaller, _ := sink.(sources.Recaller)
	if recaller == nil {
		return publisher
	}
	for _, group := range sink.Groups() {
		publisher.before[group] = recaller.Published(group)
		if recaller.Exact(group) { // else other settings may have changed its ports
			mapper.Restore(publisher.before[group])
		}
	}
	return publisher
}

// LastNote implements sources.Keeper.
func (p *sinkPublisher) LastNote() []byte {
	if p.keeper == nil {
		return nil
	}
	return p.keeper.LastNote()
}

// Keep implements sources.Keeper.
func (p *sinkPublisher) Keep(record []byte) {
	if p.keeper != nil {
		p.keeper.Keep(record)
	}
}

// Groups implements Publisher. The sink knows the published services without the record.
func (p *sinkPublisher) Groups([]string, bool) []string { return p.Sink.Groups() }

// Lost implements Publisher.
func (p *sinkPublisher) Lost(name string, scopes []mapping.Service) int {
	return mapping.Lost(p.restored(name), scopes)
}

func (p *sinkPublisher) restored(name string) []*resource.Resource {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.before[name]
}

// Names implements Publisher.
func (p *sinkPublisher) Names(names []string) []string { return p.mapper.Names(names) }

// Publish implements Publisher.
func (p *sinkPublisher) Publish(changes Changes) {
	var contents []sources.Content
	for _, service := range changes.Services {
		if content, ready := p.contentOf(service); ready {
			contents = append(contents, content)
		}
	}
	if len(contents) > 0 {
		_ = p.ReplaceAll(contents) // the status shows refused contents
	}
	if changes.Synced {
		p.Synced()
	}
	sources.ReportUnconfirmed(p.Sink, changes.Unconfirmed)
	p.Report(changes.Health)
}

// contentOf maps a service. It is not ready if its objects stay.
func (p *sinkPublisher) contentOf(service Service) (content sources.Content, ready bool) {
	content.Group = service.Name
	before := p.restored(service.Name)
	var unlisted []*resource.Resource // a scope that lists an endpoint decides about it
	switch {
	case !service.Incomplete:
		if len(service.Scopes) > 0 || len(service.Rejects) == 0 {
			content = p.mapper.Service(service.Name, service.Scopes)
		}
		ready = true
	case len(service.Scopes) == 0:
	case service.Unread:
		var part sources.Content
		if part, unlisted, ready = p.mapper.PartOfService(service.Name, service.Scopes, before); ready {
			content = part
		}
	default:
		content = p.mapper.Service(service.Name, service.Scopes)
		ready = true
		unlisted = before
		resources, remaining, err := mapping.Retain(content.Resources, before, service.Scopes)
		if err == nil { // objects that cannot be decoded cannot be retained
			content.Resources, unlisted = resources, remaining
		}
	}
	if ready {
		p.mu.Lock()
		p.before[service.Name] = unlisted
		if !service.Incomplete {
			delete(p.before, service.Name)
		}
		p.mu.Unlock()
	}
	content.Rejects = append(content.Rejects, service.Rejects...)
	return content, ready || len(service.Rejects) > 0 // a reject keeps the objects
}
