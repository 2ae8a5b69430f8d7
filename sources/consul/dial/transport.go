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

	"github.com/hashicorp/consul/api"

	"tributary/internal/address"
	"tributary/internal/intake"
	"tributary/internal/secret"
	"tributary/sources/consul/judge"
)

// Placeholders for the token in requests. The official client reads the token once, at its start, unless it has one.
const (
	placeholder = "token-of-the-moment" // for the current token
	noToken     = "no-token"            // for an anonymous request
)

const tokenHeader = "X-Consul-Token" //nolint:gosec // the name, not a token

// transport adds the token to each request, and turns rate limits into errors that have the pause.
type transport struct {
	base    *http.Transport
	tokens  tokens
	secure  bool
	longest int // limit of an answer in bytes
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	token := request.Header.Get(tokenHeader)
	request = request.Clone(request.Context())
	if token == placeholder || token == noToken {
		request.Header.Del(tokenHeader)
	}
	if token == placeholder {
		current, err := t.tokens.current()
		if err != nil {
			if request.Body != nil {
				_ = request.Body.Close() // as every RoundTripper must
			}
			return nil, err
		}
		if value := current.Reveal(); value != "" {
			request.Header.Set(tokenHeader, value)
		}
	}
	if strings.HasSuffix(request.URL.Path, authorizePath) {
		request.Method = http.MethodPost // the official client can only send PUT
	}
	if anonymous, ok := request.Context().Value(anonymousKey{}).(*atomic.Bool); ok {
		anonymous.Store(request.Header.Get(tokenHeader) == "")
	}
	resp, err := t.base.RoundTrip(request)
	if err != nil {
		if t.secure { // without TLS, an ended connection is no hint: a stopping Consul ends blocking queries like that
			err = address.Hint(err, true)
		}
		return nil, err
	}
	resp.Body = t.bound(intake.Bound(resp))
	after := resp.Header.Get("Retry-After")
	mustPause := resp.StatusCode == http.StatusTooManyRequests ||
		resp.StatusCode == http.StatusServiceUnavailable && after != ""
	if !mustPause && (resp.StatusCode != http.StatusBadRequest || t.secure) {
		return resp, nil
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(resp.Body)
	switch text := strings.TrimSpace(string(body)); {
	case err != nil:
		return nil, fmt.Errorf("read an answer of status %d: %w", resp.StatusCode, err)
	case mustPause:
		return nil, limited(retryAfter(after, time.Now()), text)
	case strings.Contains(text, "HTTP request to an HTTPS server"):
		return nil, fmt.Errorf("%s (it speaks TLS alone: write +https behind the scheme of the address, or see tlsSettings)",
			text)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// anonymousKey is the key of a flag in the context of a request. RoundTrip sets it if it sends no token.
type anonymousKey struct{}

// Ask sends a query. limit is its time limit, in addition to the time that it blocks. An answer is Late if the server
// has not heard of its leader for more than maxStale.
func Ask[T any](
	ctx context.Context, limit, maxStale time.Duration, queryOptions *api.QueryOptions,
	read func(*api.QueryOptions) (T, *api.QueryMeta, error),
) (items T, answer judge.Answer, err error) {
	if queryOptions.WaitIndex > 0 { // Consul blocks for up to a sixteenth longer, so that queries end at different times
		limit += queryOptions.WaitTime + queryOptions.WaitTime/16
		ctx = once(ctx)
	}
	ctx, cancel := Within(ctx, limit)
	defer cancel()
	anonymous := new(atomic.Bool)
	ctx = context.WithValue(ctx, anonymousKey{}, anonymous)
	items, meta, err := read(queryOptions.WithContext(ctx))
	if err != nil {
		return items, answer, Explain(ctx, err)
	}
	return items, judge.Answer{
		Index:      meta.LastIndex,
		Filtered:   meta.ResultsFilteredByACLs,
		Confirmed:  queryOptions.RequireConsistent,
		Leaderless: !meta.KnownLeader,
		Late:       meta.LastContact > maxStale,
		Anonymous:  anonymous.Load(),
	}, nil
}

// ErrBrokenOff is the error of a blocking query after the end of its connection. The HTTP client would repeat the
// query, with an index that a restarted Consul may not reach for a long time.
var ErrBrokenOff = errors.New("the connection ended while the query waited")

// once ends ctx with ErrBrokenOff when its request gets a second connection.
func once(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	var connections atomic.Int32
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if connections.Add(1) > 1 {
			cancel(ErrBrokenOff)
		}
	}})
}

// Within returns a context with a time limit, which its cause names.
func Within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %s: %w", d, context.DeadlineExceeded))
}

// Explain returns the cause of the end of a context, if that is the time limit or the connection; else err.
func Explain(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err != nil && (errors.Is(cause, ErrBrokenOff) || errors.Is(cause, context.DeadlineExceeded)) {
		return cause
	}
	return err
}

// A proxy in front of Consul may answer with megabytes, or endlessly. The transport reads no more than Consul would
// send.
const (
	// longestAnswer is far beyond the largest useful answer: 10,000 keys of 8 KiB each.
	longestAnswer = 128 << 20
	// longestError is the part of an answer that an error shows. A failed transaction names a key twice.
	longestError = 4 << 10
)

// bound limits the body of an answer. A longer body of an error is cut; any other longer body fails.
func (t *transport) bound(resp *http.Response) io.ReadCloser {
	if resp.StatusCode == http.StatusOK {
		tooLong := fmt.Errorf("the answer is longer than %d MiB: %w", t.longest>>20, errNotConsul)
		return &bounded{resp.Body, t.longest, tooLong}
	}
	return &bounded{resp.Body, longestError, io.EOF}
}

// bounded is a body that ends with the error last after a number of bytes.
type bounded struct {
	io.ReadCloser
	remaining int
	last      error
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.remaining == 0 {
		return 0, b.last
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.remaining)])
	b.remaining -= n
	return n, err
}

// tokens tells where the ACL token is read.
type tokens struct {
	key, file string      // the file, and the key or variable that names it
	fixed     secret.Text // if there is no file, or it is empty
}

// newTokens looks for the token in the order of the official client: the setting, the file of the environment, the
// token of the environment.
func newTokens(file string) tokens {
	tokens := tokens{key: "tokenFile", file: file, fixed: secret.New(os.Getenv("CONSUL_HTTP_TOKEN"))}
	if file == "" {
		tokens.key = "CONSUL_HTTP_TOKEN_FILE"
		tokens.file = os.Getenv(tokens.key)
	}
	return tokens
}

// current reads the token, so that a replaced one takes effect with the next query. Without the file it fails: Consul
// would answer an anonymous request with less data.
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
