package client

import "time"

// Limit sets the size of the largest answer that is read.
func (c *Client) Limit(bytes int) { c.maxAnswer = bytes }

// LimitAll says how many bytes of all services are kept.
func (c *Client) LimitAll(bytes int) { c.maxKept = bytes }

// LoginEvery sets how long it is not tried again to log in.
func (c *Client) LoginEvery(d time.Duration) { c.login.pause = d }
