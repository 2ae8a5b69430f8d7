package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// clientConn is a connection of a client.
type clientConn struct {
	net.Conn
	dialed time.Time
}

// asking makes requests from an address, by mutual TLS if it has an identity.
type asking struct {
	url       string
	as        question // the fields that all of its requests share
	keep      bool     // it keeps its connection
	forbidden bool     // it must not get any answer
	through   bool     // its requests go through an Envoy that opens a connection for each
	tls       *tls.Config
	http      *http.Client
}

// start returns the client, ready to ask.
func (c asking) start() *asking {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	if c.as.source != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(c.as.source)}
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		began := time.Now()
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if c.tls != nil {
			secured := tls.Client(conn, c.tls)
			if err := secured.HandshakeContext(ctx); err != nil {
				_ = conn.Close()
				return nil, fmt.Errorf("handshake: %w", err)
			}
			conn = secured
		}
		return &clientConn{conn, began}, nil
	}
	transport := &http.Transport{DialContext: dial, DialTLSContext: dial, DisableKeepAlives: !c.keep, MaxConnsPerHost: 1}
	c.http = &http.Client{Transport: transport, Timeout: 10 * time.Second}
	return &c
}

// ask makes a request.
func (c *asking) ask(ctx context.Context, q question, header map[string]string) outcome {
	a := outcome{question: q, started: time.Now(), forbidden: c.forbidden}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		a.conn = info.Conn.(*clientConn)
		a.dialed = a.conn.dialed
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+q.path, nil)
	if err == nil {
		req.Host = echoHost
		for name, value := range header {
			req.Header.Set(name, value)
		}
		var res *http.Response
		if res, err = c.http.Do(req); err == nil {
			a.status = res.StatusCode
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}
	a.ended = time.Now()
	if a.err = err; err != nil {
		a.status = 0
	}
	if c.through {
		a.conn, a.dialed = &clientConn{}, a.started
	}
	return a
}

// asker makes questions and their headers.
type asker struct{ red, forged string }

var askedPaths = []string{"/a", "/b", "/asked"}

func (a asker) random(rnd *rand.Rand, as question) question {
	as.path = askedPaths[rnd.IntN(len(askedPaths))]
	as.token = []string{"", "", "red", "red", "forged"}[rnd.IntN(5)]
	as.let = rnd.IntN(2) == 0
	return as
}

func (a asker) headers(q question) map[string]string {
	header := map[string]string{}
	if token := map[string]string{"red": a.red, "forged": a.forged}[q.token]; token != "" {
		header["Authorization"] = "Bearer " + token
	}
	if q.let {
		header["x-let-me-in"] = "1"
	}
	return header
}

// startRequests has all clients ask at random until it is stopped.
func (a asker) startRequests(o *policyOracle, seed uint64, clients []asking) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for n, c := range clients {
		rnd := rand.New(rand.NewPCG(seed, uint64(n))) //nolint:gosec // a test's
		wg.Go(func() {
			c := c.start()
			defer c.http.CloseIdleConnections()
			for ctx.Err() == nil {
				q := a.random(rnd, c.as)
				o.add(c.ask(context.Background(), q, a.headers(q)))
				select { // few enough to leave time for the other clients
				case <-ctx.Done():
				case <-time.After(time.Duration(rnd.IntN(8)) * time.Millisecond):
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// probes are questions of all kinds.
func (a asker) probes(as question) (questions []question) {
	for _, path := range askedPaths {
		for _, token := range []string{"", "red"} {
			as.path, as.token, as.let = path, token, true
			questions = append(questions, as)
		}
	}
	return questions
}

// identityOf returns how a client of this process speaks as one of the IDs that SPIRE has for it.
func identityOf(t *testing.T, spire *fixture.SPIRE, id string) (*workloadapi.X509Source, *tls.Config) {
	t.Helper()
	pick := func(svids []*x509svid.SVID) *x509svid.SVID {
		for _, s := range svids {
			if s.ID.String() == id {
				return s
			}
		}
		return svids[0]
	}
	source, err := workloadapi.NewX509Source(t.Context(), workloadapi.WithDefaultX509SVIDPicker(pick),
		workloadapi.WithClientOptions(workloadapi.WithAddr("unix://"+spire.Socket)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = source.Close() })
	conf := tlsconfig.MTLSClientConfig(source, source, tlsconfig.AuthorizeID(spiffeid.RequireFromString(echoID)))
	conf.NextProtos = []string{"istio-http/1.1"}
	return source, conf
}
