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
	fromHere = context.WithValue(context.Background(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	fromAway = context.WithValue(context.Background(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)})
)

func TestTurns_OnePageAtATime(t *testing.T) {
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
		var asking sync.WaitGroup
		ask := func(ctx context.Context) {
			asking.Go(func() {
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
			ask(fromAway)
		}
		synctest.Wait()
		require.Equal(t, 1, running)
		ask(fromHere)
		synctest.Wait()
		require.Equal(t, 2, running, "requests of this machine do not wait for others")

		canceled, leave := context.WithCancel(fromAway)
		ask(canceled)
		leave()
		synctest.Wait()
		require.Equal(t, map[int]int{http.StatusOK: 1}, answered, "a client that is gone waits no longer; a recorder says 200")
		finish <- struct{}{}
		synctest.Wait()
		require.Equal(t, 3, running, "the next one has its turn")
		time.Sleep(maxSlotWait + time.Second) // of the bubble's clock
		close(finish)
		asking.Wait()
		require.Equal(t, 4, answered[http.StatusOK])
		require.Equal(t, 98, answered[http.StatusServiceUnavailable])
	})
}

// closedWriter is a client that has closed its connection.
type closedWriter struct{ http.ResponseWriter }

func (closedWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestTurns_ClientLeaves(t *testing.T) {
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
	require.Less(t, n, many/10, "of a page whose connection is closed")

	n = 0
	ctx, cancel := context.WithCancel(fromHere)
	var err error
	newPageLimit().apply(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		err = writeObjects(w, objects(&n))
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/debug/configz", nil))
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, n, many/10, "of a request that was canceled")
}

// unread is a client that does not read a page. A write without a deadline succeeds.
type unread struct {
	*httptest.ResponseRecorder

	deadline time.Time
}

func (u *unread) SetWriteDeadline(deadline time.Time) error { u.deadline = deadline; return nil }

func (u *unread) Write(text []byte) (int, error) {
	if u.deadline.IsZero() {
		return len(text), nil
	}
	time.Sleep(time.Until(u.deadline))
	return 0, context.DeadlineExceeded
}

func TestTurns_SlowReader(t *testing.T) {
	for size, wait := range map[int]time.Duration{bufferBytes: 0, 3 * bufferBytes: pagesPerConnection * slotWriteTime} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handler := newPageLimit().apply(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = w.Write(make([]byte, size))
				}))
				connection := context.WithValue(fromHere, connectionSlotsKey{}, make(chan struct{}, pagesPerConnection))
				start := time.Now()
				var asking sync.WaitGroup
				for range 2 * pagesPerConnection {
					asking.Go(func() {
						slow := &unread{ResponseRecorder: httptest.NewRecorder()}
						handler.ServeHTTP(slow, httptest.NewRequestWithContext(connection, http.MethodGet, "/metrics", nil))
					})
				}
				synctest.Wait()
				w, begun := httptest.NewRecorder(), time.Now()
				handler.ServeHTTP(w, httptest.NewRequestWithContext(fromHere, http.MethodGet, "/metrics", nil))
				require.Equal(t, http.StatusOK, w.Code)
				require.Equal(t, size, w.Body.Len())
				require.LessOrEqual(t, time.Since(begun), wait) // by the bubble's clock
				asking.Wait()
				require.WithinRange(t, time.Now(), start.Add(chunkTimeout), start.Add(time.Minute))
			})
		})
	}
}

func TestHandler_RefusesOtherSites(t *testing.T) {
	handler := refuseOtherSites(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(path, site, mode string) int {
		request := httptest.NewRequest(http.MethodGet, path, nil)
		request.Header.Set("Sec-Fetch-Site", site)
		request.Header.Set("Sec-Fetch-Mode", mode)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request)
		return w.Code
	}
	for _, site := range []string{"cross-site", "same-site"} {
		for _, path := range []string{"/debug/configz", "/debug/pprof/profile", "/debug/page/events", "/debug/"} {
			require.Equal(t, http.StatusForbidden, ask(path, site, "no-cors"), path)
			require.Equal(t, http.StatusForbidden, ask(path, site, "navigate"), path)
		}
		require.Equal(t, http.StatusForbidden, ask("/", site, "no-cors"))
		require.Equal(t, http.StatusForbidden, ask("/metrics", site, "cors"))
		require.Equal(t, http.StatusOK, ask("/", site, "navigate"), "a link leads to the page")
	}
	for _, site := range []string{"", "none", "same-origin"} {
		require.Equal(t, http.StatusOK, ask("/debug/configz", site, "navigate"), site)
	}
}

// A client that announces a body and does not send it holds no turn.
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
