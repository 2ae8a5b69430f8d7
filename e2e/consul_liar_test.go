package e2e

import (
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"tributary/e2e/fixture"
)

// lies are the faults of a proxy in front of Consul.
var lies = []string{
	"refuses", "is silent", "404", "empty list", "null", "a page", "429", "503", "takes headers away", "cuts answers", "is slow",
	"empties answers", "changes the server",
}

// liar is a proxy in front of the servers of Consul that misbehaves when told to, towards some of the requests.
type liar struct {
	addr    string
	servers []*httputil.ReverseProxy

	mu     sync.Mutex
	rnd    *rand.Rand
	how    string
	target int
	honest chan struct{} // closed when it behaves again
}

func newLiar(t *testing.T, servers []*fixture.Consul, rnd *rand.Rand) *liar {
	l := &liar{rnd: rand.New(rand.NewPCG(rnd.Uint64(), 0)), honest: make(chan struct{})}
	for _, c := range servers {
		p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: c.HTTP})
		p.Transport = &http.Transport{MaxIdleConnsPerHost: 500, DialContext: (&net.Dialer{Timeout: time.Second}).DialContext}
		p.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { // as nginx does
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>502 Bad Gateway</html>")
		}
		l.servers = append(l.servers, p)
	}
	server := httptest.NewServer(l)
	t.Cleanup(func() {
		l.behave()
		server.CloseClientConnections()
		server.Close()
	})
	l.addr = server.Listener.Addr().String()
	return l
}

// lie has it misbehave from now on.
func (l *liar) lie(how string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.how = how
	l.target = l.rnd.IntN(len(l.servers))
}

// behave has it pass everything on.
func (l *liar) behave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.how = ""
	close(l.honest)
	l.honest = make(chan struct{})
}

// ServeHTTP implements http.Handler.
func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	how, over := l.how, l.honest
	if l.rnd.IntN(4) == 0 {
		how = ""
	}
	if how == "changes the server" {
		l.target = l.rnd.IntN(len(l.servers))
	}
	to := l.servers[l.target]
	l.mu.Unlock()
	plain := func(status int, body string) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	switch how {
	case "refuses":
		panic(http.ErrAbortHandler)
	case "is silent":
		select {
		case <-over:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	case "404":
		plain(http.StatusNotFound, "")
	case "empty list":
		plain(http.StatusOK, "[]")
	case "null":
		plain(http.StatusOK, "null")
	case "a page":
		w.Header().Set("Content-Type", "text/html")
		plain(http.StatusOK, "<html>Please sign in</html>")
	case "429":
		w.Header().Set("Retry-After", "2")
		plain(http.StatusTooManyRequests, "slow down")
	case "503":
		plain(http.StatusServiceUnavailable, "<html>maintenance</html>")
	case "takes headers away", "empties answers", "cuts answers":
		to.ServeHTTP(&twister{ResponseWriter: w, how: how}, r)
	case "is slow":
		select {
		case <-time.After(1500 * time.Millisecond): // The fault is a delay.
		case <-r.Context().Done():
		}
		to.ServeHTTP(w, r)
	default:
		to.ServeHTTP(w, r)
	}
}

// twister changes an answer on its way.
type twister struct {
	http.ResponseWriter
	how   string
	wrote bool
}

func (t *twister) WriteHeader(status int) {
	for name := range t.Header() {
		if strings.HasPrefix(name, "X-Consul") && t.how != "cuts answers" {
			t.Header().Del(name)
		}
	}
	if t.how == "empties answers" {
		t.Header().Del("Content-Length")
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *twister) Write(b []byte) (int, error) {
	switch {
	case t.how == "cuts answers" && len(b) > 2:
		_, _ = t.ResponseWriter.Write(b[:len(b)/2])
		panic(http.ErrAbortHandler)
	case t.how == "empties answers":
		if !t.wrote {
			_, _ = t.ResponseWriter.Write([]byte("[]"))
		}
		t.wrote = true
		return len(b), nil
	}
	return t.ResponseWriter.Write(b)
}
