package client

// Limit sets the size of the largest answer that is read.
func (c *Client) Limit(bytes int) { c.maxAnswer = bytes }

// LimitAll says how many bytes of all services are kept.
func (c *Client) LimitAll(bytes int) { c.maxKept = bytes }
