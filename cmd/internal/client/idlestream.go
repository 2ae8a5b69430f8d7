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

// idleType is a kind that rarely changes, so that a stream of it is idle.
const idleType = "networking.istio.io/v1beta1/ProxyConfig"

// Errors of Stay.
var (
	// ErrPings: the server or a proxy rejects a ping every 30 s as an attack.
	ErrPings = errors.New("keepalive pings are refused")
	// ErrSilent: a ping has no answer, as if the connection were lost.
	ErrSilent = errors.New("a keepalive ping was not answered")
	// ErrEnded: a stream ended after its answer.
	ErrEnded = errors.New("an idle stream was ended")
)

// Stay opens a stream of idleType with istiod's pings every 30 s, and keeps it open for hold. It calls answered after
// the server's answer, and returns the time from then to the end of the stream, which is at most hold. The error
// reports an earlier end, or a missing answer.
func (x *XDS) Stay(ctx context.Context, hold time.Duration, answered func()) (duration time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	deadline := time.AfterFunc(x.Timeout, func() {
		cancel(fmt.Errorf("%s did not answer within %s; a server answers after it has read its sources", x.Server, x.Timeout))
	})
	defer func() { deadline.Stop() }()

	var answeredAt time.Time // owned by the goroutine of Run
	settings := x.objectConfig(adsc.Subscription{TypeURL: idleType, Handler: func(context.Context, *adsc.Response) error {
		if answeredAt.IsZero() && deadline.Stop() {
			answeredAt = time.Now()
			answered() // while the stream is open, even for a short hold
			deadline = time.AfterFunc(hold, func() { cancel(errAnswered) })
		}
		return nil
	}})
	settings.Backoff = func() backoff.BackOff { return &backoff.StopBackOff{} }
	client, err := adsc.New(settings)
	if err != nil {
		return 0, err
	}
	err = client.Run(ctx)
	switch {
	case errors.Is(context.Cause(ctx), errAnswered):
		return hold, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case answeredAt.IsZero():
		return 0, x.explainError(err)
	}
	duration = time.Since(answeredAt)
	switch {
	case strings.Contains(err.Error(), "too_many_pings"):
		return duration, ErrPings
	case strings.Contains(err.Error(), "failed to receive ACK"):
		return duration, ErrSilent
	}
	return duration, fmt.Errorf("%w: %s", ErrEnded, words.Plain(status.Convert(err).Message()))
}
