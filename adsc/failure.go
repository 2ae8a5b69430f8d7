package adsc

import (
	"cmp"
	"errors"
	"io"
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
	return "xDS stream to " + e.address + ": " + words.Stream(e.address, e.err.Error())
}

func (e *streamError) Unwrap() error { return e.err }

// reasoned says in words that a server ended the stream without giving a reason.
func reasoned(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the server ended it")
	}
	return err
}
