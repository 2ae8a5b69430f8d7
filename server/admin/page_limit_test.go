package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/aggregate"
	"tributary/resource"
)

var (
	localContext  = context.WithValue(context.Background(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	remoteContext = context.WithValue(context.Background(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)})
)

func TestPageLimit_OnePageAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		var mu sync.Mutex
		running, answered := 0, map[int]int{}
		handler := newPageLimit().apply(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			running++
			mu.Unlock()
			<-finish
		}))
		var requests sync.WaitGroup
		ask := func(ctx context.Context) {
			requests.Go(func() {
				responseRecorder := httptest.NewRecorder()
				handler.ServeHTTP(responseRecorder, httptest.NewRequestWithContext(ctx, http.MethodGet, "/debug/configz", nil))
				mu.Lock()
				defer mu.Unlock()
				answered[responseRecorder.Code]++
				if responseRecorder.Code == http.StatusServiceUnavailable {
					require.Equal(t, "1", responseRecorder.Header().Get("Retry-After"))
				}
			})
		}
		for range 100 {
			ask(remoteContext)
		}
		synctest.Wait()
		require.Equal(t, 1, running)
		ask(localContext)
		synctest.Wait()
		require.Equal(t, 2, running, "requests of this machine do not wait for others")

		canceled, leave := context.WithCancel(remoteContext)
		ask(canceled)
		leave()
		synctest.Wait()
		require.Equal(t, map[int]int{http.StatusOK: 1}, answered, "a canceled request waits no longer; the recorder has 200 without an answer")
		finish <- struct{}{}
		synctest.Wait()
		require.Equal(t, 3, running, "the next request has the slot")
		time.Sleep(maxSlotWait + time.Second) // of the bubble's clock
		close(finish)
		requests.Wait()
		require.Equal(t, 4, answered[http.StatusOK])
		require.Equal(t, 98, answered[http.StatusServiceUnavailable])
	})
}

// closedWriter is a client that has closed its connection.
type closedWriter struct{ http.ResponseWriter }

func (closedWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestPageLimit_StopsWhenClientLeaves(t *testing.T) {
	const many = 10_000
	objects := func(encoded *int) iter.Seq[*resource.Resource] {
		return func(yield func(*resource.Resource) bool) {
			for i := range many {
				r, err := resource.New(resource.Meta{Key: resource.Key{Kind: resource.ServiceEntry, Namespace: "shop", Name: fmt.Sprint(i)}},
					&networking.ServiceEntry{})
				require.NoError(t, err)
				if *encoded++; !yield(r) {
					return
				}
			}
		}
	}
	n := 0
	require.Error(t, writeObjects(closedWriter{}, objects(&n)))
	require.Less(t, n, many/10, "a closed connection ends the encoding")

	n = 0
	ctx, cancel := context.WithCancel(localContext)
	var err error
	newPageLimit().apply(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		err = writeObjects(w, objects(&n))
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/debug/configz", nil))
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, n, many/10, "a canceled request ends the encoding")
}

// stuckReader is a client that does not read. A write fails at its deadline; one without a deadline succeeds.
type stuckReader struct {
	*httptest.ResponseRecorder

	deadline time.Time
}

func (r *stuckReader) SetWriteDeadline(deadline time.Time) error { r.deadline = deadline; return nil }

func (r *stuckReader) Write(text []byte) (int, error) {
	if r.deadline.IsZero() {
		return len(text), nil
	}
	time.Sleep(time.Until(r.deadline))
	return 0, context.DeadlineExceeded
}

func TestPageLimit_SlowReaderHoldsNoSlot(t *testing.T) {
	for size, wait := range map[int]time.Duration{bufferBytes: 0, 3 * bufferBytes: pagesPerConnection * slotWriteTime} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handler := newPageLimit().apply(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = w.Write(make([]byte, size))
				}))
				connection := context.WithValue(localContext, connectionSlotsKey{}, make(chan struct{}, pagesPerConnection))
				start := time.Now()
				var requests sync.WaitGroup
				for range 2 * pagesPerConnection {
					requests.Go(func() {
						slow := &stuckReader{ResponseRecorder: httptest.NewRecorder()}
						handler.ServeHTTP(slow, httptest.NewRequestWithContext(connection, http.MethodGet, "/metrics", nil))
					})
				}
				synctest.Wait()
				w, sentAt := httptest.NewRecorder(), time.Now()
				handler.ServeHTTP(w, httptest.NewRequestWithContext(localContext, http.MethodGet, "/metrics", nil))
				require.Equal(t, http.StatusOK, w.Code)
				require.Equal(t, size, w.Body.Len())
				require.LessOrEqual(t, time.Since(sentAt), wait) // by the bubble's clock
				requests.Wait()
				require.WithinRange(t, time.Now(), start.Add(chunkTimeout), start.Add(time.Minute))
			})
		})
	}
}

// A client that announces a body and does not send it gets its answer.
func TestServe_AnswersBeforeTheBody(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	server := New(Options{Registry: prometheus.NewRegistry(), View: aggregate.New(), Log: slog.New(slog.DiscardHandler)})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ctx, listener) })
	defer serving.Wait()
	defer stop()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // of a test
	_, err = conn.Write([]byte("GET /-/healthy HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\n"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(25*time.Second))) // less than the read timeout of the server
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}
