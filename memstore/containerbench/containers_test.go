package containerbench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

const (
	size       = 100_000
	namespaces = 100
)

// objects returns size objects in random order, with bodies shared so that memory is the container's.
func objects() []*object {
	all := make([]*object, size)
	for i := range all {
		all[i] = &object{Namespace: fmt.Sprintf("team-%02d", i%namespaces), Name: fmt.Sprintf("service-%06d", i)}
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(size, func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func fill(c container, all []*object) {
	if c, ok := c.(*copied); ok { // one by one would take minutes, which is the point of the others
		for _, o := range all {
			c.rows = append(c.rows, row{o.Namespace, o.Name, o})
		}
		slices.SortFunc(c.rows, row.compare)
		return
	}
	for _, o := range all {
		c.put(o)
	}
}

// forEach runs f for each container, filled.
func forEach(b *testing.B, f func(b *testing.B, c container, all []*object)) {
	all := objects()
	for _, entry := range containers {
		b.Run(entry.name, func(b *testing.B) {
			c := entry.new()
			fill(c, all)
			b.ReportAllocs()
			b.ResetTimer()
			f(b, c, all)
		})
	}
}

// BenchmarkUpdate changes one object and takes a snapshot.
func BenchmarkUpdate(b *testing.B) {
	forEach(b, func(b *testing.B, c container, all []*object) {
		var kept snapshot
		for i := 0; b.Loop(); i++ {
			o := *all[i%size]
			c.put(&o)
			kept = c.snapshot()
		}
		runtime.KeepAlive(kept)
	})
}

func BenchmarkGet(b *testing.B) {
	forEach(b, func(b *testing.B, c container, all []*object) {
		s := c.snapshot()
		for i := 0; b.Loop(); i++ {
			if o := all[i%size]; s.get(o.Namespace, o.Name) != o {
				b.Fatal("lost", o)
			}
		}
	})
}

// BenchmarkList reads one namespace, a hundredth of the objects.
func BenchmarkList(b *testing.B) {
	forEach(b, func(b *testing.B, c container, all []*object) {
		s := c.snapshot()
		for i := 0; b.Loop(); i++ {
			n := 0
			s.list(all[i%size].Namespace, func(*object) bool { n++; return true })
			if n != size/namespaces {
				b.Fatal("listed", n)
			}
		}
	})
}

func BenchmarkAll(b *testing.B) {
	forEach(b, func(b *testing.B, c container, _ []*object) {
		s := c.snapshot()
		for b.Loop() {
			n := 0
			s.all(func(*object) bool { n++; return true })
			if n != size {
				b.Fatal("listed", n)
			}
		}
	})
}

// BenchmarkMemory reports what a filled container holds besides the objects.
func BenchmarkMemory(b *testing.B) {
	all := objects()
	for _, entry := range containers {
		b.Run(entry.name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				c := entry.new()
				fill(c, all)
				b.ReportMetric(float64(heap()-before)/size, "B/object")
				runtime.KeepAlive(c)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
