package guard

import (
	"context"
	"time"
)

// ending says how a hold ended, for people.
type ending string

const (
	released ending = "it was released"
	expired  ending = "holdFor has passed"
	cameBack ending = "everything has come back"
)

// Run logs the beginning and the end of each hold, and lets a hold go when its time has come, until ctx ends. It may be
// called again then, but never twice at once.
func (g *Guard) Run(ctx context.Context) {
	for ctx.Err() == nil {
		due := g.look()
		select {
		case <-ctx.Done():
		case <-g.wake:
		case <-due:
			g.release(expired)
		}
	}
}

// look tells what is new, and returns a channel for the time at which the hold ends by itself. Of holds that come and go
// faster than it is called, the last stands for all.
func (g *Guard) look() (due <-chan time.Time) {
	now := g.Status()
	g.mu.Lock()
	begun, why, how := g.holds, g.why, g.how
	g.mu.Unlock()
	ended := begun
	if now != nil {
		ended--
	}
	g.tellEnd(min(g.announced, ended), how)
	if g.announced < begun {
		g.announced = begun
		var objects, endpoints int
		if now != nil {
			objects, endpoints = now.Objects, now.Endpoints
		}
		g.log.Error("a loss is held back: what the source no longer has stays in force until the hold is released",
			"why", why, "objects", objects, "endpoints", endpoints)
	}
	g.tellEnd(ended, how)
	if now == nil {
		g.remember(time.Time{})
		return nil
	}
	g.remember(now.Since)
	if now.Until == nil {
		return nil
	}
	return time.After(now.Until.Sub(g.now()))
}

// tellEnd logs the end of a hold, unless it was logged before.
func (g *Guard) tellEnd(number int, how ending) {
	if g.finished < number {
		g.finished = number
		g.log.Warn("the hold has ended", "why", string(how))
	}
}
