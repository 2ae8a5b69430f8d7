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

// sink remembers when it was told what.
type sink struct {
	sources.Sink
	begun time.Time
	told  []string
}

func (s *sink) say(what string) {
	s.told = append(s.told, fmt.Sprintf("%s %s", time.Since(s.begun).Round(time.Millisecond), what))
}

func (s *sink) ReplaceAll(all []sources.Content) error { s.say(all[0].Group); return nil }
func (s *sink) Synced()                                { s.say("synced") }
func (s *sink) Report(sources.Health)                  {}

// TestPublish shows that what comes alone is published at once, what comes with it waits for it, and that what follows waits for the delay.
func TestPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, wakeup, ended := &sink{begun: time.Now()}, NewWakeup(), make(chan struct{})
		var mu sync.Mutex // of what waits
		waiting, synced := []string{"first"}, true
		go func() {
			defer close(ended)
			Publish(ctx, s, wakeup, time.Second, func(time.Time) (b Batch) {
				mu.Lock()
				defer mu.Unlock()
				for _, group := range waiting {
					b.Contents = append(b.Contents, sources.Content{Group: group})
				}
				b.Synced, b.Next = synced, time.Hour
				waiting, synced = nil, false
				return b
			})
		}()
		add := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			waiting = append(waiting, what)
		}
		change := func(what string) {
			add(what)
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
		require.Equal(t, []string{"0s first", "0s synced", "10.05s alone", "11.1s later", "1h0m12.1s by itself"}, s.told)
	})
}
