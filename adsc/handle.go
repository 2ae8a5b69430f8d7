package adsc

import (
	"errors"
	"slices"
)

// handle passes a response to its handler and queues the reply.
func (s *stream) handle(message *answer) error {
	defer message.lease.Release()
	client := s.client
	log := client.cfg.Log.With("address", s.server, "type_url", message.TypeURL, "nonce", message.nonce)
	exchange := s.exchanges[message.TypeURL]
	if exchange == nil { // a reply would be a request of the type
		if !s.gotUnrequested {
			log.Warn("responses of a type that was not requested are ignored")
		}
		s.gotUnrequested = true
		return nil
	}
	hasNoVersion := func(r Resource) bool { return r.Version == "" }
	if message.Delta && client.cfg.Mode == Auto && slices.ContainsFunc(message.Resources, hasNoVersion) {
		return errUnversioned
	}
	if err := s.checkHeader(); err != nil {
		return err
	}
	exchange.nonce, exchange.answered = message.nonce, true
	subscription, handler, covers := client.current(message.TypeURL, exchange)
	var response *Response
	if subscription != nil {
		response = s.response(exchange, message, covers)
	}
	if response == nil { // the client dropped all of it meanwhile, but the server waits for a reply
		client.noteSkipped(subscription, message)
		exchange.reply(nil)
		s.mark(message.TypeURL)
		return nil
	}
	first := response.Complete && !exchange.hasBegun
	exchange.hasBegun = message.More
	exchange.isFresh = exchange.isFresh && message.More

	rejected := handler(s.life, response)
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
		exchange.version = message.Version
	}
	client.finishResponse(subscription, response, first, rejected)
	exchange.reply(rejected)
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
	response := &message.Response
	response.Complete, response.Server = a.isFresh, s.server
	if !response.Delta {
		response.Complete = !partialTypes[response.TypeURL]
		return response
	}
	received := len(response.Resources) + len(response.Removed)
	response.Resources = slices.DeleteFunc(response.Resources, func(res Resource) bool {
		return !covers(res.Name) && !slices.ContainsFunc(res.Aliases, covers)
	})
	response.Removed = slices.DeleteFunc(response.Removed, func(name string) bool { return !covers(name) })
	if received > 0 && len(response.Resources)+len(response.Removed) == 0 && !response.Complete {
		return nil
	}
	return response
}

// current returns the subscription of a response, its handler, which is about to be called, and the function that
// selects its resources; nil if the type was dropped.
func (c *Client) current(typeURL string, exchange *exchange) (*subscription, Handler, func(name string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	subscription := c.find(typeURL)
	if subscription == nil || subscription != exchange.sub {
		return nil, nil, nil
	}
	subscription.handledSelection = subscription.selection
	return subscription, subscription.handler, subscription.selection.covers()
}

// noteSkipped notes an answer that the handler does not get.
func (c *Client) noteSkipped(subscription *subscription, message *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if subscription != nil && !message.More {
		subscription.synced = true
	}
}

// finishResponse updates the subscription after a response was handled, and calls the hooks. first says that the
// response begins a complete set.
func (c *Client) finishResponse(subscription *subscription, response *Response, first bool, err error) {
	rejected := rejectionOf(err)
	c.mu.Lock()
	if c.find(subscription.typeURL) != subscription { // its handler dropped it
		c.mu.Unlock()
		return
	}
	subscription.recordVersions(response, first, rejected)
	compared, healed := false, 0
	if response.Delta && response.Complete {
		compared, healed = subscription.verify(response, rejected)
	}
	if !response.More {
		subscription.synced = true
	}
	c.mu.Unlock()

	if hook := c.cfg.Hooks.Compared; compared && hook != nil {
		hook(response.TypeURL, healed)
	}
	if hook := c.cfg.Hooks.Response; hook != nil {
		hook(response, err)
	}
}
