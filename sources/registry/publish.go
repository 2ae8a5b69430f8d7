package registry

import (
	"context"
	"time"

	"tributary/sources"
)

// quiet is how long a change waits for others that belong to it: an instance that goes may do so in several places.
const quiet = 50 * time.Millisecond

// Batch is what there is to hand on at one moment.
type Batch struct {
	Contents []sources.Content
	Synced   bool // with these, the first full read is in
	Health   sources.Health
	Next     time.Duration // there is nothing more before, unless there is a wakeup
}

// Wakeup tells Publish that there is something to publish or report.
type Wakeup chan struct{}

// NewWakeup returns a wakeup without a notification.
func NewWakeup() Wakeup { return make(Wakeup, 1) }

// Notify has Publish look. It does not wait for that.
func (w Wakeup) Notify() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Publish hands sink what gather returns, until ctx ends. What comes alone is published at once; while there is more, every delay.
func Publish(ctx context.Context, sink sources.Sink, wakeup Wakeup, delay time.Duration, gather func(now time.Time) Batch) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := gather(time.Now())
		if len(now.Contents) > 0 {
			_ = sink.ReplaceAll(now.Contents) // what is refused is shown by the status, and not the source's to mend
		}
		if now.Synced {
			sink.Synced()
		}
		sink.Report(now.Health)
		if len(now.Contents) > 0 {
			Sleep(ctx, delay)
		}
		timer.Reset(now.Next)
		select {
		case <-ctx.Done():
			return
		case <-wakeup:
			Sleep(ctx, min(quiet, delay))
		case <-timer.C:
		}
	}
}

// Wait returns how long it is until next, for Batch.Next; next is zero if nothing happens by itself.
func Wait(next, now time.Time) time.Duration {
	if next.IsZero() {
		return time.Hour
	}
	return max(time.Millisecond, min(time.Hour, next.Sub(now)))
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
