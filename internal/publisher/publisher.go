// Package publisher hands the sink of a source what its state has to publish, for sources that are told of changes one by one.
package publisher

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
	Next     time.Duration // there is nothing more before, unless the bell rings
}

// Run hands sink what gather returns, until ctx ends. What comes alone is published at once; while there is more, every delay.
func Run(ctx context.Context, sink sources.Sink, bell <-chan struct{}, delay time.Duration, gather func(now time.Time) Batch) {
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
		case <-bell:
			Sleep(ctx, min(quiet, delay))
		case <-timer.C:
		}
	}
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
