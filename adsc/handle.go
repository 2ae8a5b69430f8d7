package adsc

import (
	"context"
	"errors"
	"slices"
	"time"
)

// wait is the deadline of requested resources.
type wait struct {
	deadline  time.Time
	sub       *subscription
	resources []*requestedResource
}

// awaitResources makes resources count as absent if the server does not send them in time. State of the world cannot
// report an absent resource, and some delta servers do not.
func (s *stream) awaitResources(sub *subscription, list []*requestedResource) {
	if after := s.client.cfg.AbsentAfter; after > 0 && len(list) > 0 {
		s.waits = append(s.waits, wait{time.Now().Add(after), sub, list})
	}
}

// receive handles an answer. The duration extends the waits, since the server is not read meanwhile.
func (s *stream) receive(message *answer) error {
	begin := time.Now()
	defer message.lease.Release()
	err := s.handle(message)
	for i, handling := 0, time.Since(begin); i < len(s.waits); i++ {
		s.waits[i].deadline = s.waits[i].deadline.Add(handling)
	}
	return err
}

// expire ends the waits that are past their deadline.
func (s *stream) expire(now time.Time) {
	for len(s.waits) > 0 && !s.waits[0].deadline.After(now) {
		w := s.waits[0]
		s.waits = s.waits[1:]
		s.client.expire(s.life, w.sub, w.resources)
	}
}

// handle passes a response to its handler and queues the reply.
func (s *stream) handle(message *answer) error {
	c := s.client
	log := c.cfg.Log.With("address", s.server, "type_url", message.typeURL, "nonce", message.nonce)
	a := s.exchanges[message.typeURL]
	if a == nil { // a reply would be a request of the type
		if !s.gotUnrequested {
			log.Warn("responses of a type that was not requested are ignored")
		}
		s.gotUnrequested = true
		return nil
	}
	hasNoVersion := func(r Resource) bool { return r.Version == "" }
	if message.delta && c.cfg.Mode == Auto && slices.ContainsFunc(message.resources, hasNoVersion) {
		return errUnversioned
	}
	if err := s.checkHeader(); err != nil {
		return err
	}
	a.nonce, a.answered = message.nonce, true
	sub, handler, covers := c.current(message.typeURL, a)
	var r *Response
	if sub != nil {
		r = s.response(a, message, covers)
	}
	if r == nil { // the client dropped all of it meanwhile, but the server waits for a reply
		c.noteSkipped(sub, message)
		a.reply(nil)
		s.mark(message.typeURL)
		return nil
	}
	first := r.Complete && !a.hasBegun
	a.hasBegun = message.hasMore
	a.isFresh = a.isFresh && message.hasMore

	rejected := handler(s.life, r)
	if err := s.life.Err(); err != nil && rejectionOf(rejected).entire {
		return err // the handler gave up
	}
	if refused := (*RefusedError)(nil); errors.As(rejected, &refused) {
		return refused.Err
	}
	// The response counts as handled, even if the stream or Run has ended: the next stream begins with its versions.
	if rejected != nil {
		log.Warn("response rejected", "version", message.version, "err", rejected)
	} else if !message.delta {
		a.version = message.version
	}
	c.finishResponse(s.life, sub, r, first, rejected)
	a.reply(rejected)
	s.mark(message.typeURL)
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
	r := &Response{
		TypeURL: message.typeURL, Version: message.version,
		Resources: message.resources, Removed: message.removed, Delta: message.delta,
		Complete: a.isFresh, More: message.hasMore, Server: s.server, ControlPlane: message.controlPlane,
	}
	if !message.delta {
		r.Complete = !partialTypes[message.typeURL]
		return r
	}
	r.Resources = slices.DeleteFunc(r.Resources, func(res Resource) bool {
		return !covers(res.Name) && !slices.ContainsFunc(res.Aliases, covers)
	})
	r.Removed = slices.DeleteFunc(slices.Clone(r.Removed), func(name string) bool { return !covers(name) })
	received := len(message.resources) + len(message.removed)
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
	if sub != nil && !message.hasMore {
		sub.synced = true
	}
}

// namesOf returns the names of a response's resources. It calls the caller's NameOf without a lock, and only if needed.
func (c *Client) namesOf(sub *subscription, r *Response) []string {
	c.mu.Lock()
	nameOf, needed := sub.nameOf, len(sub.resources) > 0 || c.follower(sub.typeURL) != nil
	c.mu.Unlock()
	names := make([]string, len(r.Resources))
	for i := range r.Resources {
		if names[i] = r.Resources[i].Name; names[i] == "" && needed {
			names[i] = nameOf(r.Resources[i])
		}
	}
	return names
}

// finishResponse updates the subscription after a response was handled, and calls the hooks. first says that the
// response begins a complete set.
func (c *Client) finishResponse(ctx context.Context, sub *subscription, r *Response, first bool, err error) {
	rejected := rejectionOf(err)
	names := c.namesOf(sub, r)
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
	missing, absent := sub.resources.update(r, first, names, rejected), sub.absent
	if !r.More {
		sub.synced = true
	}
	if follower := c.follower(r.TypeURL); follower != nil {
		sub.references.update(r, first, names, rejected)
		follower.replaceSelection(sub.references.selection())
	} else {
		sub.references = references{} // outdated
	}
	c.mu.Unlock()

	if absent != nil && len(missing) > 0 {
		absent(ctx, missing)
	}
	if hook := c.cfg.Hooks.Compared; compared && hook != nil {
		hook(r.TypeURL, healed)
	}
	if hook := c.cfg.Hooks.Response; hook != nil {
		hook(r, err)
	}
}

// expire marks the listed resources without an answer as absent.
func (c *Client) expire(ctx context.Context, sub *subscription, list []*requestedResource) {
	c.mu.Lock()
	var missing []string
	if c.find(sub.typeURL) == sub {
		missing = sub.resources.expire(list)
	}
	absent := sub.absent
	c.mu.Unlock()
	if absent != nil && len(missing) > 0 {
		absent(ctx, missing)
	}
}
