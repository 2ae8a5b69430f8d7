package guard

import (
	"google.golang.org/protobuf/encoding/protowire"

	"tributary/resource"
)

// serviceEntryEndpoints is the number of the field `endpoints` of istio.networking.v1alpha3.ServiceEntry.
const serviceEntryEndpoints = 6

// endpoints counts the endpoints of a ServiceEntry without decoding it. Other resources, and nil, have none.
func endpoints(r *resource.Resource) int {
	if r == nil || r.Key().Kind != resource.ServiceEntry {
		return 0
	}
	n := 0
	for b := r.Body(); len(b) > 0; {
		field, wire, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return n // not a message; validation reports it
		}
		value := protowire.ConsumeFieldValue(field, wire, b[tag:])
		if value < 0 {
			return n
		}
		if field == serviceEntryEndpoints {
			n++
		}
		b = b[tag+value:]
	}
	return n
}
