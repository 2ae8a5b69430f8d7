package adsc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/status"

	"tributary/internal/intake"
	"tributary/internal/worker"
)

// stream is one stream to one server. The goroutine of Client.Run owns its fields. Two more goroutines read and write,
// so that reading never waits for writing: some servers do not read while they write.
type stream struct {
	client   *Client
	life     context.Context // of Client.Run, which outlives the stream; handlers get it
	server   string
	wire     wire
	answers  chan *answer  // from the reader; unbuffered, so that a slow handler holds the reader back
	requests chan *request // to the writer; it never blocks if the writer is idle
	wrote    chan struct{} // from the writer, which is idle then
	idle     bool

	node           *corev3.Node // for the first request; nil once that is written
	exchanges      map[string]*exchange
	due            []string  // types that may need a request, each once
	opened         time.Time // zero before
	isEstablished  bool      // Connected was called
	answered       bool
	gotUnrequested bool // a response of a type without a request came
}

// The reasons of our own to end a stream.
var (
	errUnversioned = errors.New("the server's delta has no versions of resources") // in Auto
	errReconnect   = errors.New("reconnecting")
	errSilent      = errors.New("no answer")
)

func newStream(life context.Context, c *Client, server string, node *corev3.Node) *stream {
	return &stream{
		client: c, life: life, server: server, node: node, exchanges: make(map[string]*exchange), idle: true,
		answers: make(chan *answer), requests: make(chan *request, 1), wrote: make(chan struct{}, 1),
	}
}

// wantsFallback reports whether the stream, having ended with err, should be tried in the other variant.
func (s *stream) wantsFallback(err error) bool {
	return errors.Is(err, errUnversioned) || !s.answered && status.Code(err) == codes.Unimplemented
}

// lasted reports whether the stream, which ended with err, was open long enough to count as a success, even without any
// response.
func (s *stream) lasted(err error) bool {
	return !s.opened.IsZero() && time.Since(s.opened) >= s.client.cfg.StableAfter && !errors.Is(err, errSilent)
}

// run requests every subscription and handles the answers until the stream ends. The error is never nil.
func (s *stream) run(conn *grpc.ClientConn, delta bool) error {
	workers, ctx := worker.New(s.life)
	defer workers.Stop() // ends the stream in any case
	codec := intake.NewCodec(ctx, encoding.GetCodecV2(grpcproto.Name), s.client.cfg.MaxMessage, decodedBytes)
	wire, err := openWire(ctx, conn, codec, delta)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	s.wire, s.opened = wire, time.Now()
	workers.Go(func() { s.read(ctx, wire, workers.Fail) })
	workers.Go(func() { s.write(ctx, wire, workers.Fail) })
	return s.loop(ctx)
}

// read passes on the server's answers until the stream ends, and then ends ctx with the reason.
func (s *stream) read(ctx context.Context, w wire, end func(error)) {
	for {
		answer, err := w.recv()
		if err != nil {
			end(reasoned(err))
			return
		}
		select {
		case s.answers <- answer:
		case <-ctx.Done():
			answer.lease.Release()
			return
		}
	}
}

// write sends requests until the stream ends.
func (s *stream) write(ctx context.Context, wire wire, end func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case request := <-s.requests:
			err := wire.send(request)
			if errors.Is(err, io.EOF) {
				return // the reader gets the reason
			}
			if err != nil {
				end(fmt.Errorf("request %s: %w", request.typeURL, err))
				return
			}
			s.wrote <- struct{}{}
		}
	}
}

// loop sends requests and handles answers until the stream ends.
func (s *stream) loop(ctx context.Context) error {
	stable := time.NewTimer(s.client.cfg.StableAfter)
	defer stable.Stop()
	var late <-chan time.Time
	if len(s.client.cfg.Addresses) > 1 {
		timer := time.NewTimer(s.client.cfg.AnswerTimeout)
		defer timer.Stop()
		late = timer.C
	}
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	s.markDue()
	for {
		if err := s.sendNext(); err != nil {
			return err
		}
		s.setAlarm(alarm)
		if s.answered {
			late = nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.wrote:
			s.idle = true
		case a := <-s.answers:
			if err := s.handle(a); err != nil {
				return err
			}
		case <-s.client.wakeup:
			s.markDue()
		case <-s.client.reconnect:
			return errReconnect
		case <-stable.C:
			s.established()
		case <-late:
			if !s.resumes() {
				return fmt.Errorf("%w within %s", errSilent, s.client.cfg.AnswerTimeout)
			}
			late = nil
		case now := <-alarm.C:
			if s.client.startComparison(now) {
				return errReconnect
			}
		}
	}
}

// sendNext passes the next request to the writer if that is idle.
func (s *stream) sendNext() error {
	if !s.idle {
		return nil
	}
	request, err := s.next()
	if err != nil {
		return err
	}
	if request != nil {
		s.idle = false
		s.requests <- request
	}
	return nil
}

// setAlarm sets the alarm to the next comparison.
func (s *stream) setAlarm(alarm *time.Timer) {
	s.client.mu.Lock()
	next := s.client.nextComparison()
	s.client.mu.Unlock()
	if next.IsZero() {
		alarm.Stop()
		return
	}
	alarm.Reset(max(0, time.Until(next)))
}

// resumes reports whether an earlier stream had an answer for each type. Then silence on this one may mean that no
// resource has changed.
func (s *stream) resumes() bool {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	return !slices.ContainsFunc(s.client.subs, func(sub *subscription) bool { return !sub.synced })
}

func (s *stream) established() {
	if hook := s.client.cfg.Hooks.Connected; !s.isEstablished && hook != nil {
		hook(s.server)
	}
	s.isEstablished = true
}
