package guard

import (
	"fmt"
	"log/slog"

	"tributary/internal/words"
	"tributary/resource"
)

// Event is the beginning or the end of a hold.
type Event struct {
	Began, Resumed     bool // Resumed: before the restart
	id, reason         string
	objects, endpoints int // lost at its end
}

// TakeEvents returns the events, and the keys with a changed Held, since the last call.
func (g *Guard) TakeEvents() (events []Event, changed []resource.Key) {
	events, changed = g.events, g.changed
	g.events, g.changed = nil, nil
	return events, changed
}

// String describes the event for people.
func (e Event) String() string {
	if e.Began {
		return fmt.Sprintf("hold %s: %s", e.id, e.reason)
	}
	return fmt.Sprintf("hold %s: %s; %s and %s gone", e.id, e.reason, words.Count(e.objects, "object", "objects"),
		words.Count(e.endpoints, "endpoint", "endpoints"))
}

// Log logs the event.
func (e Event) Log(log *slog.Logger) {
	const effect = ": objects the source dropped stay served until the hold ends or is released"
	switch {
	case e.Resumed:
		log.Error("loss still held after the restart"+effect, "hold", e.id, "why", e.reason)
	case e.Began:
		log.Error("loss held"+effect, "hold", e.id, "why", e.reason)
	default:
		log.Warn("hold ended", "hold", e.id, "why", e.reason, "objects_gone", e.objects, "endpoints_gone", e.endpoints)
	}
}
