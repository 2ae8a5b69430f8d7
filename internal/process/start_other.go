//go:build !unix

package process

import (
	"context"
	"errors"
	"iter"
	"net"
)

// Successor is a process that was started to take over from this one. There are none here.
type Successor struct{ *peer }

// StartSuccessor fails: files cannot be inherited here.
func StartSuccessor(string, []string, map[string]net.Listener) (*Successor, error) {
	return nil, errors.New("one process cannot take over from another on this system")
}

// Give fails.
func (*Successor) Give(context.Context, iter.Seq[string]) error { return errors.ErrUnsupported }

// PID is zero.
func (*Successor) PID() int { return 0 }

// Hangup does nothing.
func (*Successor) Hangup() {}

// Kill does nothing.
func (*Successor) Kill() {}
