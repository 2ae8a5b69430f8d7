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
	reads := r.state.survey()
	if reads.unlisted != nil {
		state := core.StateOf(reads.unlisted, registry.ErrDenied)
		return sources.Health{State: state, Message: reads.unlisted.Error()}
	}
	problems := slices.Concat(reads.problems, r.state.unresolved(), r.state.heldTexts(now))
	if r.connection.Message != "" {
		problems = slices.Insert(problems, 0, r.connection.Message)
	}
	switch metadata := r.state.metadataSources(); {
	case reads.refused && reads.denied:
		return sources.Health{State: sources.Denied, Message: strings.Join(problems, "; ")}
	case len(problems) > 0:
		return sources.Health{State: sources.Degraded, Message: strings.Join(append(problems, metadata...), "; ")}
	case !r.started:
		return sources.Health{State: sources.Starting, Message: "reading the registry"}
	default:
		return sources.Health{State: sources.Healthy, Message: strings.Join(append(r.state.whyEmpty(), metadata...), "; ")}
	}
}

// survey is the outcome of the reads of a registry.
type survey struct {
	settled  bool  // each first read succeeded or failed
	unlisted error // the reason why no list of names can be read; nil if one can
	refused  bool  // each read of providers failed
	denied   bool  // the registry denied a read
	problems []string
}

// survey returns the outcome of the reads of the registry. It names the first problem of each kind.
func (s *state) survey() survey {
	outcome := survey{settled: true}
	var lists, interfaces, applications []string
	note := func(result readResult, problems *[]string) {
		outcome.settled = outcome.settled && result.settled()
		if result.failure != nil {
			outcome.denied = outcome.denied || errors.Is(result.failure, registry.ErrDenied)
			*problems = append(*problems, result.failure.Error())
		}
	}
	listed, readable, refused := false, false, false
	for _, list := range s.lists {
		if !list.ignored {
			note(list.readResult, &lists)
			listed = listed || list.failure == nil
			outcome.unlisted = cmp.Or(outcome.unlisted, list.failure)
			refused = refused || !list.succeeded && list.failure != nil
		}
	}
	if listed {
		outcome.unlisted = nil
	}
	for _, iface := range s.interfaces {
		for key, part := range iface.parts {
			note(part.readResult, &interfaces)
			if key.Category == registry.Providers {
				failed := part.failure != nil && !part.succeeded
				readable, refused = readable || !failed, refused || failed
			}
		}
	}
	for name, application := range s.applications {
		note(application.readResult, &applications)
		readable, refused = readable || application.failure == nil, refused || application.failure != nil
		for id, instance := range application.instances {
			outcome.settled = outcome.settled && instance.settled
			if instance.problem != "" {
				applications = append(applications, fmt.Sprintf("instance %s of %s: %s", id, name, instance.problem))
			}
		}
	}
	for _, lookup := range s.lookups {
		if lookup.overLimit() {
			applications = append(applications, lookup.reason())
		}
	}
	outcome.refused = refused && !readable
	slices.Sort(interfaces)
	slices.Sort(applications)
	outcome.problems = slices.Concat(lists, core.First(interfaces, "interfaces"), core.First(applications, "of applications"))
	return outcome
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

// unresolved names the first application that has an instance without services for lack of its metadata.
func (s *state) unresolved() []string {
	texts := map[string]string{} // by application
	for key, lookup := range s.lookups {
		if lookup.metadata != nil || lookup.failures < reportAfter || lookup.overLimit() {
			continue
		}
		for instance := range lookup.instances {
			if !instance.Off && !s.hasServices(instance) {
				texts[key.application] = fmt.Sprintf("application %s: nothing is served, its metadata cannot be read: %s",
					provider.Shorten(key.application), lookup.reason())
			}
		}
	}
	return core.First(slices.Sorted(maps.Values(texts)), "applications")
}

// maxFallbacks is the number of fallbacks that the status names, each with its reason.
const maxFallbacks = 5

// metadataSources names the sources of the services of applications, and the reason of each fallback.
func (s *state) metadataSources() []string {
	found, fallbacks := map[string][]string{}, map[string][]string{} // names by source
	for key, lookup := range s.lookups {
		if lookup.metadata != nil {
			found[lookup.source] = append(found[lookup.source], key.application)
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
			name := key.application + " revision " + provider.Shorten(key.revision)
			fallbacks[source] = append(fallbacks[source], name)
		}
	}
	texts := namesBy(fallbacks)
	if more := len(texts) - maxFallbacks; more > 0 {
		texts = append(texts[:maxFallbacks], fmt.Sprintf("and %d more fallbacks", more))
	}
	return append(namesBy(found), texts...)
}

// namesBy lists the first three names of each source, in order.
func namesBy(namesBySource map[string][]string) (texts []string) {
	for _, source := range slices.Sorted(maps.Keys(namesBySource)) {
		names := slices.Compact(slices.Sorted(slices.Values(namesBySource[source])))
		text := strings.Join(names[:min(3, len(names))], ", ")
		if len(names) > 3 {
			text += fmt.Sprintf(" and %d more", len(names)-3)
		}
		texts = append(texts, text+" by "+source)
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
	text := "no Dubbo provider in " + strings.TrimSuffix(strings.TrimSpace(s.place), " service")
	inConsul := s.place == consulPlace
	if others > 0 {
		text += fmt.Sprintf(", but %d other services", others)
	}
	switch {
	case others == 0 && inConsul:
		text += ", and no other service: check dc, ns and partition in the address, and that the token may read services"
	case inConsul:
		text += fmt.Sprintf(": Dubbo's interfaces have the tag %s, applications tags like %s", dubboconsul.Tag, provider.InstanceTag)
	case others > 0 && strings.HasPrefix(s.place, NacosScheme+" "):
		text += "; for these use kind=services in the address"
	}
	return []string{text}
}
