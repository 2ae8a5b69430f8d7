package dubbo

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/sources"
	"tributary/sources/dubbo/backend"
	dubboconsul "tributary/sources/dubbo/consul"
	"tributary/sources/dubbo/provider"
	"tributary/sources/registry"
)

// health returns the status of the source. The caller holds mu.
func (r *run) health(now time.Time) sources.Health {
	if !r.connection.Up {
		sourceState := sources.Unreachable
		switch {
		case r.connection.Denied:
			sourceState = sources.Denied
		case r.connection.Message == notConnected:
			sourceState = sources.Starting
		}
		return sources.Health{State: sourceState, Message: r.connection.Message}
	}
	outcome := r.survey()
	held, unconfirmed, end := r.held(now)
	if count := len(r.connection.Unconfirmed); count > 0 {
		unconfirmed += count
		end = r.connection.HoldEnd
	}
	problems := append(outcome.problems, held...)
	if r.connection.Message != "" {
		problems = slices.Insert(problems, 0, r.connection.Message)
	}
	sourceState, messages := sources.Degraded, problems
	switch {
	case len(problems) == 0 && !r.started:
		return sources.Health{State: sources.Starting, Message: "reading the registry"}
	case len(problems) == 0:
		sourceState, messages = sources.Healthy, r.whyEmpty()
	case outcome.denied && (outcome.unlisted || outcome.refused()):
		sourceState = sources.Denied
	case outcome.unlisted:
		sourceState = sources.Unreachable
	}
	return sources.Health{
		State: sourceState, Message: strings.Join(append(messages, r.metadataSources()...), "; "),
		Unconfirmed: unconfirmed, End: end,
	}
}

// survey is the outcome of the reads of a registry.
type survey struct {
	settled  bool // each first read succeeded or failed
	unlisted bool // no list of names can be read
	unread   bool // a read of a list, of providers, or of an application never succeeded
	readable bool // providers of an interface, or instances of an application, were read
	denied   bool // the registry denied a read
	problems []string
}

// refused reports whether there is something to read, and no read of it succeeded.
func (s survey) refused() bool { return s.unread && !s.readable }

// survey returns the outcome of the reads of the registry. It names the first problem of each kind.
func (s *state) survey() survey {
	outcome := survey{settled: true, unlisted: true}
	var lists, interfaces, applications []string
	note := func(result readResult, problems *[]string) {
		outcome.settled = outcome.settled && result.settled()
		if result.failure != nil {
			outcome.denied = outcome.denied || errors.Is(result.failure, backend.ErrDenied)
			*problems = append(*problems, result.failure.Error())
		}
	}
	for _, nameList := range s.lists {
		if !nameList.ignored {
			note(nameList.readResult, &lists)
			outcome.unread = outcome.unread || nameList.failed()
			outcome.unlisted = outcome.unlisted && nameList.failure != nil
		}
	}
	for _, dubboInterface := range s.interfaces {
		for partKey, part := range dubboInterface.parts {
			note(part.readResult, &interfaces)
			if partKey.Category == backend.Providers {
				outcome.unread = outcome.unread || part.failed()
				outcome.readable = outcome.readable || part.succeeded
			}
		}
	}
	for _, application := range s.applications {
		note(application.readResult, &applications)
		outcome.unread = outcome.unread || application.failed()
		outcome.readable = outcome.readable || application.succeeded
		for _, instance := range application.instances {
			note(instance.readResult, &applications)
		}
	}
	for revision, lookup := range s.lookups {
		switch {
		case lookup.overLimit():
			applications = append(applications, lookup.reason())
		case s.unresolved(lookup):
			applications = append(applications, fmt.Sprintf("application %s: nothing is served, its metadata cannot be read: %s",
				provider.Shorten(revision.application), lookup.reason()))
		}
	}
	slices.Sort(interfaces)
	slices.Sort(applications)
	outcome.problems = slices.Concat(slices.Compact(lists), registry.First(interfaces, "interface", "interfaces"),
		registry.First(applications, "of applications", "of applications"))
	return outcome
}

// unresolved reports whether the services of an instance are unknown for lack of its metadata.
func (s *state) unresolved(lookup *lookup) bool {
	for instance := range lookup.instances {
		if lookup.failures >= reportAfter && lookup.metadata == nil && !instance.Off && !s.hasServices(instance) {
			return true
		}
	}
	return false
}

// held counts the endpoints and rules that are not listed and stay, at most until end.
func (s *state) held(now time.Time) (messages []string, count int, end time.Time) {
	rules := 0
	for _, dubboInterface := range s.interfaces {
		rules += dubboInterface.heldRules
	}
	_, endpoints := s.Services()
	count = endpoints + rules
	deadline := ""
	if count > 0 && s.Suspicion.Holds(now) {
		end = s.Suspicion.End
		deadline = ", those from before the connection until " + end.UTC().Format(time.TimeOnly) +
			" UTC at the latest"
	}
	if endpoints > 0 {
		messages = append(messages, registry.HeldText(endpoints, s.HeldServices())+deadline)
	}
	if rules > 0 {
		messages = append(messages,
			words.Count(rules, "configurator is not listed and stays", "configurators are not listed and stay")+deadline)
	}
	return messages, count, end
}

// unconfirmed returns the groups that the registry lists no longer, or in part, and that stay, with the reasons.
func (r *run) unconfirmed() map[string]string {
	reasons := make(map[string]string)
	for name, reason := range r.connection.Unconfirmed {
		if r.interfaces[name] != nil {
			reasons[name] = reason
		}
		if application := r.applications[name]; application != nil {
			for _, instance := range application.instances {
				for interfaceName := range instance.providers {
					reasons[interfaceName] = reason
				}
			}
		}
	}
	maps.Copy(reasons, r.Unconfirmed())
	return reasons
}

// maxSources is the number of sources of metadata that the status names.
const maxSources = 5

// metadataSources names the sources of the services of applications, with the reason of each fallback.
func (s *state) metadataSources() (messages []string) {
	users := map[string][]string{} // names by source
	for revision, lookup := range s.lookups {
		if lookup.metadata != nil {
			users[lookup.source] = append(users[lookup.source], revision.application)
			continue
		}
		for instance := range lookup.instances {
			if lookup.failures == 0 || !s.hasServices(instance) {
				continue
			}
			source := "their interface registrations or the last known state"
			if len(lookup.mapped) > 0 {
				source = "the interfaces mapped to them, without group and version"
			}
			source += ", because: " + lookup.reason()
			users[source] = append(users[source], revision.application+" revision "+provider.Shorten(revision.number))
		}
	}
	// Sources without a reason are shorter, and come first.
	for _, source := range slices.SortedFunc(maps.Keys(users), func(shorter, longer string) int {
		return cmp.Or(cmp.Compare(len(shorter), len(longer)), cmp.Compare(shorter, longer))
	}) {
		userNames := slices.Compact(slices.Sorted(slices.Values(users[source])))
		message := strings.Join(userNames[:min(3, len(userNames))], ", ")
		if len(userNames) > 3 {
			message += fmt.Sprintf(" and %d more", len(userNames)-3)
		}
		messages = append(messages, message+" by "+source)
	}
	if surplus := len(messages) - maxSources; surplus > 0 {
		messages = append(messages[:maxSources], "and "+words.Count(surplus, "more source", "more sources"))
	}
	return messages
}

// whyEmpty explains a registry without a service, and counts its other services: a registry does not report a mistyped
// group, which looks empty.
func (s *state) whyEmpty() []string {
	if services, _ := s.Services(); services > 0 {
		return nil
	}
	interfaces, applications := s.lists[interfaceNames].total, s.lists[applicationNames].total
	foreignServices := s.otherServices
	for _, application := range s.applications {
		foreign := len(application.instances) > 0
		for _, instance := range application.instances {
			foreign = foreign && instance.succeeded && instance.Application == ""
		}
		if foreign {
			foreignServices++
			applications--
		}
	}
	if interfaces+applications > 0 {
		return []string{fmt.Sprintf("nothing is served: none of %d interfaces and %d applications has a provider that the "+
			"settings select", interfaces, applications)}
	}
	message, inConsul := "", s.place == consulPlace
	if foreignServices > 0 {
		message = fmt.Sprintf(", but %d other services", foreignServices)
	}
	switch {
	case foreignServices == 0 && inConsul:
		message = ", and no other service: check dc, ns and partition in the address, and that the token may read services"
	case inConsul:
		message += ": Dubbo's interfaces have the tag " + dubboconsul.Tag + ", applications tags like " + provider.InstanceTag
	case foreignServices > 0 && strings.HasPrefix(s.place, NacosScheme+" "):
		message += "; for these use kind=services in the address"
	}
	return []string{"no Dubbo provider in " + strings.TrimSuffix(strings.TrimSpace(s.place), " service") + message}
}
