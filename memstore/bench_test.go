package memstore

import (
	"fmt"
	"testing"

	"tributary/resource"
)

const benchSize = 100_000

// BenchmarkApply changes one resource of 100,000.
func BenchmarkApply(b *testing.B) {
	table := tableOf(benchSize)
	var puts [2][1024]*resource.Resource // of two contents, so that each put is a change
	for i := range puts[0] {
		name := fmt.Sprintf("%06d", i*97)
		puts[0][i], puts[1][i] = gateway(name, "a"), gateway(name, "b")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		table.Apply([]*resource.Resource{puts[i/1024%2][i%1024]}, nil)
	}
}

// BenchmarkFollow changes one resource of 100,000 and reads the changes.
func BenchmarkFollow(b *testing.B) {
	table := tableOf(benchSize)
	rs := [2]*resource.Resource{gateway("000007", "a"), gateway("000007", "b")}
	revision := table.Snapshot().Revision()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		<-commitAfter(table, rs[i%2])
		keys, now, ok := table.Changes(revision)
		if !ok || len(keys) != 1 {
			b.Fatal(keys, ok)
		}
		revision = now.Revision()
	}
}

func commitAfter(table *Table, r *resource.Resource) <-chan struct{} {
	changed := table.Changed()
	table.Apply([]*resource.Resource{r}, nil)
	return changed
}

// BenchmarkFill makes a table of 100,000 in one commit.
func BenchmarkFill(b *testing.B) {
	var resources []*resource.Resource
	for r := range tableOf(benchSize).Snapshot().All() {
		resources = append(resources, r)
	}
	b.ReportAllocs()
	for b.Loop() {
		new(Table).Apply(resources, nil)
	}
}
