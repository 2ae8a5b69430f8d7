package adsc

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/words"
)

// maxReason limits the reason of a rejection: the reply to a response of 100,000 bad resources must not exceed the
// server's receive limit.
const maxReason = 16 << 10

// Denied reports whether err means that the server refuses this client, so that the same request is useless.
func Denied(err error) bool {
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.FailedPrecondition:
		return true
	}
	return false
}

var unmatchedNamespace = regexp.MustCompile(`no identities \(.*\) matched ([^/ ]*)/`)

// Advice returns the remedy for a refusal by istiod, or an empty text. nodeIDSetting is the name of the user's setting
// with the ID of the node.
func Advice(err error, nodeIDSetting string) string {
	const identity = "a certificate or token of a service account in its root namespace (istio-system)"
	message := err.Error()
	if match := unmatchedNamespace.FindStringSubmatch(message); match != nil {
		return fmt.Sprintf("the node is in the namespace %q, the identity of the certificate or token in another one: "+
			"leave out %s, or give it the namespace of the identity, such as %s",
			match[1], nodeIDSetting, NodeID("tributary", "istio-system"))
	}
	for _, refusal := range []struct{ part, advice string }{
		{"requires an authenticated control-plane identity", "connect to istiod's TLS port (15012) with " + identity},
		{"authentication required", "connect to istiod's TLS port (15012) with " + identity},
		{"authentication failure", "istiod wants " + identity},
		{"restricted to the control-plane (root) namespace", "istiod wants " + identity},
		{"debug info is not available for current identity", "istiod wants " + identity},
	} {
		if strings.Contains(message, refusal.part) {
			return refusal.advice
		}
	}
	return ""
}

// Exhausted reports whether err means that the server is overloaded, or that a message exceeded a limit of either side.
func Exhausted(err error) bool { return status.Code(err) == codes.ResourceExhausted }

// tooManyPings reports whether err means that the server ended the connection because of its pings. gRPC only has a
// text for that.
func tooManyPings(err error) bool {
	return err != nil && strings.Contains(err.Error(), "too_many_pings")
}

// rejectionReason returns the text of err for the server. It is never empty, about maxReason long at most, and valid
// UTF-8, as protobuf requires.
func rejectionReason(err error) string {
	text := cmp.Or(err.Error(), "rejected")
	if len(text) > maxReason {
		text = text[:maxReason] + "…"
	}
	return strings.ToValidUTF8(text, "�")
}

// streamError is the error that ended a stream. Its text replaces words of gRPC by plain ones.
type streamError struct {
	address string
	err     error
}

func (e *streamError) Error() string {
	return "xDS stream to " + e.address + ": " + words.StreamError(e.address, e.err.Error())
}

func (e *streamError) Unwrap() error { return e.err }

// explainEnd replaces the end of a stream without a reason (EOF) by a readable error.
func explainEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the server ended it")
	}
	return err
}

// RejectedError is the error of a handler that accepted a response except for some resources. Any other error rejects
// all resources of the response.
type RejectedError struct {
	Names []string // of the rejected resources
	Err   error    // the reason, which is sent to the server
}

// Error implements error.
func (e *RejectedError) Error() string { return e.Err.Error() }

// Unwrap implements the interface of errors.Is and errors.As.
func (e *RejectedError) Unwrap() error { return e.Err }

// RefusedError is the error of a handler that refuses a server. The stream ends as if the server had refused the client
// for the reason Err, the whole response counts as rejected, and the server gets no reply.
type RefusedError struct{ Err error }

// Error implements error.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap implements the interface of errors.Is and errors.As.
func (e *RefusedError) Unwrap() error { return e.Err }

// rejection has the rejected resources of a response. The zero value rejects none.
type rejection struct {
	err    error
	entire bool            // all resources
	names  map[string]bool // of the resources, unless entire
}

func rejectionOf(err error) rejection {
	var partial *RejectedError
	if !errors.As(err, &partial) {
		return rejection{err: err, entire: err != nil}
	}
	names := make(map[string]bool, len(partial.Names))
	for _, name := range partial.Names {
		names[name] = true
	}
	return rejection{err: err, names: names}
}

func (r rejection) includes(name string) bool { return r.entire || r.names[name] }
