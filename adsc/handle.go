package adsc

import (
	"errors"
	"slices"
)

// handle passes a response to its handler and queues the reply.
func (s *stream) handle(message *answer) error {
	defer message.lease.Release()
	c := s.client
	log := c.cfg.Log.With("address", s.server, "type_url", message.TypeURL, "nonce", message.nonce)
	a := s.exchanges[message.TypeURL]
	if a == nil { // a reply would be a request of the type
		if !s.gotUnrequested {
			log.Warn("responses of a type that was not requested are ignored")
		}
		s.gotUnrequested = true
		return nil
	}
	hasNoVersion := func(r Resource) bool { return r.Version == "" }
	if message.Delta && c.cfg.Mode == Auto && slices.ContainsFunc(message.Resources, hasNoVersion) {
		return errUnversioned
	}
	if err := s.checkHeader(); err != nil {
		return err
	}
	a.nonce, a.answered = message.nonce, true
	sub, handler, covers := c.current(message.TypeURL, a)
	var r *Response
	if sub != nil {
		r = s.response(a, message, covers)
	}
	if r == nil { // the client dropped all of it meanwhile, but the server waits for a reply
		c.noteSkipped(sub, message)
		a.reply(nil)
		s.mark(message.TypeURL)
		return nil
	}
	first := r.Complete && !a.hasBegun
	a.hasBegun = message.More
	a.isFresh = a.isFresh && message.More

	rejected := handler(s.life, r)
	if err := s.life.Err(); err != nil && rejectionOf(rejected).entire {
		return err // the handler gave up
	}
	if refused := (*RefusedError)(nil); errors.As(rejected, &refused) {
		return refused.Err
	}
	// The response counts as handled, even if the stream or Run has ended: the next stream begins with its versions.
	if rejected != nil {
		log.Warn("response rejected", "version", message.Version, "err", rejected)
	} else if !message.Delta {
		a.version = message.Version
	}
	c.finishResponse(sub, r, first, rejected)
	a.reply(rejected)
	s.mark(message.TypeURL)
	s.markDue()
	return nil
}

// checkHeader checks the header of a stream with its first answer.
func (s *stream) checkHeader() error {
	if s.answered {
		return nil
	}
	if accept := s.client.cfg.Hooks.Accept; accept != nil {
		header, err := s.wire.Header()
		if err != nil {
			return err
		}
		if err := accept(s.server, header); err != nil {
			return err
		}
	}
	s.answered = true
	s.established()
	return nil
}

// response returns the Response for the handler, without names that were dropped since the request; nil if it has no
// others.
func (s *stream) response(a *exchange, message *answer, covers func(name string) bool) *Response {
	r := &message.Response
	r.Complete, r.Server = a.isFresh, s.server
	if !r.Delta {
		r.Complete = !partialTypes[r.TypeURL]
		return r
	}
	received := len(r.Resources) + len(r.Removed)
	r.Resources = slices.DeleteFunc(r.Resources, func(res Resource) bool {
		return !covers(res.Name) && !slices.ContainsFunc(res.Aliases, covers)
	})
	r.Removed = slices.DeleteFunc(r.Removed, func(name string) bool { return !covers(name) })
	if received > 0 && len(r.Resources)+len(r.Removed) == 0 && !r.Complete {
		return nil
	}
	return r
}

// current returns the subscription of a response, its handler, which is about to be called, and the function that
// selects its resources; nil if the type was dropped.
func (c *Client) current(typeURL string, a *exchange) (*subscription, Handler, func(name string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sub := c.find(typeURL)
	if sub == nil || sub != a.sub {
		return nil, nil, nil
	}
	sub.handledSelection = sub.selection
	return sub, sub.handler, sub.selection.covers()
}

// noteSkipped notes an answer that the handler does not get.
func (c *Client) noteSkipped(sub *subscription, message *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sub != nil && !message.More {
		sub.synced = true
	}
}

// finishResponse updates the subscription after a response was handled, and calls the hooks. first says that the
// response begins a complete set.
func (c *Client) finishResponse(sub *subscription, r *Response, first bool, err error) {
	rejected := rejectionOf(err)
	c.mu.Lock()
	if c.find(sub.typeURL) != sub { // its handler dropped it
		c.mu.Unlock()
		return
	}
	sub.recordVersions(r, first, rejected)
	compared, healed := false, 0
	if r.Delta && r.Complete {
		compared, healed = sub.verify(r, rejected)
	}
	if !r.More {
		sub.synced = true
	}
	c.mu.Unlock()

	if hook := c.cfg.Hooks.Compared; compared && hook != nil {
		hook(r.TypeURL, healed)
	}
	if hook := c.cfg.Hooks.Response; hook != nil {
		hook(r, err)
	}
}
