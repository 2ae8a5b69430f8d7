package adsc

import (
	"errors"
	"slices"
)

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
// client, for the reason Err, and nothing of the response counts as known. The server gets no reply. Of what comes from the
// cache nothing is taken, and that is all.
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

// taken returns r without what was rejected, and nil if that is all of it.
func (j rejection) taken(r *Response) *Response {
	if j.whole {
		return nil
	}
	taken := *r
	if len(j.names) > 0 {
		taken.Resources = slices.DeleteFunc(slices.Clone(r.Resources), func(res Resource) bool { return j.names[res.Name] })
	}
	return &taken
}
