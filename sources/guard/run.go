package guard

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"tributary/internal/words"
	"tributary/memstore"
)

// holdEvent is the beginning or the end of a hold.
type holdEvent struct {
	began              bool
	resumed            bool // the hold began before the restart
	id, reason         string
	objects, endpoints int               // lost at its end
	changes            []memstore.Change // made by its end
}

// maxEvents caps how many events wait for Run. Of a source that flips faster, some are not reported.
const maxEvents = 100

// queueEvent queues e for Run and calls Changed. The caller holds mu.
func (g *Guard) queueEvent(e holdEvent) {
	if len(g.events) < maxEvents {
		g.events = append(g.events, e)
	}
	g.wakeRun()
	g.changed(nil)
}

func (g *Guard) wakeRun() {
	select {
	case g.wake <- struct{}{}:
	default: // Run will wake anyway
	}
}

// Run reports when holds begin and end, and ends a hold at its end time, until ctx ends. It may be called again then,
// but never twice at once.
func (g *Guard) Run(ctx context.Context) {
	for {
		due := g.report()
		select {
		case <-ctx.Done():
			g.report()
			return
		case <-g.wake:
		case <-due:
			g.endDueHold()
		}
	}
}

// report logs the queued events, and returns a channel for the time at which the hold ends by itself.
func (g *Guard) report() (due <-chan time.Time) {
	g.mu.Lock()
	events := g.events
	g.events = nil
	var endTime time.Time
	if g.hold != nil {
		endTime, _ = g.hold.endTime(g.settings)
	}
	now := g.now()
	g.mu.Unlock()
	for _, e := range events {
		e.log(g.log)
		if g.onEvent != nil && !e.resumed {
			g.onEvent(e.began, e.String())
		}
		if len(e.changes) > 0 {
			g.ended(e.id, e.changes)
		}
	}
	if endTime.IsZero() {
		return nil
	}
	return time.After(endTime.Sub(now))
}

// String describes the event for people.
func (e holdEvent) String() string {
	if e.began {
		return fmt.Sprintf("hold %s: %s", e.id, e.reason)
	}
	return fmt.Sprintf("hold %s: %s; %s and %s gone", e.id, e.reason, words.Count(e.objects, "object", "objects"),
		words.Count(e.endpoints, "endpoint", "endpoints"))
}

func (e holdEvent) log(log *slog.Logger) {
	if e.resumed {
		log.Error("loss still held after the restart: objects the source dropped stay served until the hold ends or is released",
			"hold", e.id, "why", e.reason)
		return
	}
	if e.began {
		log.Error("loss held: objects the source dropped stay served until the hold ends or is released",
			"hold", e.id, "why", e.reason)
		return
	}
	log.Warn("hold ended", "hold", e.id, "why", e.reason, "objects_gone", e.objects, "endpoints_gone", e.endpoints)
}
