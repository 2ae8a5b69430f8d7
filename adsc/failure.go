package adsc

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/internal/words"
)

// maxReason bounds the reason of a rejection: a response of 100,000 bad resources must not be answered by a request
// that exceeds the server's receive limit.
const maxReason = 16 << 10

// Denied reports whether err means that the server refuses this client, so that asking again the same way is of no use.
func Denied(err error) bool {
	switch codeOf(err) {
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

// Exhausted reports whether err means that the server has more clients or requests than it can bear, or that a message
// exceeded a limit of either side.
func Exhausted(err error) bool { return codeOf(err) == codes.ResourceExhausted }

// tooManyPings reports whether err means that the server ended the connection since it was asked too often whether it is
// there. gRPC has it in words only.
func tooManyPings(err error) bool {
	return err != nil && strings.Contains(err.Error(), "too_many_pings")
}

// codeOf returns the gRPC code of err, which may be wrapped, or OK if it has none.
func codeOf(err error) codes.Code {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code()
	}
	return codes.OK
}

// reasonOf is err's text, cut to maxReason and made fit for protobuf, which refuses broken UTF-8. It is never empty.
func reasonOf(err error) string {
	text := cmp.Or(err.Error(), "rejected")
	if len(text) > maxReason {
		text = text[:maxReason] + "…"
	}
	return strings.ToValidUTF8(text, "�")
}

// streamError is why a stream has ended, in words: what is said of the connection by a library is for programs.
type streamError struct {
	address string
	err     error
}

func (e *streamError) Error() string {
	return "xDS stream to " + e.address + ": " + words.StreamError(e.address, e.err.Error())
}

func (e *streamError) Unwrap() error { return e.err }

// reasoned says in words that a server ended the stream without giving a reason.
func reasoned(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the server ended it")
	}
	return err
}

// RejectedError is the error of a handler that took a response but for some resources. Of a handler's other errors it is
// assumed that nothing was taken.
type RejectedError struct {
	// Names are those of the resources that were not taken.
	Names []string
	// Err says why, for the server.
	Err error
}

// Error implements error.
func (e *RejectedError) Error() string { return e.Err.Error() }

// Unwrap implements the interface of errors.Is and errors.As.
func (e *RejectedError) Unwrap() error { return e.Err }

// RefusedError is the error of a handler that wants nothing more of a server: the stream ends as if the server had refused the
// client, for the reason Err, and nothing of the response counts as known. The server gets no reply.
type RefusedError struct{ Err error }

// Error implements error.
func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap implements the interface of errors.Is and errors.As.
func (e *RefusedError) Unwrap() error { return e.Err }

// rejection is what a handler did not take of a response.
type rejection struct {
	err   error
	whole bool
	names map[string]bool // if not the whole
}

func rejectionOf(err error) rejection {
	var some *RejectedError
	if !errors.As(err, &some) {
		return rejection{err: err, whole: err != nil}
	}
	names := make(map[string]bool, len(some.Names))
	for _, name := range some.Names {
		names[name] = true
	}
	return rejection{err: err, names: names}
}

func (j rejection) of(name string) bool { return j.whole || j.names[name] }

// accepted returns r without what was rejected, and nil if that is all of it.
func (j rejection) accepted(r *Response) *Response {
	if j.whole {
		return nil
	}
	accepted := *r
	if len(j.names) > 0 {
		accepted.Resources = slices.DeleteFunc(slices.Clone(r.Resources), func(res Resource) bool { return j.names[res.Name] })
	}
	return &accepted
}
