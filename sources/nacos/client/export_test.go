package client

import "time"

// Limit sets the size of the largest answer that is read.
func (c *Client) Limit(bytes int) { c.maxAnswer = bytes }

// LoginEvery sets how long it is not tried again to log in.
func (c *Client) LoginEvery(d time.Duration) { c.login.pause = d }
