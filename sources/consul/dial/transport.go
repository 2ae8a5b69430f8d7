package dial

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"tributary/internal/address"
	"tributary/internal/intake"
	"tributary/internal/secret"
)

// What stands in requests for a token. The official client puts there the token that it read at its start; given one, it reads none.
const (
	placeholder = "token-of-the-moment" // the one of the moment is sent
	nobody      = "no-token"            // none is sent, whatever token there is
)

const tokenHeader = "X-Consul-Token" //nolint:gosec // the name, not a token

// transport gives each request its token, and turns the answers that ask for patience into errors that say how much.
type transport struct {
	base    *http.Transport
	tokens  tokens
	secure  bool
	longest int // in bytes, of an answer
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	said := req.Header.Get(tokenHeader)
	req = req.Clone(req.Context())
	if said == placeholder || said == nobody {
		req.Header.Del(tokenHeader)
	}
	if said == placeholder {
		token, err := t.tokens.current()
		if err != nil {
			if req.Body != nil {
				_ = req.Body.Close() // as every RoundTripper must
			}
			return nil, err
		}
		if value := token.Reveal(); value != "" {
			req.Header.Set(tokenHeader, value)
		}
	}
	if strings.HasSuffix(req.URL.Path, authorizePath) {
		req.Method = http.MethodPost // for which the official client has no method
	}
	if anonymous, ok := req.Context().Value(anonymousKey{}).(*atomic.Bool); ok {
		anonymous.Store(req.Header.Get(tokenHeader) == "")
	}
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		if t.secure { // else a connection that ends says nothing of TLS: blocking queries end like that whenever Consul does
			err = address.Hint(err, true)
		}
		return nil, err
	}
	resp.Body = t.bound(intake.Bound(resp))
	after := resp.Header.Get("Retry-After")
	patience := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable && after != ""
	if !patience && (resp.StatusCode != http.StatusBadRequest || t.secure) {
		return resp, nil
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(resp.Body)
	switch text := strings.TrimSpace(string(body)); {
	case err != nil:
		return nil, fmt.Errorf("read an answer of status %d: %w", resp.StatusCode, err)
	case patience:
		return nil, limited(retryAfter(after, time.Now()), text)
	case strings.Contains(text, "HTTP request to an HTTPS server"):
		return nil, fmt.Errorf("%s (it speaks TLS alone: write +https behind the scheme of the address, or see tlsSettings)", text)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

type anonymousKey struct{}

// Watch returns a context for one request, and what tells afterwards whether that was sent without a token.
func Watch(ctx context.Context) (_ context.Context, anonymous *atomic.Bool) {
	anonymous = new(atomic.Bool)
	return context.WithValue(ctx, anonymousKey{}, anonymous), anonymous
}

// ErrBrokenOff is that of a blocking query whose connection ended. The HTTP client would ask again by itself, with an
// index that a Consul that was started anew may not reach for a long time.
var ErrBrokenOff = errors.New("the connection ended while the query waited")

// Once has ctx end, for ErrBrokenOff, when its request gets a second connection.
func Once(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	var connections atomic.Int32
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if connections.Add(1) > 1 {
			cancel(ErrBrokenOff)
		}
	}})
}

// Within returns a context that ends after a time, for a cause that says so.
func Within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %s: %w", d, context.DeadlineExceeded))
}

// Explain puts in the place of an error of a request why its context ended, if that is its time or its connection.
func Explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, ErrBrokenOff) || errors.Is(cause, context.DeadlineExceeded)) {
		return cause
	}
	return err
}

// What is in front of a Consul may answer with anything: a page of megabytes with the status of an error, or one that does not
// end. No more of it is read than a Consul has to say.
const (
	// longestAnswer is far beyond the largest answer that is of use: 10,000 keys of 8 KiB each.
	longestAnswer = 128 << 20
	// longestError is as much of an answer as an error shows. That of a transaction that failed names a key twice.
	longestError = 4 << 10
)

// bound returns the body of an answer, which ends where it is too long: with an error, if the answer is none.
func (t *transport) bound(resp *http.Response) io.ReadCloser {
	if resp.StatusCode == http.StatusOK {
		return &bounded{resp.Body, t.longest, fmt.Errorf("the answer is longer than %d MiB: %w", t.longest>>20, errNotConsul)}
	}
	return &bounded{resp.Body, longestError, io.EOF}
}

// bounded is a body that ends with last after left bytes.
type bounded struct {
	io.ReadCloser
	left int
	last error
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, b.last
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// tokens are where the ACL token comes from.
type tokens struct {
	key, file string      // the file, and the key or variable that names it
	fixed     secret.Text // if there is no file, or nothing in it
}

// newTokens finds the token in the order of the official client: what we are told, then the file of the environment, then
// the token of the environment.
func newTokens(file string) tokens {
	t := tokens{key: "tokenFile", file: file, fixed: secret.New(os.Getenv("CONSUL_HTTP_TOKEN"))}
	if file == "" {
		t.key, t.file = "CONSUL_HTTP_TOKEN_FILE", os.Getenv("CONSUL_HTTP_TOKEN_FILE")
	}
	return t
}

// current reads the token anew, so that one that was exchanged takes effect with the next query. An error says that there is no token to
// ask with: without one, a query would be answered by what strangers may see.
func (t tokens) current() (secret.Text, error) {
	if t.file == "" {
		return t.fixed, nil
	}
	text, err := os.ReadFile(t.file)
	if err != nil {
		return secret.Text{}, &Error{Failure{Kind: Denied}, fmt.Errorf("%s: %w", t.key, err)}
	}
	return cmp.Or(secret.New(strings.TrimSpace(string(text))), t.fixed), nil
}
