package dial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"tributary/sources"
)

// Kind is the kind of a failure.
type Kind int

// The kinds.
const (
	Success     Kind = iota
	Canceled         // the caller gave up
	Unreachable      // no answer, or an error of Consul itself: no connection, a timeout, no leader, 5xx
	Denied           // the token does not allow it, or is missing
	RateLimited      // too many requests
	Refused          // the request is at fault, such as a filter that does not parse, or an inexpressible name
	Garbled          // the answer is at fault, such as a page of a proxy
)

// Failure is the meaning of an error of a query.
type Failure struct {
	Kind       Kind
	RetryAfter time.Duration // the pause that Consul asks for; 0 for none
}

// State returns the state of a source with the failure.
func (f Failure) State() sources.State {
	switch f.Kind {
	case Success:
		return sources.Healthy
	case Denied:
		return sources.Denied
	default:
		return sources.Unreachable
	}
}

// Error is an error with its meaning.
type Error struct {
	Failure
	Err error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

var (
	// errNotConsul marks answers that no Consul gives.
	errNotConsul = &Error{Failure{Kind: Garbled}, errors.New("it is not Consul's")}
	// ErrTooMuch marks answers beyond a limit.
	ErrTooMuch error = &Error{Failure{Kind: Garbled}, errors.New("that is more than is taken")}
)

// ErrForeign says that another server answered, or a proxy removed headers.
var ErrForeign = errors.New("something is missing in the answer, and it does not name an index and a leader: it is " +
	"not Consul's, or a proxy takes headers away")

// Classify returns the meaning of an error of the client. It is pure.
func Classify(err error) Failure {
	if err == nil {
		return Failure{}
	}
	if classified, ok := errors.AsType[*Error](err); ok {
		return classified.Failure
	}
	if status := statusOf(err); status.Code != 0 {
		return Failure{Kind: kindOf(status)}
	}
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, mistyped := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case syntax || mistyped:
		return Failure{Kind: Garbled}
	case errors.Is(err, context.Canceled): // a deadline is Consul's fault, a cancellation is not
		return Failure{Kind: Canceled}
	default: // the network, TLS, or an answer that broke off
		return Failure{Kind: Unreachable}
	}
}

// IsSilent reports whether err says that Consul gave no answer, such as a timeout or the loss of the connection.
func IsSilent(err error) bool { return Classify(err).Kind == Unreachable && statusOf(err).Code == 0 }

// statusOf returns the status in an error; the zero value without one.
func statusOf(err error) api.StatusError {
	status, _ := errors.AsType[api.StatusError](err)
	return status
}

func kindOf(status api.StatusError) Kind {
	switch {
	case status.Code == http.StatusForbidden, status.Code == http.StatusUnauthorized:
		return Denied
	case strings.Contains(status.Body, "Permission denied"), strings.Contains(status.Body, "ACL not found"):
		return Denied // agents before 1.11 pass on refusals of servers as 500
	case status.Code == http.StatusTooManyRequests, strings.Contains(status.Body, rateLimitBody):
		return RateLimited
	case status.Code >= 500:
		return Unreachable
	default:
		return Refused
	}
}

// rateLimitBody is in the answers of Consul's rate limiter. Their status is 503 if only the leader can answer.
const rateLimitBody = "rate limit exceeded"

// limited returns the error of a rate limit; after is the pause that Consul asks for, 0 for none.
func limited(after time.Duration, body string) error {
	text := "rate limited by Consul"
	if after > 0 {
		text += fmt.Sprintf(", to be asked again after %s", after)
	}
	if body != "" {
		text += " (" + body + ")"
	}
	return &Error{Failure{RateLimited, after}, errors.New(text)}
}

// longestPause bounds the pause that an answer asks for. A maintenance page may name an hour, and end sooner.
const longestPause = time.Minute

// retryAfter reads the header of that name, in either of its forms.
func retryAfter(value string, now time.Time) time.Duration {
	var wait time.Duration
	if seconds, err := strconv.Atoi(value); err == nil {
		wait = time.Duration(min(seconds, int(longestPause/time.Second))) * time.Second
	} else if end, err := http.ParseTime(value); err == nil {
		wait = end.Sub(now)
	}
	return min(max(0, wait), longestPause)
}

// NextIndex returns the index of the next blocking query after an answer. The index goes back if Consul was restored or
// wiped: the next query then does not block, as its index is 0.
func NextIndex(before, answer uint64) uint64 {
	if answer < before {
		return 0
	}
	return max(answer, 1)
}
