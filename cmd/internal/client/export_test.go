package client

import "github.com/cenkalti/backoff/v4"

// RetryPolicy returns how a watch waits between attempts.
func (c *XDS) RetryPolicy() backoff.BackOff { return c.clientConfig().Backoff() }
