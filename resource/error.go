package resource

import (
	"errors"
	"fmt"
	"strings"
)

// Error is one defect of one object. Its message names the place, the object and the field:
//
//	rules/reviews.yaml:14:7: VirtualService default/reviews: spec.http[0].route[1].weight: want an integer, got the string "x"
type Error struct {
	Key    Key    // of the object; unknown fields are empty
	Origin Origin // the place: "path:line:column" for errors of Decode, and that of the resource otherwise
	Err    error  // the reason, beginning with the path of the field if there is one
	// Rule reports that it is a rule of Istio's validation, which changes with Istio's version, and no fault of form.
	Rule bool
	// Metadata reports that it is a rule of Kubernetes for names, labels and annotations. MCP servers need not keep these.
	Metadata bool

	line, column int // of the place, for the order; 0 if it is not in a file
}

// Error returns the message.
func (e *Error) Error() string {
	var builder strings.Builder
	if origin := e.Origin.String(); origin != "" {
		builder.WriteString(origin)
		builder.WriteString(": ")
	}
	switch {
	case e.Key.Name != "":
		builder.WriteString(e.Key.String())
		builder.WriteString(": ")
	case e.Key.Kind != "":
		builder.WriteString(string(e.Key.Kind))
		builder.WriteString(": ")
	}
	builder.WriteString(e.Err.Error())
	return builder.String()
}

// Unwrap returns the error without the place.
func (e *Error) Unwrap() error { return e.Err }

// Errors are several errors in order. The message has one in a line.
type Errors []*Error

// Error returns the messages, one a line.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes the errors visible to errors.Is and errors.As.
func (es Errors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// Err returns es as an error, or nil if there are none.
func (es Errors) Err() error {
	if len(es) == 0 {
		return nil
	}
	return es
}

// ErrorsIn lists every Error within err, however wrapped or joined.
func ErrorsIn(err error) Errors {
	var list Errors
	switch typed := err.(type) { //nolint:errorlint // walks the tree itself, to find all and not only the first
	case nil:
	case *Error:
		list = append(list, typed)
	case interface{ Unwrap() []error }:
		for _, sub := range typed.Unwrap() {
			list = append(list, ErrorsIn(sub)...)
		}
	default:
		list = ErrorsIn(errors.Unwrap(err))
	}
	return list
}

// errorOf returns an Error about a resource.
func errorOf(r *Resource, format string, args ...any) *Error {
	return &Error{Key: r.key, Origin: r.origin, Err: fmt.Errorf(format, args...)}
}
