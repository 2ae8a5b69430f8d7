package guard

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"tributary/internal/words"
	"tributary/memstore"
)

// news is the beginning or the end of a hold, for people.
type news struct {
	began              bool
	resumed            bool // it began before the restart
	id, why            string
	objects, endpoints int               // that went when it ended
	changes            []memstore.Change // that its end made
}

// maxNews is how many beginnings and ends wait for Run. A source that flips faster than that is told of in part.
const maxNews = 100

// tell has Run log news, and whoever keeps State look. The caller holds mu.
func (g *Guard) tell(n news) {
	if len(g.news) < maxNews {
		g.news = append(g.news, n)
	}
	g.ring()
	g.changed(nil)
}

// brought adds what the end of a hold changed to the news of it. The caller holds mu, and has told of the end.
func (g *Guard) brought(hold string, changes []memstore.Change) {
	if last := len(g.news) - 1; g.news[last].id == hold {
		g.news[last].changes = changes
	}
}

func (g *Guard) ring() {
	select {
	case g.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// Run logs the beginning and the end of each hold, and lets a hold go when its time has come, until ctx ends. It may be
// called again then, but never twice at once.
func (g *Guard) Run(ctx context.Context) {
	for {
		due := g.report()
		select {
		case <-ctx.Done():
			g.report()
			return
		case <-g.wake:
		case <-due:
			g.expire()
		}
	}
}

// report logs what is new, and returns a channel for the time at which the hold ends by itself.
func (g *Guard) report() (due <-chan time.Time) {
	g.mu.Lock()
	all := g.news
	g.news = nil
	var at time.Time
	if g.hold != nil {
		at, _ = g.hold.ends(g.settings)
	}
	now := g.now()
	g.mu.Unlock()
	for _, n := range all {
		n.log(g.log)
		if g.told != nil && !n.resumed {
			g.told(n.began, n.String())
		}
		if len(n.changes) > 0 {
			g.ended(n.id, n.changes)
		}
	}
	if at.IsZero() {
		return nil
	}
	return time.After(at.Sub(now))
}

// String says in words what has happened.
func (n news) String() string {
	if n.began {
		return fmt.Sprintf("hold %s: %s", n.id, n.why)
	}
	return fmt.Sprintf("hold %s: %s; %s and %s gone", n.id, n.why, words.Count(n.objects, "object", "objects"),
		words.Count(n.endpoints, "endpoint", "endpoints"))
}

func (n news) log(log *slog.Logger) {
	if n.resumed {
		log.Error("a loss is still held back, as before the restart: it stays in force until the hold ends or is released",
			"hold", n.id, "why", n.why)
		return
	}
	if n.began {
		log.Error("a loss is held back: what the source no longer has stays in force until the hold ends or is released",
			"hold", n.id, "why", n.why)
		return
	}
	log.Warn("the hold has ended", "hold", n.id, "why", n.why, "objects_gone", n.objects, "endpoints_gone", n.endpoints)
}
