package client

// Limit sets the size of the largest answer that is read.
func (c *Client) Limit(bytes int) { c.maxAnswer = bytes }
