// Package flock locks files against other processes, and against others of this one.
package flock

import "errors"

// ErrLocked says that somebody else has the lock.
var ErrLocked = errors.New("locked")
