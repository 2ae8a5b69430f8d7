package dial

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"
)

// ErrBrokenOff is that of a blocking query whose connection ended. The HTTP client would ask again by itself, with an
// index that a Consul that was started anew may not reach for a long time.
var ErrBrokenOff = errors.New("the connection ended while the query waited")

// Once has ctx end, for ErrBrokenOff, when its request gets a second connection.
func Once(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	var connections atomic.Int32
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if connections.Add(1) > 1 {
			cancel(ErrBrokenOff)
		}
	}})
}
