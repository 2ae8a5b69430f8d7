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

// maxReason bounds the reason of a rejection: a response of 100,000 bad resources must not be answered by a request
// that exceeds the server's receive limit.
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

// Advice returns the remedy for a refusal by istiod, or an empty text. The caller's users know the ID of the node by
// the name nodeID.
func Advice(err error, nodeID string) string {
	const identity = "a certificate or token of a service account in its root namespace (istio-system)"
	message := err.Error()
	if match := unmatchedNamespace.FindStringSubmatch(message); match != nil {
		return fmt.Sprintf("the node is in the namespace %q, the identity of the certificate or token in another one: "+
			"leave out %s, or give it the namespace of the identity, such as %s",
			match[1], nodeID, NodeID("tributary", "istio-system"))
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

// reasonOf is err's text, cut to maxReason and made fit for protobuf, which refuses broken UTF-8. It is never empty.
func reasonOf(err error) string {
	text := cmp.Or(err.Error(), "rejected")
	if len(text) > maxReason {
		text = text[:maxReason] + "…"
	}
	return strings.ToValidUTF8(text, "�")
}

// streamError is the reason why a stream has ended, in plain words instead of a library's.
type streamError struct {
	address string
	err     error
}

func (e *streamError) Error() string {
	return "xDS stream to " + e.address + ": " + words.StreamError(e.address, e.err.Error())
}

func (e *streamError) Unwrap() error { return e.err }

// reasoned replaces the error of a stream that a server ended without a reason.
func reasoned(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the server ended it")
	}
	return err
}

// RejectedError is the error of a handler that took a response except for some resources. Another error means that the
// handler took no resource.
type RejectedError struct {
	// Names of the rejected resources.
	Names []string
	// Err is the reason for the server.
	Err error
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

// rejection has the rejected resources of a response.
type rejection struct {
	err    error
	entire bool
	names  map[string]bool // unless entire
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
