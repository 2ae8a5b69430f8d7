package dubbo

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tributary/internal/words"
	"tributary/sources"
	dubboconsul "tributary/sources/dubbo/consul"
	"tributary/sources/dubbo/provider"
	"tributary/sources/dubbo/registry"
	core "tributary/sources/registry"
)

// health returns the status of the source. The caller holds mu.
func (r *run) health(now time.Time) sources.Health {
	if !r.connection.Up {
		state := sources.Unreachable
		switch {
		case r.connection.Denied:
			state = sources.Denied
		case r.connection.Message == notConnected:
			state = sources.Starting
		}
		return sources.Health{State: state, Message: r.connection.Message}
	}
	reads := r.survey()
	problems := append(reads.problems, r.heldTexts(now)...)
	if r.connection.Message != "" {
		problems = slices.Insert(problems, 0, r.connection.Message)
	}
	state, texts := sources.Degraded, problems
	switch {
	case len(problems) == 0 && !r.started:
		return sources.Health{State: sources.Starting, Message: "reading the registry"}
	case len(problems) == 0:
		state, texts = sources.Healthy, r.whyEmpty()
	case reads.denied && (reads.unlisted || reads.refused()):
		state = sources.Denied
	case reads.unlisted:
		state = sources.Unreachable
	}
	return sources.Health{State: state, Message: strings.Join(append(texts, r.metadataSources()...), "; ")}
}

// survey is the outcome of the reads of a registry.
type survey struct {
	settled  bool // each first read succeeded or failed
	unlisted bool // no list of names can be read
	readable bool // providers of an interface, or instances of an application, were read
	denied   bool // the registry denied a read
	problems []string
}

// refused reports whether there is something to read, and no read of it succeeded.
func (s survey) refused() bool { return len(s.problems) > 0 && !s.readable }

// survey returns the outcome of the reads of the registry. It names the first problem of each kind.
func (s *state) survey() survey {
	outcome := survey{settled: true, unlisted: true}
	var lists, interfaces, applications []string
	note := func(result readResult, problems *[]string) {
		outcome.settled = outcome.settled && result.settled()
		if result.failure != nil {
			outcome.denied = outcome.denied || errors.Is(result.failure, registry.ErrDenied)
			*problems = append(*problems, result.failure.Error())
		}
	}
	for _, list := range s.lists {
		if !list.ignored {
			note(list.readResult, &lists)
			outcome.unlisted = outcome.unlisted && list.failure != nil
		}
	}
	for _, iface := range s.interfaces {
		for key, part := range iface.parts {
			note(part.readResult, &interfaces)
			outcome.readable = outcome.readable || part.succeeded && key.Category == registry.Providers
		}
	}
	for _, application := range s.applications {
		note(application.readResult, &applications)
		outcome.readable = outcome.readable || application.succeeded
		for _, instance := range application.instances {
			note(instance.readResult, &applications)
		}
	}
	for key, lookup := range s.lookups {
		switch {
		case lookup.overLimit():
			applications = append(applications, lookup.reason())
		case s.unresolved(lookup):
			applications = append(applications, fmt.Sprintf("application %s: nothing is served, its metadata cannot be read: %s",
				provider.Shorten(key.application), lookup.reason()))
		}
	}
	slices.Sort(interfaces)
	slices.Sort(applications)
	outcome.problems = slices.Concat(lists, core.First(interfaces, "interfaces"), core.First(applications, "of applications"))
	return outcome
}

// unresolved reports whether the services of an instance are unknown for lack of its metadata.
func (s *state) unresolved(l *lookup) bool {
	for instance := range l.instances {
		if l.failures >= reportAfter && l.metadata == nil && !instance.Off && !s.hasServices(instance) {
			return true
		}
	}
	return false
}

// heldTexts counts the endpoints and rules that are not listed and stay.
func (s *state) heldTexts(now time.Time) (texts []string) {
	rules := 0
	for _, iface := range s.interfaces {
		rules += iface.heldRules
	}
	until := ""
	if now.Before(s.suspicion.End) {
		until = ", those from before the connection until " + s.suspicion.End.UTC().Format(time.TimeOnly) +
			" UTC at the latest"
	}
	if _, endpoints := s.Services(); endpoints > 0 {
		texts = append(texts, core.HeldText(endpoints, s.HeldServices())+until)
	}
	if rules > 0 {
		texts = append(texts,
			words.Count(rules, "configurator is not listed and stays", "configurators are not listed and stay")+until)
	}
	return texts
}

// maxSources is the number of sources of metadata that the status names.
const maxSources = 5

// metadataSources names the sources of the services of applications, with the reason of each fallback.
func (s *state) metadataSources() (texts []string) {
	users := map[string][]string{} // names by source
	for key, lookup := range s.lookups {
		if lookup.metadata != nil {
			users[lookup.source] = append(users[lookup.source], key.application)
			continue
		}
		for instance := range lookup.instances {
			if lookup.failures == 0 || !s.hasServices(instance) {
				continue
			}
			source := "their interface registrations or the last known state"
			if len(instance.providers) > 0 {
				source = "the interfaces mapped to them, without group and version"
			}
			source += ", because: " + lookup.reason()
			users[source] = append(users[source], key.application+" revision "+provider.Shorten(key.revision))
		}
	}
	for _, source := range slices.Sorted(maps.Keys(users)) {
		names := slices.Compact(slices.Sorted(slices.Values(users[source])))
		text := strings.Join(names[:min(3, len(names))], ", ")
		if len(names) > 3 {
			text += fmt.Sprintf(" and %d more", len(names)-3)
		}
		texts = append(texts, text+" by "+source)
	}
	if more := len(texts) - maxSources; more > 0 {
		texts = append(texts[:maxSources], fmt.Sprintf("and %d more sources", more))
	}
	return texts
}

// whyEmpty explains a registry without a service, and counts its other services: a registry does not report a mistyped
// group, which looks empty.
func (s *state) whyEmpty() []string {
	if services, _ := s.Services(); services > 0 {
		return nil
	}
	interfaces := len(s.interfaces) + s.lists[interfaceNames].skipped
	applications, others := s.lists[applicationNames].skipped, s.otherServices
	for _, application := range s.applications {
		foreign := len(application.instances) > 0
		for _, instance := range application.instances {
			foreign = foreign && instance.succeeded && !instance.dubbo
		}
		if foreign {
			others++
		} else {
			applications++
		}
	}
	if interfaces+applications > 0 {
		return []string{fmt.Sprintf("nothing is served: none of %d interfaces and %d applications has a provider that the "+
			"settings select", interfaces, applications)}
	}
	text, consul := "", s.place == consulPlace
	if others > 0 {
		text = fmt.Sprintf(", but %d other services", others)
	}
	switch {
	case others == 0 && consul:
		text = ", and no other service: check dc, ns and partition in the address, and that the token may read services"
	case consul:
		text += ": Dubbo's interfaces have the tag " + dubboconsul.Tag + ", applications tags like " + provider.InstanceTag
	case others > 0 && strings.HasPrefix(s.place, NacosScheme+" "):
		text += "; for these use kind=services in the address"
	}
	return []string{"no Dubbo provider in " + strings.TrimSuffix(strings.TrimSpace(s.place), " service") + text}
}
