package adsc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// settled is how long a stream must stand to count as connected if the server says nothing.
const settled = time.Second

// stream is one stream to one server. Three goroutines work on it: the one of Client.Run owns all that is here, and one
// each reads and writes, so that neither ever waits for the other: a server that reads nothing more before it has written
// all must not meet a client that does the same.
type stream struct {
	client   *Client
	life     context.Context // of Client.Run, which outlives the stream; handlers get it
	server   string
	requests chan *request // to the writer
	answers  chan *answer  // from the reader; unbuffered, so that a slow handler holds the reader back

	asked     map[string]*asked // by type
	connected bool
	answered  bool
	delta     bool
}

// asked is what a stream knows of a type that it asked for.
type asked struct {
	names []string
	nonce string // of the last response
	// fresh says that the client brought nothing along, and that everything is still to come.
	fresh, begun bool
}

// The reasons of our own to end a stream.
var (
	errUnversioned = errors.New("the server's delta has no versions of resources") // in Auto
	errReconnect   = errors.New("reconnecting")
)

func newStream(life context.Context, c *Client, server string) *stream {
	return &stream{
		client: c, life: life, server: server, asked: make(map[string]*asked),
		requests: make(chan *request, 64), answers: make(chan *answer),
	}
}

// wantsFallback reports whether the stream, having ended with err, should be tried in the other variant.
func (s *stream) wantsFallback(err error) bool {
	return errors.Is(err, errUnversioned) || !s.answered && codeOf(err) == codes.Unimplemented
}

// run asks for every subscription and works on the answers until the stream ends. The error is never nil.
func (s *stream) run(conn *grpc.ClientConn, open opener) error {
	ctx, cancel := context.WithCancelCause(s.life)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer cancel(nil) // ends the stream, whichever way we leave
	w, err := open(ctx, discoveryv3.NewAggregatedDiscoveryServiceClient(conn))
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	_, s.delta = w.(deltaWire)
	workers.Go(func() { s.read(ctx, w, cancel) })
	workers.Go(func() { s.write(ctx, w, cancel) })
	return s.work(ctx)
}

// read passes on what the server sends until the stream ends, and then ends ctx with the reason.
func (s *stream) read(ctx context.Context, w wire, end context.CancelCauseFunc) {
	for {
		a, err := w.recv()
		if err != nil {
			end(streamError(err))
			return
		}
		select {
		case s.answers <- a:
		case <-ctx.Done():
			return
		}
	}
}

// write sends requests until the stream ends.
func (s *stream) write(ctx context.Context, w wire, end context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-s.requests:
			err := w.send(r)
			if errors.Is(err, io.EOF) {
				return // the reader gets to know why
			}
			if err != nil {
				end(fmt.Errorf("request %s: %w", r.typeURL, err))
				return
			}
		}
	}
}

// work is the loop of the stream.
func (s *stream) work(ctx context.Context) error {
	if err := s.ask(ctx); err != nil {
		return err
	}
	if opened := s.client.cfg.Hooks.Opened; opened != nil {
		opened(s.server)
	}
	stands := time.NewTimer(settled)
	defer stands.Stop()
	var late <-chan time.Time
	if wait := s.client.cfg.AnswerTimeout; len(s.client.cfg.Addresses) > 1 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case a := <-s.answers:
			late = nil
			if err := s.handle(ctx, a); err != nil {
				return err
			}
		case <-s.client.wake:
			if err := s.ask(ctx); err != nil {
				return err
			}
		case <-s.client.again:
			return errReconnect
		case <-stands.C:
			s.established()
		case <-late:
			if !s.resumes() {
				return fmt.Errorf("no answer within %s", s.client.cfg.AnswerTimeout)
			}
			late = nil
		}
	}
}

// resumes reports whether there was an answer to each type on an earlier stream: that there is none on this one may then
// mean that nothing has changed.
func (s *stream) resumes() bool {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	return !slices.ContainsFunc(s.client.subs, func(sub *subscription) bool { return !sub.synced })
}

func (s *stream) established() {
	if hook := s.client.cfg.Hooks.Connected; !s.connected && hook != nil {
		hook(s.server)
	}
	s.connected = true
}

// ask brings what the server was asked for in line with the subscriptions.
func (s *stream) ask(ctx context.Context) error {
	c := s.client
	c.mu.Lock()
	var requests []*request
	for _, sub := range c.subs {
		if r := s.update(sub); r != nil {
			requests = append(requests, r)
		}
	}
	c.mu.Unlock()
	for _, r := range requests {
		if err := s.send(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// update returns the request by which the server gets to know what is wanted of a type, or nil if it knows. The caller
// holds the client's mu.
func (s *stream) update(sub *subscription) *request {
	a := s.asked[sub.typeURL]
	r := &request{typeURL: sub.typeURL, names: sub.names, version: sub.version}
	switch {
	case a == nil && sub.follow && len(sub.names) == 0:
		return nil // to ask for no names would be to ask for all
	case a == nil:
		a = &asked{}
		if s.delta {
			r.versions = sub.resume(sub.names)
		}
		a.fresh = len(r.versions) == 0
		r.subscribe = sub.names
		if len(s.asked) == 0 {
			r.node = s.client.cfg.NodeOf()
		}
		s.asked[sub.typeURL] = a
	case slices.Equal(a.names, sub.names):
		return nil
	default:
		r.nonce = a.nonce
		if s.delta {
			r.nonce = ""
		}
		r.subscribe, r.unsubscribe = without(sub.names, a.names), without(a.names, sub.names)
		if len(a.names) == 0 && !sub.follow {
			r.unsubscribe = []string{"*"}
		}
		if len(sub.names) == 0 && !sub.follow {
			r.subscribe = []string{"*"}
		}
	}
	a.names = sub.names
	return r
}

// without returns the names of a sorted list that another does not have.
func without(names, others []string) []string {
	var left []string
	for _, name := range names {
		if _, found := slices.BinarySearch(others, name); !found {
			left = append(left, name)
		}
	}
	return left
}

// send hands a request to the writer.
func (s *stream) send(ctx context.Context, r *request) error {
	select {
	case s.requests <- r:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handle passes a response to its handler and answers it.
func (s *stream) handle(ctx context.Context, in *answer) error {
	c := s.client
	log := c.cfg.Log.With("address", s.server, "type_url", in.typeURL, "nonce", in.nonce)
	a := s.asked[in.typeURL]
	if a == nil { // to answer it would be to ask for the type
		log.Warn("response of a type that was not asked for ignored")
		return nil
	}
	unversioned := func(r Resource) bool { return r.Version == "" }
	if in.delta && c.cfg.Mode == Auto && slices.ContainsFunc(in.resources, unversioned) {
		return errUnversioned
	}
	s.answered = true
	s.established()
	r := &Response{
		TypeURL: in.typeURL, Version: in.version, Resources: in.resources, Removed: in.removed, Delta: in.delta,
		Complete: a.fresh, More: in.more, Server: s.server, ControlPlane: in.controlPlane,
	}
	if !in.delta {
		r.Complete = !partialTypes[in.typeURL]
	}
	first := r.Complete && !a.begun
	a.nonce, a.begun = in.nonce, in.more
	a.fresh = a.fresh && in.more

	sub, handler := c.handlerOf(in.typeURL)
	rejected := handler(s.life, r)
	if err := s.life.Err(); err != nil {
		return err
	}
	// It was handled, even if the stream has ended in the meantime: the next one has to tell the server of it.
	if rejected != nil {
		log.Warn("response rejected", "version", in.version, "err", rejected)
	}
	sub.take(r, rejected)
	if c.cache != nil {
		c.cache.store(r, first, len(sub.versions))
	}
	c.note(sub, r, first)
	if hook := c.cfg.Hooks.Response; hook != nil {
		hook(r, rejected)
	}

	answer := &request{typeURL: in.typeURL, nonce: in.nonce, rejected: rejected, names: a.names, version: sub.version}
	if err := s.send(ctx, answer); err != nil {
		return err
	}
	return s.ask(ctx)
}

// handlerOf returns a subscription and its handler as it is now.
func (c *Client) handlerOf(typeURL string) (*subscription, Handler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sub := c.find(typeURL)
	return sub, sub.handler
}

// note takes what follows from a response that was handled: that its type is synced, and what it refers to.
func (c *Client) note(sub *subscription, r *Response, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.More && !r.Cached {
		sub.synced = true
	}
	child, refers := childrenOf(r.TypeURL)
	if follower := c.find(child); follower != nil && follower.follow {
		follower.names = sub.refer(r, first, refers)
	}
}
