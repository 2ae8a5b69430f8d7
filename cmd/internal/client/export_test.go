package client

import "github.com/cenkalti/backoff/v4"

// RetryPolicy returns how a watch waits between attempts.
func (x *XDS) RetryPolicy() backoff.BackOff { return x.clientConfig().Backoff() }
