package intake_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/internal/intake"
)

// TestPool_OldestAnswerNeverWaits has unfinished answers take all memory of their source: the oldest continues, and the
// others follow.
func TestPool_OldestAnswerNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := intake.NewPool(intake.Limits{Answer: 100, Memory: 250})
		source := pool.Source(t.Context())
		var readers sync.WaitGroup
		for range 20 {
			readers.Go(func() {
				ctx, lease := intake.Begin(source)
				defer lease.Release()
				for range 10 {
					assert.NoError(t, lease.Take(ctx, 10))
					assert.LessOrEqual(t, pool.Taken(), 250)
					time.Sleep(time.Millisecond)
				}
			})
		}
		readers.Wait()
		require.Zero(t, pool.Taken())
	})
}

// TestPool_ManySources has sources that each take as much as they may: all end, within the memory of the process and
// their shares.
func TestPool_ManySources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const answer, memory, share = 100 << 20, 300 << 20, 16 << 20
		pool := intake.NewPool(intake.Limits{Answer: answer, Memory: memory})
		var readers sync.WaitGroup
		for range 10 {
			source := pool.Source(t.Context())
			for range 3 {
				readers.Go(func() {
					ctx, lease := intake.Begin(source)
					defer lease.Release()
					for range 90 {
						assert.NoError(t, lease.Take(ctx, 1<<20))
						assert.LessOrEqual(t, pool.Taken(), memory+10*share)
						time.Sleep(time.Millisecond)
					}
				})
			}
		}
		readers.Wait()
		require.Zero(t, pool.Taken())
	})
}

// TestPool_LeavesShareToOtherSources has one source take all memory: small answers of other sources do not wait, and a
// large one fails in time.
func TestPool_LeavesShareToOtherSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := intake.NewPool(intake.Limits{Answer: 100 << 20, Memory: 200 << 20})
		ctx, held := intake.Begin(pool.Source(t.Context()))
		require.NoError(t, held.Take(ctx, 100<<20))
		require.ErrorContains(t, held.Take(ctx, 1), "more than 104857600 bytes of memory, decompressed and decoded (limits.answerBytes)")
		ctx, other := intake.Begin(pool.Source(t.Context()))
		require.NoError(t, other.Take(ctx, 16<<20))
		require.ErrorContains(t, other.Take(ctx, 1), "no memory for the answer within 30s")
		ended, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorContains(t, other.Take(ended, 1), "limits.answerMemory")
		held.Release()
		require.NoError(t, other.Take(ctx, 80<<20))
		other.Release()
		require.Zero(t, pool.Taken())
	})
}

// TestBegin_CountsPagesAsOneAnswer counts the pages of a list as one answer, which does not wait for itself.
func TestBegin_CountsPagesAsOneAnswer(t *testing.T) {
	pool := intake.NewPool(intake.Limits{Answer: 100, Memory: 200})
	ctx, list := intake.Begin(pool.Source(t.Context()))
	for range 3 {
		require.NoError(t, list.Take(ctx, 20))
		_, page := intake.Begin(ctx)
		require.NoError(t, page.Take(ctx, 40))
		page.Release()
	}
	_, page := intake.Begin(ctx)
	require.ErrorContains(t, page.Take(ctx, 41), "limits.answerBytes")
	list.Release()
	require.Zero(t, pool.Taken())
}

// TestKeep counts what a source keeps: less always fits, what failed counts nothing, and sources do not share the
// limit.
func TestKeep(t *testing.T) {
	pool := intake.NewPool(intake.Limits{Objects: 100})
	one, two := pool.Source(t.Context()), pool.Source(t.Context())
	require.NoError(t, intake.Keep(one, 0, 60))
	require.NoError(t, intake.Keep(one, 0, 40))
	require.EqualError(t, intake.Keep(one, 60, 61), "the memory of the objects takes more than 100 bytes (limits.objectBytes)")
	require.NoError(t, intake.Keep(one, 60, 50))
	require.ErrorIs(t, intake.Keep(one, 40, 51), intake.ErrLimit)
	require.NoError(t, intake.Keep(one, 40, 50))
	require.NoError(t, intake.Keep(two, 0, 100))
	require.NoError(t, intake.Keep(t.Context(), 0, 1<<29), "without a source")
}

// TestBound_EndsSlowAnswer ends an answer that does not end, and one that waits for its first byte takes nothing.
func TestBound_EndsSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := intake.NewPool(intake.Limits{})
		request, err := http.NewRequestWithContext(pool.Source(t.Context()), http.MethodGet, "http://registry:80/", http.NoBody)
		require.NoError(t, err)
		from, pipeWriter := io.Pipe()
		response := intake.Bound(&http.Response{Body: from, Request: request})
		go func() {
			time.Sleep(time.Hour)
			_, _ = pipeWriter.Write([]byte(`{`))
		}()
		_, err = io.ReadAll(response.Body)
		require.ErrorContains(t, err, "the answer is not complete 1m0s after it began")
		require.NoError(t, response.Body.Close())
		require.Zero(t, pool.Taken())
	})
}

// check is as large as a check of a registry, decoded from two bytes.
type check struct{ Texts [30]string }

// TestBound_CountsMemory reads 20 compressed answers of 64 MiB at once, whose decoded form would be 200 times as large:
// the heap stays near the budget.
func TestBound_CountsMemory(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text := strings.Repeat("{},", 10_000)
		_, _ = io.WriteString(w, "[")
		for range (64 << 20) / len(text) {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	limits := intake.Limits{Answer: 32 << 20, Memory: 64 << 20}
	pool := intake.NewPool(limits)
	ctx, cancel := context.WithCancel(pool.Source(t.Context()))
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var readers sync.WaitGroup
	for range 20 {
		readers.Go(func() {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
			assert.NoError(t, err)
			response, err := server.Client().Do(request)
			if !assert.NoError(t, err) {
				return
			}
			intake.Bound(response) //nolint:bodyclose // there is no connection
			var checks []*check
			err = json.NewDecoder(response.Body).Decode(&checks)
			assert.ErrorContains(t, err, strings.TrimPrefix(server.URL, "http://")+": the answer takes more than 33554432 bytes")
			assert.NoError(t, response.Body.Close())
		})
	}
	done := make(chan struct{})
	go func() {
		readers.Wait()
		close(done)
	}()
	for most := uint64(0); ; {
		select {
		case <-done:
			cancel()
			t.Logf("heap grew by %d MiB", most>>20)
			require.Less(t, most, uint64(4*limits.Memory))
			return
		case <-time.After(time.Millisecond):
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most = max(most, max(now.HeapAlloc, before.HeapAlloc)-before.HeapAlloc)
			require.LessOrEqual(t, pool.Taken(), limits.Memory)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestBound_PacesEndlessAnswers has sources read on and on, in one answer or in many: after a burst they are slow, each
// on its own.
func TestBound_PacesEndlessAnswers(t *testing.T) {
	for name, answers := range map[string]int{"one": 1, "pages": 16, "watch": -16} {
		synctest.Test(t, func(t *testing.T) {
			pool := intake.NewPool(intake.Limits{})
			var sources sync.WaitGroup
			start := time.Now()
			for range 2 {
				sources.Go(func() {
					request, err := http.NewRequestWithContext(pool.Source(t.Context()), http.MethodGet, "http://a", nil)
					assert.NoError(t, err)
					const total = 128 << 20
					for range max(answers, 1) {
						response := intake.Bound(&http.Response{Request: request, Body: io.NopCloser(endless{})})
						for range max(-answers, 1) {
							_, err := io.CopyN(io.Discard, response.Body, total/int64(max(answers, -answers)))
							assert.NoError(t, err, name)
							intake.Next(response.Body)
						}
						assert.NoError(t, response.Body.Close())
					}
				})
			}
			sources.Wait()
			require.InDelta(t, 8*time.Second, time.Since(start), float64(10*time.Millisecond), name)
		})
	}
}
