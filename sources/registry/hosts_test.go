package registry

import (
	"testing"

	"tributary/internal/testutil"
)

func TestAHashIsNotCutAway(t *testing.T) {
	parts := func(s svc) []Part {
		return []Part{{Placeholder: "{a}", Text: string(s), Dots: true}, {Placeholder: "{b}", Text: "B"}, {Placeholder: "{c}"}}
	}
	for _, n := range []Naming[svc]{
		{Template: "{a}.{b}.{c}.x", Joint: ".", Parts: parts},
		{Template: "{a}-{b}-{c}", Joint: "-", Spare: 64, Parts: parts},
		{Template: "{a}.x", Joint: "-", Spare: 7, Parts: parts},
	} {
		testutil.HashIsNotCutAway(t, func(text, toHash string) (host, object string) {
			name := n.name(svc(text), toHash)
			return name.Host, name.Object
		})
	}
}
