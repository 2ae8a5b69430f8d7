package kube

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/intake"
	"tributary/resource"
	"tributary/sources"
)

// floodSink remembers the health and the objects.
type floodSink struct {
	mu      sync.Mutex
	health  sources.Health
	objects map[resource.Key]bool
}

func (s *floodSink) ReplaceAll(contents []sources.Content) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range contents {
		for _, r := range c.Resources {
			s.objects[r.Key()] = true
		}
	}
	return nil
}
func (*floodSink) Groups() []string { return nil }
func (*floodSink) Synced()          {}
func (s *floodSink) Report(h sources.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health = h
}

func (s *floodSink) await(t *testing.T, holds func(sources.Health) bool) {
	t.Helper()
	var last sources.Health
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		last = s.health
		isOver := holds(last)
		s.mu.Unlock()
		if isOver {
			return
		}
		require.False(t, time.Now().After(end), "waited in vain: %+v", last)
	}
}

// TestFlood has an API server with endless lists, pages and watches: memory stays below the limits, published objects
// stay, the health names the cluster, the figure and the key, and the source recovers with the server.
func TestFlood(t *testing.T) {
	object := func(n int64, size int) string {
		return fmt.Sprintf(`{"metadata": {"namespace": "shop", "name": "o%d", "resourceVersion": "%d"}, "spec": {"x": "%s"}}`, n, 1000+n,
			strings.Repeat("x", size))
	}
	var count atomic.Int64
	isWatch := func(req *http.Request) bool { return req.URL.Query().Has("watch") }
	for name, flood := range map[string]struct {
		applies func(req *http.Request) bool
		answer  func(w io.Writer, flush func())
		want    string
	}{
		"lists of all kinds that expand": {
			func(req *http.Request) bool { return !isWatch(req) && req.URL.Path != "/apis" },
			func(w io.Writer, _ func()) {
				_, err := io.WriteString(w, `{"kind": "List", "items": [`)
				for text := strings.Repeat("{},", 10_000); err == nil; {
					_, err = io.WriteString(w, text)
				}
			},
			"limits.answerBytes",
		},
		"pages without end": {
			func(req *http.Request) bool { return !isWatch(req) && req.URL.Path != "/apis" },
			func(w io.Writer, _ func()) {
				_, _ = io.WriteString(w, `{"kind": "List", "metadata": {"resourceVersion": "100000000", "continue": "more"}, "items": [`+
					object(count.Add(1), 100_000)+`]}`)
			},
			"the memory of the objects takes more than 2097152 bytes (limits.objectBytes)",
		},
		"events without end": {
			isWatch,
			func(w io.Writer, flush func()) {
				for err := error(nil); err == nil; flush() {
					_, err = io.WriteString(w, `{"type": "ADDED", "object": `+object(count.Add(1), 10_000)+"}\n")
				}
			},
			"limits.objectBytes",
		},
		"an event without end": {
			isWatch,
			func(w io.Writer, _ func()) {
				_, err := io.WriteString(w, `{"type": "`)
				for text := strings.Repeat("x", 1<<20); err == nil; {
					_, err = io.WriteString(w, text)
				}
			},
			"limits.answerBytes",
		},
		"an event of many values": {
			isWatch,
			func(w io.Writer, _ func()) {
				_, err := io.WriteString(w, `{"type": "ADDED", "object": {"a": [`)
				for text := strings.Repeat("[],", 10_000); err == nil; {
					_, err = io.WriteString(w, text)
				}
			},
			"limits.answerBytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			count.Store(0)
			server := istioServer(t)
			put(server, 1, "honest")
			var hostile atomic.Bool
			hostile.Store(true)
			source := quick(t, server, Settings{})
			source.cluster.url = front(t, server, func(response http.ResponseWriter, req *http.Request) bool {
				if !hostile.Load() || !flood.applies(req) {
					return false
				}
				response.Header().Set("Content-Encoding", "gzip")
				packed := gzip.NewWriter(response)
				flood.answer(packed, func() { _ = packed.Flush() })
				_ = packed.Close()
				return true
			})
			source.shown = strings.Replace(source.cluster.url, "http", "k8s", 1)
			limits := intake.Limits{Answer: 4 << 20, Memory: 12 << 20, Objects: 2 << 20}
			pool := intake.NewPool(limits)
			ctx, cancel := context.WithCancel(pool.Source(t.Context()))
			sink, ended := &floodSink{objects: map[resource.Key]bool{}}, make(chan error, 1)
			go func() { ended <- source.Run(ctx, sink) }()
			defer func() {
				hostile.Store(false)
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
				require.Zero(t, pool.Taken())
			}()
			sink.await(t, func(h sources.Health) bool {
				require.LessOrEqual(t, pool.Taken(), limits.Memory)
				return strings.Contains(h.Message, flood.want) && strings.Contains(h.Message, source.shown)
			})
			hostile.Store(false)
			sink.await(t, func(h sources.Health) bool {
				// The cluster may have named objects that are held now, since it went back in time.
				return (h.State == sources.Healthy || h.State == sources.Degraded) &&
					!strings.Contains(h.Message, "limits.") && sink.objects[entryKey("shop", "honest")]
			})
		})
	}
}
