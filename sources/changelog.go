package sources

import (
	"log/slog"
	"slices"
	"strings"
	"sync"

	"golang.org/x/time/rate"

	"tributary/memstore"
)

// changeLog has a line of the log for each commit that changes what is served of a source: how much, what, and where it stands. A
// source that never rests has one a second, which says how many it stands for.
type changeLog struct {
	limiter *rate.Limiter

	mu       sync.Mutex
	unlogged int // commits without a line since the last one
}

func newChangeLog() *changeLog { return &changeLog{limiter: rate.NewLimiter(1, 20)} }

// namedChanges is how many of the objects of a commit are named.
const namedChanges = 5

// say logs what a commit changed, and what else there is to say of it.
func (l *changeLog) say(log *slog.Logger, changes []memstore.Change, more ...any) {
	if len(changes) == 0 {
		return
	}
	before, say := l.next()
	if !say {
		return
	}
	var counts [3]int // added, updated, deleted
	var named, places []string
	for i, c := range changes {
		sort, r := 1, c.New
		switch {
		case c.Old == nil:
			sort = 0
		case c.New == nil:
			sort, r = 2, c.Old
		}
		counts[sort]++
		if i >= namedChanges {
			continue
		}
		named = append(named, "+~-"[sort:sort+1]+c.Key().String())
		if place := r.Origin().Place; place != "" && !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	attrs := []any{"added", counts[0], "updated", counts[1], "deleted", counts[2], "objects", strings.Join(named, ", ")}
	if len(places) > 0 {
		attrs = append(attrs, "places", strings.Join(places, ", "))
	}
	if unnamed := len(changes) - namedChanges; unnamed > 0 {
		attrs = append(attrs, "more", unnamed)
	}
	attrs = append(attrs, more...)
	if before > 0 {
		attrs = append(attrs, "commits_before", before)
	}
	log.Info("source changed", attrs...)
}

// next reports whether there is to be a line, and how many commits had none since the last one.
func (l *changeLog) next() (before int, say bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.limiter.Allow() {
		l.unlogged++
		return 0, false
	}
	before, l.unlogged = l.unlogged, 0
	return before, true
}
