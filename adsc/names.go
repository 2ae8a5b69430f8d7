package adsc

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// namer returns what tells the name of a resource, or nothing if that is not known: delta has it beside the resource, and
// for state of the world it is as the caller says, or as it is in Envoy's types.
func namer(s Subscription) func(Resource) string {
	inside := s.NameOf
	if inside == nil && strings.HasPrefix(s.TypeURL, "type.googleapis.com/envoy.") {
		inside = firstField
	}
	return func(r Resource) string {
		if r.Name != "" || inside == nil {
			return r.Name
		}
		return inside(r.Body)
	}
}

// firstField returns the first field of an encoded message. That is where all of Envoy's types have their name.
func firstField(a *anypb.Any) string {
	b := a.GetValue()
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return ""
		}
		b = b[n:]
		if num == 1 && typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b) // it is empty if it is cut
			return string(v)
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return ""
		}
		b = b[n:]
	}
	return ""
}
