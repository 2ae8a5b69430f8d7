package consul

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources/consul/mapping"
)

// preparing is a world that wants to know what is published together, and has a service published again with another.
type preparing struct {
	*world
	told [][]string
}

func (p *preparing) Prepare(all map[string][]mapping.Service) (again []string) {
	p.told = append(p.told, slices.Sorted(maps.Keys(all)))
	if _, there := all["b"]; there && len(p.told) > 1 {
		again = append(again, "a")
	}
	return again
}

// TestPreparersAreTold shows that a mapper is told of what is published together, and that what it wants again is.
func TestPreparersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.change(local, func(f *fakeDomain) { f.set("a", at("1")); f.set("b", at("2")) })
		p, s := &preparing{world: w}, Settings{}
		require.NoError(t, s.complete())
		r := newRun(s, w, w, p, 0, newMetrics())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = r.loop(ctx) }()
		pass(time.Second)
		require.Equal(t, [][]string{{"a", "b"}}, p.told)
		w.change(local, func(f *fakeDomain) { f.set("b", at("3")) })
		pass(time.Second)
		require.Equal(t, [][]string{{"a", "b"}, {"b"}, {"a"}}, p.told)
		require.Equal(t, 2, w.times["a"])
		cancel()
		<-ended
	})
}
