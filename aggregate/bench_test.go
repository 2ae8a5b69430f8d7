package aggregate_test

import (
	"context"
	"fmt"
	"testing"

	"tributary/aggregate"
	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
)

// BenchmarkChange changes one resource in one of three sources, with 100,000 in all, and waits until the view has it.
func BenchmarkChange(b *testing.B) {
	const size = 100_000
	stores := []*memstore.Store{memstore.New(), memstore.New(), memstore.New()}
	batches := make([][]*resource.Resource, len(stores))
	for i := range size {
		n := i % len(stores)
		batches[n] = append(batches[n], storetest.New(resource.ServiceEntry, fmt.Sprint("ns", i%100), fmt.Sprintf("%06d", i), "old"))
	}
	for i, s := range stores {
		put(s, batches[i]...)
		s.MarkSynced()
	}
	view := aggregate.New(
		aggregate.Source{Name: "a", Reader: stores[0]}, aggregate.Source{Name: "b", Reader: stores[1]},
		aggregate.Source{Name: "c", Reader: stores[2]})
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = view.Run(ctx)
	}()
	for changed := view.Changed(); !view.Synced(); changed = view.Changed() {
		<-changed
	}
	versions := [2]*resource.Resource{
		storetest.New(resource.ServiceEntry, "ns7", "000007", "a"),
		storetest.New(resource.ServiceEntry, "ns7", "000007", "b"),
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		changed := view.Changed()
		put(stores[1], versions[i%2])
		<-changed
	}
	cancel()
	<-stopped
}
