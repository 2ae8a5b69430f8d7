package sources

import (
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"

	"tributary/memstore"
)

// changeLog logs one line for each commit that changes the served objects of a source: their number, names and places.
// A busy source gets one line a second, which counts the commits without a line.
type changeLog struct {
	limiter  *rate.Limiter
	unlogged atomic.Int64 // commits without a line since the last one
}

func newChangeLog() *changeLog { return &changeLog{limiter: rate.NewLimiter(1, 20)} }

// namedChanges is the number of objects that the line of a commit names.
const namedChanges = 5

// logChanges logs the changes of a commit with further attributes.
func (l *changeLog) logChanges(log *slog.Logger, changes []memstore.Change, attributes ...any) {
	if len(changes) == 0 {
		return
	}
	if !l.limiter.Allow() {
		l.unlogged.Add(1)
		return
	}
	unlogged := l.unlogged.Swap(0)
	var counts [3]int // added, updated, deleted
	var named, places []string
	for i, change := range changes {
		sort, resource := 1, change.New
		switch {
		case change.Old == nil:
			sort = 0
		case change.New == nil:
			sort, resource = 2, change.Old
		}
		counts[sort]++
		if i >= namedChanges {
			continue
		}
		named = append(named, "+~-"[sort:sort+1]+change.Key().String())
		if place := resource.Origin().Place; place != "" && !slices.Contains(places, place) {
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
	attrs = append(attrs, attributes...)
	if unlogged > 0 {
		attrs = append(attrs, "commits_before", unlogged)
	}
	log.Info("source changed", attrs...)
}
