package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"google.golang.org/grpc/status"

	"tributary/adsc"
	"tributary/internal/words"
)

// quiet is a kind that hardly ever changes, so that a stream which asks for nothing else is idle.
const quiet = "networking.istio.io/v1beta1/ProxyConfig"

// Errors of Stay.
var (
	// ErrPings: whoever answers takes a ping every 30 s for an attack.
	ErrPings = errors.New("keepalive pings are refused")
	// ErrSilent: a ping was not answered, as if there were no connection any more.
	ErrSilent = errors.New("a keepalive ping was not answered")
	// ErrEnded: a stream that was answered has ended.
	ErrEnded = errors.New("an idle stream was ended")
)

// Stay opens a stream as an istiod does, which pings every 30 s, asks for a kind that hardly ever changes, and holds it for as long as
// hold. It calls answered once the server has, and returns how long the stream stood after that, which is up to hold. The error says that
// it ended before, or that there was no answer.
func (c *XDS) Stay(ctx context.Context, hold time.Duration, answered func()) (stood time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := time.AfterFunc(c.Timeout, func() {
		cancel(fmt.Errorf("%s did not answer within %s; a server that has not yet read its sources does not", c.Server, c.Timeout))
	})
	defer func() { over.Stop() }()

	var since time.Time // of the goroutine of Run
	cfg := c.objects(adsc.Subscription{TypeURL: quiet, Handler: func(context.Context, *adsc.Response) error {
		if since.IsZero() && over.Stop() {
			since = time.Now()
			over = time.AfterFunc(hold, func() { cancel(errAnswered) })
			answered()
		}
		return nil
	}})
	cfg.Backoff = func() backoff.BackOff { return &backoff.StopBackOff{} }
	client, err := adsc.New(cfg)
	if err != nil {
		return 0, err
	}
	err = client.Run(ctx)
	switch {
	case errors.Is(context.Cause(ctx), errAnswered):
		return hold, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case since.IsZero():
		return 0, c.explain(err)
	}
	stood = time.Since(since)
	switch {
	case strings.Contains(err.Error(), "too_many_pings"):
		return stood, ErrPings
	case strings.Contains(err.Error(), "failed to receive ACK"):
		return stood, ErrSilent
	}
	return stood, fmt.Errorf("%w: %s", ErrEnded, words.Plain(status.Convert(err).Message()))
}
