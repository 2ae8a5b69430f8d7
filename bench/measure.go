package main

import (
	"slices"
	"time"
)

// figures are the costs of one scenario on one server.
type figures struct {
	CPU        time.Duration // of the server process, from the first cause until the last acknowledgement is processed
	P50        time.Duration // until half of the streams had it
	P99        time.Duration
	Last       time.Duration // until the last one had it
	Bytes      uint64        // received by clients, without gRPC's and HTTP's framing
	Messages   uint64
	RSS        uint64 // of the server before the step, after a collection
	PeakRSS    uint64 // during the step
	Allocs     uint64 // heap objects allocated during the step
	AllocBytes uint64
	Rate       float64 // changes a second that were accepted, in a storm
}

// result is the outcome of a scenario of a case, over its repetitions.
type result struct {
	benchCase
	Scenario string
	figures
	// The least and the most CPU of all repetitions: the spread.
	Least, Most time.Duration
	Repeats     int
	Err         error
}

// summarize takes the median of every figure by itself.
func summarize(c benchCase, scenario string, runs []figures) result {
	r := result{benchCase: c, Scenario: scenario, Repeats: len(runs)}
	r.CPU = median(runs, func(f figures) time.Duration { return f.CPU })
	r.P50 = median(runs, func(f figures) time.Duration { return f.P50 })
	r.P99 = median(runs, func(f figures) time.Duration { return f.P99 })
	r.Last = median(runs, func(f figures) time.Duration { return f.Last })
	r.Bytes = median(runs, func(f figures) uint64 { return f.Bytes })
	r.Messages = median(runs, func(f figures) uint64 { return f.Messages })
	r.RSS = median(runs, func(f figures) uint64 { return f.RSS })
	r.PeakRSS = median(runs, func(f figures) uint64 { return f.PeakRSS })
	r.Allocs = median(runs, func(f figures) uint64 { return f.Allocs })
	r.AllocBytes = median(runs, func(f figures) uint64 { return f.AllocBytes })
	r.Rate = median(runs, func(f figures) float64 { return f.Rate })
	byCPU := func(a, b figures) int { return int(a.CPU - b.CPU) }
	r.Least, r.Most = slices.MinFunc(runs, byCPU).CPU, slices.MaxFunc(runs, byCPU).CPU
	return r
}

func median[T time.Duration | uint64 | float64](runs []figures, value func(figures) T) T {
	values := make([]T, len(runs))
	for i, f := range runs {
		values[i] = value(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
