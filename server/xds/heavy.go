package xds

import (
	"context"
	"runtime"

	"tributary/internal/turns"
)

// heavyWork bounds how many processors work at once on what is large because a client made it so: thousands of names, or of versions that
// it brings along. One is always left to what everybody waits for. With all of them at work, Go looks only every ten milliseconds whether
// the network or the file system has something new, and each step of a change would wait for that.
//
// Addresses take turns. Processors are those of the whole program, and so are the turns. Nothing is waited for by who has one.
var heavyWork = turns.New(max(runtime.GOMAXPROCS(0)-1, 1))

// Work is heavy from so many names on, or bytes of a request.
const (
	heavyNames = 1000
	heavyBytes = pooledRequest
)

// heavily has work done, when it is its turn if it is heavy. It returns an error if ctx ends before that.
func heavily(ctx context.Context, host string, is bool, work func()) error {
	if !is {
		work()
		return nil
	}
	return heavyWork.Do(ctx, host, work)
}

// HeavyWork has work done when it is its turn, which is heavy because the client wants it whose stream has ctx. It returns an error if ctx
// ends before that. The work must wait for nothing, and do none of this kind itself.
func HeavyWork(ctx context.Context, work func()) error {
	return heavyWork.Do(ctx, HostOf(ctx), work)
}
