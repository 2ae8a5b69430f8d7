package kube

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/intake"
	"tributary/sources"
)

// pooled is a source whose memory a pool counts.
type pooled struct {
	*Source
	pool *intake.Pool
}

// Run implements sources.Source.
func (p pooled) Run(ctx context.Context, sink sources.Sink) error {
	return p.Source.Run(p.pool.Source(ctx), sink)
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
	isList := func(req *http.Request) bool { return !isWatch(req) && req.URL.Path != "/apis" }
	endless := func(begin, repeated string) func(io.Writer, func()) {
		return func(w io.Writer, _ func()) {
			_, err := io.WriteString(w, begin)
			for text := strings.Repeat(repeated, 10_000); err == nil; {
				_, err = io.WriteString(w, text)
			}
		}
	}
	for name, flood := range map[string]struct {
		applies func(req *http.Request) bool
		answer  func(w io.Writer, flush func())
		want    string
	}{
		"lists of all kinds that expand": {
			isList,
			endless(`{"kind": "List", "items": [`, "{},"),
			"limits.answerBytes",
		},
		"pages without end": {
			isList,
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
			endless(`{"type": "`, strings.Repeat("x", 100)),
			"limits.answerBytes",
		},
		"an event of many values": {
			isWatch,
			endless(`{"type": "ADDED", "object": {"a": [`, "[],"),
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
			source.shownAddress = strings.Replace(source.cluster.url, "http", "k8s", 1)
			limits := intake.Limits{Answer: 4 << 20, Memory: 12 << 20, Objects: 2 << 20}
			pool := intake.NewPool(limits)
			rig := start(t, server, pooled{source, pool})
			defer func() {
				hostile.Store(false)
				rig.Stop()
				require.Zero(t, pool.Taken())
			}()
			rig.Await("the limit", func() bool {
				require.LessOrEqual(t, pool.Taken(), limits.Memory)
				message := rig.Status().Message
				return strings.Contains(message, flood.want) && strings.Contains(message, source.shownAddress)
			})
			hostile.Store(false)
			rig.Await("the honest server", func() bool {
				status := rig.Status()
				// The cluster may have named objects that are held now, since it went back in time.
				return (status.State == sources.Healthy || status.State == sources.Degraded) &&
					!strings.Contains(status.Message, "limits.") && slices.Contains(rig.served(), "ServiceEntry shop/honest")
			})
		})
	}
}
