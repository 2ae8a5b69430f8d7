package envoy

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tributary/resource"
	"tributary/server/envoy/envoytest"
)

// The objects of a golden case come one after the other, and go again. After each change, its client has the same resources
// as with a fresh catalog.
func TestGoldenCases_AsChanges(t *testing.T) {
	envoytest.Goldens(t, false, "translate/testdata/*.txtar", func(c *envoytest.Case) {
		s := newSteps(Options{WarnUnenforced: c.Has("options")})
		apply := func(puts []*resource.Resource, deletes ...resource.Key) {
			s.apply(puts, deletes...)
			fresh := New(&s.table, Options{Log: s.c.log, WarnUnenforced: c.Has("options")})
			fresh.reset(s.table.Snapshot(), true)
			want, got := dump(c.T, fresh, c.Node()), dump(c.T, s.c, c.Node())
			require.True(c, maps.EqualFunc(want, got, func(a, b proto.Message) bool { return proto.Equal(a, b) }),
				"%v, without %v\n%v\n%v", puts, deletes, want, got)
		}
		objects := c.Objects()
		for _, object := range objects {
			apply([]*resource.Resource{object})
		}
		for _, object := range slices.Backward(objects) {
			apply(nil, object.Key())
		}
	})
}
