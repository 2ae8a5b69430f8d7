package adsc

import (
	"context"
	"slices"
)

// restore hands the handlers what the cache has. What cannot be read is logged and comes from the server.
func (c *Client) restore(ctx context.Context) error {
	c.mu.Lock()
	var leading, following []*subscription
	for _, sub := range c.subs {
		if sub.follow { // what it is asked for depends on its parents
			following = append(following, sub)
		} else {
			leading = append(leading, sub)
		}
	}
	c.mu.Unlock()
	for _, sub := range slices.Concat(leading, following) {
		if err := c.restoreType(ctx, sub); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) restoreType(ctx context.Context, sub *subscription) error {
	c.mu.Lock()
	knows, handler, covers := len(sub.versions) > 0, sub.handler, sub.wants.covers()
	sub.handled = sub.wants
	c.mu.Unlock()
	if knows {
		return nil // more than the cache, and maybe newer
	}
	r, err := c.cache.load(sub.typeURL)
	if err != nil {
		c.cfg.Log.Warn("cached responses cannot be read", "type_url", sub.typeURL, "err", err)
		return nil
	}
	if r == nil {
		return nil
	}
	if r.Delta {
		r.Resources = slices.DeleteFunc(r.Resources, func(res Resource) bool { return !covers(res.Name) })
	}
	rejected := handler(ctx, r)
	if ctx.Err() != nil && rejected != nil {
		return ctx.Err()
	}
	c.note(ctx, sub, r, true, rejected)
	c.mu.Lock()
	sub.version = "" // a server that hears the version may answer nothing, and we would never be synced
	c.mu.Unlock()
	return nil
}
