package process

import "errors"

// ErrLocked says that somebody else has the lock.
var ErrLocked = errors.New("locked")
