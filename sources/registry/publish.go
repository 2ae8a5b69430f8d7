package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"tributary/internal/worker"
	"tributary/sources"
)

// quiet is how long a change waits for related ones: one instance may change in several places.
const quiet = 50 * time.Millisecond

// Batch is the input of one publication.
type Batch struct {
	Contents []sources.Content
	Synced   bool // the first full read is complete with these
	Health   sources.Health
	Next     time.Duration // until the next batch, if no wakeup comes first
	Note     any           // for RecallNote of the next run; nil keeps the earlier one
	// Unconfirmed has the groups of Health.Unconfirmed, with the reasons.
	Unconfirmed map[string]string
}

// RecallNote reads the note of an earlier run. Without one, note stays as it is.
func RecallNote(sink sources.Sink, note any) {
	if keeper, ok := sink.(sources.Keeper); ok {
		_ = json.Unmarshal(keeper.LastNote(), note) // without a note, the run begins like the first one
	}
}

// KeepNote keeps a note for the next run unless it equals kept, and returns its text.
func KeepNote(sink sources.Sink, note any, former []byte) []byte {
	text, err := json.Marshal(note)
	if keeper, ok := sink.(sources.Keeper); ok && err == nil && !bytes.Equal(text, former) {
		keeper.Keep(text)
	}
	return text
}

// Wakeup tells Publish that there is something to publish or report.
type Wakeup chan struct{}

// NewWakeup returns a wakeup without a notification.
func NewWakeup() Wakeup { return make(Wakeup, 1) }

// Notify makes Publish gather soon. It does not block.
func (w Wakeup) Notify() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// Publish passes the results of gather to sink until ctx ends. A single change is published at once; a series, once per
// delay.
func Publish(ctx context.Context, sink sources.Sink, wakeup Wakeup, delay time.Duration,
	gather func(now time.Time) Batch,
) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var former []byte
	for {
		now := gather(time.Now())
		if len(now.Contents) > 0 {
			_ = sink.ReplaceAll(now.Contents) // the status shows refused objects
		}
		if now.Synced {
			sink.Synced()
		}
		if now.Note != nil {
			former = KeepNote(sink, now.Note, former)
		}
		sources.ReportUnconfirmed(sink, now.Unconfirmed)
		sink.Report(now.Health)
		if len(now.Contents) > 0 {
			_ = worker.Wait(ctx, nil, delay)
		}
		timer.Reset(now.Next)
		select {
		case <-ctx.Done():
			return
		case <-wakeup:
			_ = worker.Wait(ctx, nil, min(quiet, delay))
		case <-timer.C:
		}
	}
}

// Wait returns the time until next, for Batch.Next; next is zero without an update.
func Wait(next, now time.Time) time.Duration {
	if next.IsZero() {
		return time.Hour
	}
	return max(time.Millisecond, min(time.Hour, next.Sub(now)))
}
