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
	client     *Client
	runContext context.Context // of Client.Run, which outlives the stream; for handlers
	server     string
	wire       wire
	// responses come from the reader. The channel has no buffer, so that a slow handler holds the reader back.
	responses    chan *serverResponse
	requests     chan *request // to the writer; a send to an idle writer never blocks
	written      chan struct{} // from the writer, which is idle then
	writerIdle   bool
	node         *corev3.Node // for the first request, then nil
	exchanges    map[string]*exchange
	pending      []string  // the types that may need a request, each once
	openedAt     time.Time // zero before
	hasResponse  bool      // the server sent a response of a requested type, with an accepted header
	hasConnected bool      // Hooks.Connected was called

	loggedUnrequested bool // the log has a warning of responses without a request
}

// The reasons of the client to end a stream.
var (
	errUnversioned = errors.New("the server's delta has no versions of resources") // in Auto
	errReconnect   = errors.New("reconnecting")
	errSilent      = errors.New("no answer")
)

func newStream(runContext context.Context, c *Client, server string, node *corev3.Node) *stream {
	return &stream{
		client: c, runContext: runContext, server: server, node: node, exchanges: make(map[string]*exchange),
		writerIdle: true, responses: make(chan *serverResponse), requests: make(chan *request, 1),
		written: make(chan struct{}, 1),
	}
}

// wantsFallback reports whether the stream, having ended with err, should be tried again as state of the world.
func (s *stream) wantsFallback(err error) bool {
	return errors.Is(err, errUnversioned) || !s.hasResponse && status.Code(err) == codes.Unimplemented
}

// lasted reports whether the stream, which ended with err, was open long enough to count as a success, even without any
// response.
func (s *stream) lasted(err error) bool {
	return !s.openedAt.IsZero() && time.Since(s.openedAt) >= s.client.cfg.StableAfter && !errors.Is(err, errSilent)
}

// run opens the stream in a variant of the protocol, Delta or SotW, requests every subscription and handles the
// responses until the stream ends. The error is never nil.
func (s *stream) run(conn *grpc.ClientConn, variant Mode) error {
	workers, ctx := worker.New(s.runContext)
	defer workers.Stop() // ends the stream in any case
	codec := intake.NewCodec(ctx, encoding.GetCodecV2(grpcproto.Name), s.client.cfg.MaxMessage, decodedBytes)
	wire, err := openWire(ctx, conn, codec, variant == Delta)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	s.wire = wire
	s.openedAt = time.Now()
	workers.Go(func() { s.read(ctx, wire, workers.Fail) })
	workers.Go(func() { s.write(ctx, wire, workers.Fail) })
	return s.loop(ctx)
}

// read passes on the server's responses until the stream ends. It calls end with the reason, unless ctx ended first.
func (s *stream) read(ctx context.Context, wire wire, end func(error)) {
	for {
		response, err := wire.recv()
		if err != nil {
			end(explainEnd(err))
			return
		}
		select {
		case s.responses <- response:
		case <-ctx.Done():
			response.lease.Release()
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
			s.written <- struct{}{}
		}
	}
}

// loop sends requests and handles responses until the stream ends.
func (s *stream) loop(ctx context.Context) error {
	stableTimer := time.NewTimer(s.client.cfg.StableAfter)
	defer stableTimer.Stop()
	var answerTimeout <-chan time.Time
	if len(s.client.cfg.Addresses) > 1 {
		timer := time.NewTimer(s.client.cfg.AnswerTimeout)
		defer timer.Stop()
		answerTimeout = timer.C
	}
	comparisonTimer := time.NewTimer(0)
	defer comparisonTimer.Stop()
	s.enqueueChanged()
	for {
		if err := s.sendNext(); err != nil {
			return err
		}
		s.setComparisonTimer(comparisonTimer)
		if s.hasResponse {
			answerTimeout = nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.written:
			s.writerIdle = true
		case response := <-s.responses:
			if err := s.handle(response); err != nil {
				return err
			}
		case <-s.client.changed:
			s.enqueueChanged()
		case <-s.client.reconnect:
			return errReconnect
		case <-stableTimer.C:
			s.reportConnected()
		case <-answerTimeout:
			if !s.wasSynced() {
				return fmt.Errorf("%w within %s", errSilent, s.client.cfg.AnswerTimeout)
			}
			answerTimeout = nil
		case now := <-comparisonTimer.C:
			if s.client.startComparison(now) {
				return errReconnect
			}
		}
	}
}

// sendNext passes the next request to the writer if that is idle.
func (s *stream) sendNext() error {
	if !s.writerIdle {
		return nil
	}
	request, err := s.nextRequest()
	if err != nil {
		return err
	}
	if request != nil {
		s.writerIdle = false
		s.requests <- request
	}
	return nil
}

// setComparisonTimer sets the timer to the next comparison.
func (s *stream) setComparisonTimer(comparisonTimer *time.Timer) {
	s.client.mu.Lock()
	next := s.client.nextComparison()
	s.client.mu.Unlock()
	if next.IsZero() {
		comparisonTimer.Stop()
		return
	}
	comparisonTimer.Reset(max(0, time.Until(next)))
}

// wasSynced reports whether an earlier stream had all resources of each type. Then silence on this one may mean that no
// resource has changed.
func (s *stream) wasSynced() bool {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	return !slices.ContainsFunc(s.client.subscriptions, func(sub *subscription) bool { return !sub.synced })
}

// reportConnected calls Hooks.Connected once.
func (s *stream) reportConnected() {
	if hook := s.client.cfg.Hooks.Connected; !s.hasConnected && hook != nil {
		hook(s.server)
	}
	s.hasConnected = true
}
