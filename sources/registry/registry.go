// Package registry is the state machine of registries: it turns listings into content for the sink. A source adds a
// client, a pure mapping and options.
//
// # The contract
//
// The client delivers complete listings: of one group (Machine.Take) or of the whole registry (Machine.TakeAll). If it
// cannot read one, the previous content stays, and the source reports why. The mapping turns each instance into offers:
// a service, an endpoint, and a State (listed, disabled, unreadable or unlisted), with warnings and left-out instances.
// Hosts is a mapping for services that are hosts with one port each: a source adds the offers and Restore. Naming names
// hosts for other mappings.
//
// Only the registry can know whether a missing endpoint has gone. A lost session is a presence.Suspicion, which covers
// everything from before: the source calls Machine.Leave and Machine.Return. Where a registry has further proofs, as
// the answers of Eureka's servers about an instance, a function of the source returns how long an unlisted endpoint
// stays. A source whose function changes its result calls Machine.Reconsider. Machine.RemovalsObserved says that the
// registry itself proves the current losses.
//
// The machine decides which endpoints are served: a listed one counts at once, a disabled one goes at once, a missing
// one stays until its hold ends, and a service without endpoints stays for a time. It gives services names and ports
// (which do not change while endpoints are in doubt), reports left-out instances, and returns the groups that changed
// (Machine.Contents) and when something changes by itself (Machine.Next). Machine.Restore takes back what an earlier
// run published. Publish passes all that to the sink.
//
// Registries of sessions, such as ZooKeeper, Nacos and Eureka, list an instance while they hear from it. After an
// outage they list too little until all instances have registered again.
//
// Apart from Publish the package does no I/O and has no clock.
package registry

import (
	"errors"
	"slices"
	"strings"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
)

// Restore calls restore with each group that an earlier run published, and with its objects; none if these are unknown.
func Restore(sink sources.Sink, restore func(group string, published []*resource.Resource)) {
	recaller, _ := sink.(sources.Recaller)
	for _, name := range sink.Groups() {
		var published []*resource.Resource
		if recaller != nil {
			published = recaller.Published(name)
		}
		restore(name, published)
	}
}

// add adds to a group the objects, warnings and error of a service.
func add(content *sources.Content, place string, warned []string, err error, resources ...*resource.Resource) {
	content.Warnings = append(content.Warnings, warned...)
	if err != nil {
		content.Rejects = append(content.Rejects, sources.Reject{
			Origin: resource.Origin{Place: strings.ToValidUTF8(place, "?")},
			Err:    err,
		})
	}
	content.Resources = append(content.Resources,
		slices.DeleteFunc(resources, func(r *resource.Resource) bool { return r == nil })...)
}

// tidy sorts the warnings of a group and removes duplicates.
func tidy(content sources.Content) sources.Content {
	slices.Sort(content.Warnings)
	content.Warnings = slices.Compact(content.Warnings)
	return content
}

// First returns the first text, with the number of others; empty without texts.
func First(texts []string, singular, plural string) []string {
	if len(texts) < 2 {
		return texts
	}
	return []string{texts[0] + ", and " + words.Count(len(texts)-1, "more "+singular, "more "+plural)}
}

// HeldText says that endpoints of services are not listed and stay.
func HeldText(endpoints int, services []string) string {
	return unlistedText(endpoints) + " (" + strings.Join(First(services, "service", "services"), "") + ")"
}

func unlistedText(endpoints int) string {
	return words.Count(endpoints, "endpoint is not listed and stays", "endpoints are not listed and stay")
}

// StateOf returns the state of a source that cannot read because of err: Denied if denied is among its causes.
func StateOf(err, denied error) sources.State {
	if errors.Is(err, denied) {
		return sources.Denied
	}
	return sources.Unreachable
}
