package verify

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"tributary/resource"
)

// shown is an istiod that shows a page, or fails.
type shown struct {
	mu   sync.Mutex
	page []byte
	err  error
}

// now is what it shows from now on.
func (s *shown) now(page []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.page, s.err = page, err
}

func (s *shown) RoundTrip(*http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(s.page))}, nil
}

func TestWatchFindsWhatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := resource.Decode("x.yaml", []byte("apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a, namespace: "+
			"shop}\nspec: {host: a.example}\n"), resource.Options{})
		require.NoError(t, docs[0].Errors.Err())
		ours := docs[0].Resource
		text, err := resource.MarshalJSON(ours)
		require.NoError(t, err)
		well := append(append([]byte("["), text...), ']')
		istiod := &shown{page: well}
		w := &Watch{
			Peer: &IstiodPeer{
				Istiod: Istiod{URL: "http://istiod:8080", Client: &http.Client{Transport: istiod}},
				Served: func() Served { return Served{Objects: []*resource.Resource{ours}} },
			},
			Every: time.Minute, Log: slog.New(slog.DiscardHandler),
		}
		all := Watches{w}
		metrics := func(want string) {
			t.Helper()
			require.NoError(t, testutil.CollectAndCompare(prometheus.Collector(all), strings.NewReader(want), "tributary_verify_findings"))
		}
		metrics("")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- all.Run(ctx) }()
		synctest.Wait()
		require.Empty(t, w.Report().Findings)
		require.Equal(t, 1, w.Report().Objects)

		istiod.now([]byte("[]"), nil) // just for a moment
		time.Sleep(time.Minute + time.Second)
		istiod.now(well, nil)
		time.Sleep(settle)
		synctest.Wait()
		require.Empty(t, w.Report().Findings, "it was on its way")

		istiod.now([]byte("[]"), nil)
		time.Sleep(time.Minute + 2*settle)
		synctest.Wait()
		require.Equal(t, 1, w.Report().Count(Missing))
		metrics(`# HELP tributary_verify_findings Objects that an istiod, or things that an Envoy, does not have as they are served, by class.
# TYPE tributary_verify_findings gauge
tributary_verify_findings{class="different",envoy="",istiod="http://istiod:8080"} 0
tributary_verify_findings{class="extra",envoy="",istiod="http://istiod:8080"} 0
tributary_verify_findings{class="missing",envoy="",istiod="http://istiod:8080"} 1
tributary_verify_findings{class="stale",envoy="",istiod="http://istiod:8080"} 0
`)

		at := w.Report().At
		istiod.now(nil, errors.New("it is away"))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Contains(t, w.Report().Error, "it is away")
		require.Equal(t, 1, w.Report().Count(Missing), "what was found stands")
		require.Equal(t, at, w.Report().At)

		istiod.now(well, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, w.Report().Findings)
		require.Empty(t, w.Report().Error)
		cancel()
		require.NoError(t, <-ended)
	})
}
