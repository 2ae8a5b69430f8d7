package adsc

import (
	"context"
	"errors"
	"slices"
	"time"
)

// wait is for resources that were asked for by name.
type wait struct {
	until     time.Time
	sub       *subscription
	resources []*named
}

// await makes resources count as absent if the server does not send them in time. State of the world cannot report an absent resource, and
// some delta servers do not.
func (s *stream) await(sub *subscription, list []*named) {
	if after := s.client.cfg.AbsentAfter; after > 0 && len(list) > 0 {
		s.waits = append(s.waits, wait{time.Now().Add(after), sub, list})
	}
}

// receive handles an answer. The time that it takes is not that of the server, which is not read meanwhile.
func (s *stream) receive(in *answer) error {
	begin := time.Now()
	defer in.lease.Release()
	err := s.handle(in)
	for i, handling := 0, time.Since(begin); i < len(s.waits); i++ {
		s.waits[i].until = s.waits[i].until.Add(handling)
	}
	return err
}

// expire ends the waits that are over.
func (s *stream) expire(now time.Time) {
	for len(s.waits) > 0 && !s.waits[0].until.After(now) {
		w := s.waits[0]
		s.waits = s.waits[1:]
		s.client.expire(s.life, w.sub, w.resources)
	}
}

// handle passes a response to its handler and has it replied to.
func (s *stream) handle(in *answer) error {
	c := s.client
	log := c.cfg.Log.With("address", s.server, "type_url", in.typeURL, "nonce", in.nonce)
	a := s.exchanges[in.typeURL]
	if a == nil { // to answer it would be to ask for the type
		if !s.unasked {
			log.Warn("response of a type that was not asked for ignored, and further ones of this stream")
		}
		s.unasked = true
		return nil
	}
	if in.delta && c.cfg.Mode == Auto && slices.ContainsFunc(in.resources, func(r Resource) bool { return r.Version == "" }) {
		return errUnversioned
	}
	if err := s.accept(); err != nil {
		return err
	}
	a.nonce, a.answered = in.nonce, true
	sub, handler, covers := c.current(in.typeURL, a)
	var r *Response
	if sub != nil {
		r = s.response(a, in, covers)
	}
	if r == nil { // all of it was dropped in the meantime, but the server waits for a reply
		c.pass(sub, in)
		a.reply(nil)
		s.mark(in.typeURL)
		return nil
	}
	first := r.Complete && !a.begun
	a.begun = in.more
	a.fresh = a.fresh && in.more

	rejected := handler(s.life, r)
	if err := s.life.Err(); err != nil && rejectionOf(rejected).whole {
		return err // the handler gave up
	}
	if refused := (*RefusedError)(nil); errors.As(rejected, &refused) {
		return refused.Err
	}
	// It was handled, even if the stream or Run has ended in the meantime: the next one has to tell the server of it.
	if rejected != nil {
		log.Warn("response rejected", "version", in.version, "err", rejected)
	} else if !in.delta {
		a.version = in.version
	}
	c.note(s.life, sub, r, first, rejected)
	a.reply(rejected)
	s.mark(in.typeURL)
	s.markDue()
	return nil
}

// accept looks at a stream when it is answered for the first time.
func (s *stream) accept() error {
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

// response returns the Response for the handler, without names that were dropped since the request; nil if nothing
// is left of it.
func (s *stream) response(a *exchange, in *answer, covers func(name string) bool) *Response {
	r := &Response{
		TypeURL: in.typeURL, Version: in.version, Resources: in.resources, Removed: in.removed, Delta: in.delta,
		Complete: a.fresh, More: in.more, Server: s.server, ControlPlane: in.controlPlane,
	}
	if !in.delta {
		r.Complete = !partialTypes[in.typeURL]
		return r
	}
	r.Resources = slices.DeleteFunc(r.Resources, func(res Resource) bool {
		return !covers(res.Name) && !slices.ContainsFunc(res.Aliases, covers)
	})
	r.Removed = slices.DeleteFunc(slices.Clone(r.Removed), func(name string) bool { return !covers(name) })
	if before := len(in.resources) + len(in.removed); before > 0 && len(r.Resources)+len(r.Removed) == 0 && !r.Complete {
		return nil
	}
	return r
}

// current returns the subscription that a response is for, its handler, which is about to be called, and which resources
// it is to have; nil if the type was dropped.
func (c *Client) current(typeURL string, a *exchange) (*subscription, Handler, func(name string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sub := c.find(typeURL)
	if sub == nil || sub != a.sub {
		return nil, nil, nil
	}
	sub.handled = sub.wants
	return sub, sub.handler, sub.wants.covers()
}

// pass notes an answer that the handler does not get.
func (c *Client) pass(sub *subscription, in *answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sub != nil && !in.more {
		sub.synced = true
	}
}

// namesOf returns the names of a response's resources. The caller's NameOf is not called under a lock, and not for nothing.
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

// note takes note of a response that was handled, and tells everybody what follows from it. first says that it begins a
// complete set.
func (c *Client) note(ctx context.Context, sub *subscription, r *Response, first bool, err error) {
	rejected := rejectionOf(err)
	names := c.namesOf(sub, r)
	c.mu.Lock()
	if c.find(sub.typeURL) != sub { // its own handler may have dropped it
		c.mu.Unlock()
		return
	}
	sub.record(r, first, rejected)
	done, healed := false, 0
	if r.Delta && r.Complete {
		done, healed = sub.verify(r, rejected)
	}
	gone, absent := sub.resources.note(r, first, names, rejected), sub.absent
	if !r.More {
		sub.synced = true
	}
	if follower := c.follower(r.TypeURL); follower != nil {
		sub.refers.note(r, first, names, rejected)
		follower.want(sub.refers.wants())
	} else {
		sub.refers = references{} // outdated by now
	}
	c.mu.Unlock()

	if absent != nil && len(gone) > 0 {
		absent(ctx, gone)
	}
	if hook := c.cfg.Hooks.Compared; done && hook != nil {
		hook(r.TypeURL, healed)
	}
	if hook := c.cfg.Hooks.Response; hook != nil {
		hook(r, err)
	}
}

// expire notes that those of names that still have no answer do not exist.
func (c *Client) expire(ctx context.Context, sub *subscription, list []*named) {
	c.mu.Lock()
	var gone []string
	if c.find(sub.typeURL) == sub {
		gone = sub.resources.expire(list)
	}
	absent := sub.absent
	c.mu.Unlock()
	if absent != nil && len(gone) > 0 {
		absent(ctx, gone)
	}
}
