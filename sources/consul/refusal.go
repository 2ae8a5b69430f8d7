package consul

import (
	"fmt"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/consul/dial"
)

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
