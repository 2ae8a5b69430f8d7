package load

import (
	"math"
	"time"
)

// Seconds is a duration as it is written in JSON.
type Seconds float64

// String returns the duration as people write it.
func (s Seconds) String() string {
	d := time.Duration(float64(s) * float64(time.Second))
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}

// Quantiles are those of a number of durations. They are zero if there are none.
type Quantiles struct {
	Count int     `json:"count"`
	P50   Seconds `json:"p50"`
	P90   Seconds `json:"p90"`
	P99   Seconds `json:"p99"`
	Max   Seconds `json:"max"`
}

// growth is the ratio of the bounds of neighbouring buckets: quantiles are right to within 2 %.
const growth = 1.02

// histogram counts durations in buckets that grow with them, so that it never needs much memory. The first bucket has what
// is below a microsecond.
type histogram struct {
	buckets []int
	count   int
	max     time.Duration
}

func (h *histogram) add(d time.Duration) {
	i := 0
	if us := float64(d) / float64(time.Microsecond); us > 1 {
		i = int(math.Ceil(math.Log(us) / math.Log(growth)))
	}
	for len(h.buckets) <= i {
		h.buckets = append(h.buckets, 0)
	}
	h.buckets[i]++
	h.count++
	h.max = max(h.max, d)
}

func (h *histogram) quantiles() Quantiles {
	return Quantiles{Count: h.count, P50: h.quantile(0.5), P90: h.quantile(0.9), P99: h.quantile(0.99), Max: Seconds(h.max.Seconds())}
}

// quantile returns the upper bound of the bucket in which the share q of all is reached.
func (h *histogram) quantile(q float64) Seconds {
	left := int(math.Ceil(q * float64(h.count)))
	for i, n := range h.buckets {
		if left -= n; left <= 0 && h.count > 0 {
			return Seconds(min(math.Pow(growth, float64(i))/1e6, h.max.Seconds()))
		}
	}
	return 0
}
