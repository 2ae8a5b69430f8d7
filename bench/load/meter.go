package main

import (
	"math"
	"sync"
	"time"
)

// Report is the traffic to the clients so far.
type Report struct {
	Clients int    `json:"clients"`
	Synced  int    `json:"synced"`            // clients that were answered every type they asked for
	Failed  int    `json:"failed"`            // streams that the server ended
	Failure string `json:"failure,omitempty"` // the first of them

	Elapsed Seconds `json:"elapsed_seconds"`

	Initial  Traffic   `json:"initial"`         // the first answers
	SyncedIn Seconds   `json:"synced_seconds"`  // from the start until every client was answered; 0 if they are not
	Sync     Quantiles `json:"sync_seconds"`    // of each client, from the opening of its stream to the end of its first answers
	Later    Traffic   `json:"later"`           // after them
	Watched  Seconds   `json:"watched_seconds"` // since every client was answered
	Changes  int       `json:"changes"`         // versions of a type that came up after the first answers
	// Lag is how much later a client got a version than the client that got it first.
	Lag Quantiles `json:"lag_seconds"`
}

// Traffic is the received traffic.
type Traffic struct {
	Messages  int   `json:"messages"`
	Bytes     int64 `json:"bytes"`
	Resources int64 `json:"resources"` // with the removals of delta
}

func (t *Traffic) add(r *response) {
	t.Messages++
	t.Bytes += int64(r.size)
	t.Resources += int64(r.resources + r.removed)
}

type meter struct {
	// read-only
	cfg     Config
	start   time.Time
	settled chan struct{} // closed when each client has been answered or has failed

	mu       sync.Mutex // guards the following fields
	totals   Report
	open     int       // clients that have neither
	syncedAt time.Time // when open became zero
	sync     histogram
	lag      histogram
	versions versions
}

func newMeter(cfg Config) *meter {
	return &meter{
		cfg: cfg, start: time.Now(), settled: make(chan struct{}), open: cfg.Clients,
		totals: Report{Clients: cfg.Clients}, versions: versions{last: make(map[version]sight)},
	}
}

// initial counts a part of a first answer, and returns the place of its version.
func (m *meter) initial(r *response, now time.Time) (place int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.totals.Initial.add(r)
	place, _, _ = m.versions.see(version{r.typeURL, r.version}, 0, now)
	return place
}

// later counts a response after the first answer, to a client that was at a place before, and returns the place that it is
// at now.
func (m *meter) later(r *response, before int, news bool, now time.Time) (place int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.totals.Later.add(r)
	if !news {
		return before
	}
	place, first, seen := m.versions.see(version{r.typeURL, r.version}, before, now)
	if seen {
		m.lag.add(now.Sub(first))
	} else {
		m.totals.Changes++
	}
	return place
}

// settle notes that a client was answered all its types, or never will be.
func (m *meter) settle(answered bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if answered {
		m.totals.Synced++
	}
	if m.open--; m.open == 0 {
		m.syncedAt = time.Now()
		close(m.settled)
	}
}

func (m *meter) filled(from, to time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sync.add(to.Sub(from))
}

func (m *meter) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.totals.Failed++; m.totals.Failed == 1 {
		m.totals.Failure = err.Error()
	}
}

func (m *meter) report() Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.totals
	now := time.Now()
	r.Elapsed = Seconds(now.Sub(m.start).Seconds())
	if !m.syncedAt.IsZero() {
		r.SyncedIn = Seconds(m.syncedAt.Sub(m.start).Seconds())
		r.Watched = Seconds(now.Sub(m.syncedAt).Seconds())
	}
	r.Sync, r.Lag = m.sync.quantiles(), m.lag.quantiles()
	return r
}

type version struct{ typeURL, name string }

// versions keeps the versions in the order of their first appearance, as the history of the server. One may come back,
// as content hashes do when a change is undone, and then has a new place.
type versions struct {
	last map[version]sight
	ring []version // that came up last; the oldest is the next to be forgotten
	seen int       // places so far
}

// sight is when a version was first seen, and its place in the history, from 1.
type sight struct {
	place int
	seen  time.Time
}

// maxVersions bounds the remembered versions. To a client that is further behind, its next version seems new.
const maxVersions = 1 << 14

// see returns the place of v in the history after a given place, when it was first seen there, and whether that was before
// now.
func (vs *versions) see(v version, after int, now time.Time) (place int, first time.Time, before bool) {
	if s, ok := vs.last[v]; ok && s.place > after {
		return s.place, s.seen, true
	}
	if len(vs.ring) < maxVersions {
		vs.ring = append(vs.ring, v)
	} else {
		oldest := &vs.ring[vs.seen%maxVersions]
		if vs.last[*oldest].place <= vs.seen-maxVersions+1 { // else it has come back since
			delete(vs.last, *oldest)
		}
		*oldest = v
	}
	vs.seen++
	vs.last[v] = sight{vs.seen, now}
	return vs.seen, now, false
}

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

// histogram counts durations in buckets that grow with them, so that it never needs much memory. The first bucket has
// durations below a microsecond.
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

// quantile returns the upper bound of the bucket that reaches the share q of all durations.
func (h *histogram) quantile(q float64) Seconds {
	remaining := int(math.Ceil(q * float64(h.count)))
	for i, n := range h.buckets {
		if remaining -= n; remaining <= 0 && h.count > 0 {
			return Seconds(min(math.Pow(growth, float64(i))/1e6, h.max.Seconds()))
		}
	}
	return 0
}
