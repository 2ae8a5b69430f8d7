package adsc

import (
	"errors"
	"slices"
)

// handle passes a response to its handler and queues the reply.
func (s *stream) handle(message *serverResponse) error {
	defer message.lease.Release()
	client := s.client
	log := client.cfg.Log.With("address", s.server, "type_url", message.TypeURL, "nonce", message.nonce)
	exchange := s.exchanges[message.TypeURL]
	if exchange == nil { // a reply would be a request of the type
		if !s.loggedUnrequested {
			log.Warn("responses of a type that was not requested are ignored")
		}
		s.loggedUnrequested = true
		return nil
	}
	hasNoVersion := func(r Resource) bool { return r.Version == "" }
	if message.Delta && client.cfg.Mode == Auto && slices.ContainsFunc(message.Resources, hasNoVersion) {
		return errUnversioned
	}
	if err := s.checkHeader(); err != nil {
		return err
	}
	exchange.nonce = message.nonce
	exchange.hasResponse = true
	subscription, handler, covers := client.handlerFor(message.TypeURL, exchange)
	if subscription == nil || !s.complete(message, exchange, covers) { // but the server waits for a reply
		client.noteSkipped(subscription, message)
		exchange.reply(nil)
		s.enqueue(message.TypeURL)
		return nil
	}
	message.beginsSet = message.Complete && !exchange.setContinues
	exchange.setContinues = message.More
	exchange.sendsAll = exchange.sendsAll && message.More

	rejected := handler(s.runContext, &message.Response)
	if err := s.runContext.Err(); err != nil && rejectionOf(rejected).entire {
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
	client.finishResponse(subscription, message, rejected)
	exchange.reply(rejected)
	s.enqueue(message.TypeURL)
	s.enqueueChanged()
	return nil
}

// checkHeader checks the header of a stream when its first response arrives.
func (s *stream) checkHeader() error {
	if s.hasResponse {
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
	s.hasResponse = true
	s.reportConnected()
	return nil
}

// complete sets the fields of a response that the server does not send, and removes resources that the client
// unsubscribed from after its request. It reports whether the handler has to get the response.
func (s *stream) complete(message *serverResponse, exchange *exchange, covers func(name string) bool) bool {
	message.Server = s.server
	if !message.Delta {
		message.Complete = !partialTypes[message.TypeURL]
		return true
	}
	message.Complete = exchange.sendsAll
	received := len(message.Resources) + len(message.Removed)
	message.Resources = slices.DeleteFunc(message.Resources, func(resource Resource) bool {
		return !covers(resource.Name) && !slices.ContainsFunc(resource.Aliases, covers)
	})
	message.Removed = slices.DeleteFunc(message.Removed, func(name string) bool { return !covers(name) })
	return received == 0 || message.Complete || len(message.Resources)+len(message.Removed) > 0
}

// handlerFor returns the subscription of a response, its handler, and the function that selects its resources; nil if
// the client unsubscribed from the type. The caller calls the handler next: retainedSinceHandler starts over.
func (c *Client) handlerFor(typeURL string, exchange *exchange) (*subscription, Handler, func(name string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	subscription := c.find(typeURL)
	if subscription == nil || subscription != exchange.subscription {
		return nil, nil, nil
	}
	subscription.retainedSinceHandler = subscription.selection
	return subscription, subscription.handler, subscription.selection.covers()
}

// noteSkipped notes a response that the handler does not get.
func (c *Client) noteSkipped(subscription *subscription, message *serverResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if subscription != nil && !message.More {
		subscription.synced = true
	}
}

// finishResponse updates the subscription after a response was handled with the result err, and calls the hooks.
func (c *Client) finishResponse(subscription *subscription, message *serverResponse, err error) {
	rejected := rejectionOf(err)
	c.mu.Lock()
	if c.find(subscription.typeURL) != subscription { // its handler unsubscribed from the type
		c.mu.Unlock()
		return
	}
	subscription.recordVersions(message, rejected)
	compared, differences := false, 0
	if message.Delta && message.Complete {
		compared, differences = subscription.compare(&message.Response, rejected)
	}
	if !message.More {
		subscription.synced = true
	}
	c.mu.Unlock()

	if hook := c.cfg.Hooks.Compared; compared && hook != nil {
		hook(message.TypeURL, differences)
	}
	if hook := c.cfg.Hooks.Response; hook != nil {
		hook(&message.Response, err)
	}
}
