// Package registry is the state machine of registries: from what one lists to what the sink takes. A source adds a client, a pure mapping
// and options.
//
// # The contract
//
// The client delivers what is listed: all of one group (Machine.Take), or all of the registry (Machine.TakeAll), whether it read that as
// a whole or put it together of differences. What it could not read it does not deliver: what was known stays, and the source reports why.
// The mapping turns each instance into offers: a service, an endpoint, and a State (listed, disabled by those who run it, unreadable, or as
// if it were not listed), with warnings and with what is left out.
//
// Whether a missing endpoint has gone, only the registry can know, and registries know it by different means: Nacos by its connection,
// Eureka by the instance and by what its servers answer about it. So doubt is a function, and no state of the machine: it says until when
// an endpoint stays that is not listed. A session that was lost is a Suspicion, which covers all that was known before. Whoever changes his
// mind about a hold calls Machine.Reconsider. Machine.Explained says that the registry itself proves the losses of now.
//
// The machine settles what is believed: what is listed counts at once, what is disabled goes at once, what is missing stays until its hold
// ends, and a service that has nobody is kept for a time without endpoints. It gives services names and ports (which stay while something
// is in doubt), reports what is left out, and returns the groups that changed (Machine.Contents) and when something changes by itself
// (Machine.Next). What an earlier run published it takes back by Machine.Restore. Publish hands all that on at its pace.
//
// Registries of sessions, such as ZooKeeper, Nacos and Eureka, list who registers for as long as they hear of it. One that was away lists
// less than there is until all have registered anew.
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

// Restore calls restore with each group that an earlier run published, and with what it has; nothing if that cannot be told.
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

// add adds to a group what a service became: objects and warnings, and what is wrong with it.
func add(c *sources.Content, place string, warned []string, err error, made ...*resource.Resource) {
	c.Warnings = append(c.Warnings, warned...)
	if err != nil {
		c.Rejects = append(c.Rejects, sources.Reject{Origin: resource.Origin{Place: strings.ToValidUTF8(place, "?")}, Err: err})
	}
	c.Resources = append(c.Resources, slices.DeleteFunc(made, func(r *resource.Resource) bool { return r == nil })...)
}

// tidy puts the warnings of a group in order, each once.
func tidy(c sources.Content) sources.Content {
	slices.Sort(c.Warnings)
	c.Warnings = slices.Compact(c.Warnings)
	return c
}

// HeldText says that endpoints are not listed and stay.
func HeldText(endpoints int) string {
	return words.Count(endpoints, "endpoint is not listed and stays", "endpoints are not listed and stay")
}

// StateOf is the state of a source that cannot read for a reason, which is denied if that is among its causes.
func StateOf(err, denied error) sources.State {
	if errors.Is(err, denied) {
		return sources.Denied
	}
	return sources.Unreachable
}
