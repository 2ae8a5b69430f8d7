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

// Kind is what went wrong with a query.
type Kind int

// The kinds.
const (
	None        Kind = iota // nothing did
	Canceled                // the caller gave up
	Unreachable             // no answer, or that of a Consul that cannot answer: no connection, a timeout, no leader, 5xx
	Denied                  // the token does not allow it, or is missing
	RateLimited             // asked too much
	Refused                 // the question is at fault, such as a filter that does not parse, or a name that no path can express
	Garbled                 // the answer is not what it should be, such as a page of a proxy
)

// Failure is what an error of a query means.
type Failure struct {
	Kind       Kind
	RetryAfter time.Duration // how long Consul wants to be left alone; 0 if it does not say
}

// State is how a source that met the failure is.
func (f Failure) State() sources.State {
	switch f.Kind {
	case None:
		return sources.Healthy
	case Denied:
		return sources.Denied
	default:
		return sources.Unreachable
	}
}

// Error is one whose meaning is known.
type Error struct {
	Failure
	Err error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.Err }

var (
	// errNotConsul is of answers that no Consul gives.
	errNotConsul = &Error{Failure{Kind: Garbled}, errors.New("it is not Consul's")}
	// ErrTooMuch is of answers that list more than is taken.
	ErrTooMuch error = &Error{Failure{Kind: Garbled}, errors.New("that is more than is taken")}
)

// ErrForeign says that what answered was not Consul, or not all that it answered arrived.
var ErrForeign = errors.New("something is missing in the answer, and it does not name an index and a leader: it is not Consul's, or a " +
	"proxy takes headers away")

// Classify tells what an error of the client means. It is pure.
func Classify(err error) Failure {
	if err == nil {
		return Failure{}
	}
	if known, ok := errors.AsType[*Error](err); ok {
		return known.Failure
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
	default: // of the network, TLS, or an answer that broke off
		return Failure{Kind: Unreachable}
	}
}

// statusOf returns the answer that an error is of; the zero value if there is none.
func statusOf(err error) api.StatusError {
	status, _ := errors.AsType[api.StatusError](err)
	return status
}

func kindOf(status api.StatusError) Kind {
	switch {
	case status.Code == http.StatusForbidden, status.Code == http.StatusUnauthorized:
		return Denied
	case strings.Contains(status.Body, "Permission denied"), strings.Contains(status.Body, "ACL not found"):
		return Denied // agents before 1.11 answer what a server said as 500
	case status.Code == http.StatusTooManyRequests, strings.Contains(status.Body, rateLimitBody):
		return RateLimited
	case status.Code >= 500:
		return Unreachable
	default:
		return Refused
	}
}

// rateLimitBody is in the answers of Consul's rate limiter, which are 503 where only the leader could have done better.
const rateLimitBody = "rate limit exceeded"

// limited is the error of a Consul that is asked too much; after is when it may be asked again, 0 if Consul does not say.
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

// longestRefrain is how long we let an answer keep us from asking. The hour that a page for maintenance names is for people; an
// end of it that comes sooner is to be seen soon.
const longestRefrain = time.Minute

// retryAfter reads the header of that name, in either of its forms.
func retryAfter(value string, now time.Time) time.Duration {
	var wait time.Duration
	if seconds, err := strconv.Atoi(value); err == nil {
		wait = time.Duration(min(seconds, int(longestRefrain/time.Second))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = at.Sub(now)
	}
	return min(max(0, wait), longestRefrain)
}

// NextIndex is the index for the next blocking query, after one with index asked was answered with index got. An index that
// goes backwards is of a Consul that was restored or wiped, and means nothing; 0 would not block at all.
func NextIndex(asked, got uint64) uint64 {
	switch {
	case got < asked:
		return 0
	case got == 0:
		return 1
	default:
		return got
	}
}
