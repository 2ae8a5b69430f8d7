package registry

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
)

// sink records the order of its calls.
type sink struct {
	sources.Sink
	begun time.Time
	calls []string
}

func (s *sink) say(call string) {
	s.calls = append(s.calls, fmt.Sprintf("%s %s", time.Since(s.begun).Round(time.Millisecond), call))
}

func (s *sink) ReplaceAll(contents []sources.Content) error { s.say(contents[0].Group); return nil }
func (s *sink) Synced()                                     { s.say("synced") }
func (s *sink) Report(sources.Health)                       {}

// TestPublish: a single change is published at once, changes that arrive with it are published together, and later
// changes wait for the delay.
func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, wakeup, ended := &sink{begun: time.Now()}, NewWakeup(), make(chan struct{})
		var mu sync.Mutex // of waiting changes
		waiting, synced := []string{"first"}, true
		go func() {
			defer close(ended)
			Publish(ctx, s, wakeup, time.Second, func(time.Time) (batch Batch) {
				mu.Lock()
				defer mu.Unlock()
				for _, group := range waiting {
					batch.Contents = append(batch.Contents, sources.Content{Group: group})
				}
				batch.Synced, batch.Next = synced, time.Hour
				waiting, synced = nil, false
				return batch
			})
		}()
		add := func(group string) {
			mu.Lock()
			defer mu.Unlock()
			waiting = append(waiting, group)
		}
		change := func(group string) {
			add(group)
			wakeup.Notify()
		}
		time.Sleep(10 * time.Second)
		change("alone")
		time.Sleep(20 * time.Millisecond)
		change("with it")
		time.Sleep(100 * time.Millisecond)
		change("later")
		time.Sleep(10 * time.Second)
		add("by itself")
		time.Sleep(2 * time.Hour)
		cancel()
		<-ended
		require.Equal(t, []string{"0s first", "0s synced", "10.05s alone", "11.1s later", "1h0m12.1s by itself"}, s.calls)
	})
}
