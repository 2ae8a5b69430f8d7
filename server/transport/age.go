package transport

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A connection ends in three steps. gRPC sends GOAWAY, upon which the client opens new streams elsewhere. At ConnectionAge, give or take a
// tenth, the streams of xDS end. What is left after ageGrace ends with the connection. gRPC's own grace would end connections of this
// machine, too; these get the GOAWAY alone.

// goAwayAfter is for gRPC, which adds or takes away a tenth, and is done with that when the first streams may end.
func (l *Limits) goAwayAfter() time.Duration {
	if l.ConnectionAge < 0 {
		return orForever(l.ConnectionAge)
	}
	return l.ConnectionAge / 11 * 9
}

const ageGrace = 10 * time.Second

var errAged = status.Error(codes.Unavailable, "the connection was open for limits.connectionAge: connect again")

// startAging returns the timer that ends a connection; nil if the connection may stay.
func (c *limitedConn) startAging() *time.Timer {
	age := c.limiter.limits.ConnectionAge
	if age < 0 || isLocal(c.addr) {
		return nil
	}
	return time.AfterFunc(time.Duration(float64(age)*(0.9+0.2*rand.Float64())), c.old) //nolint:gosec // it spreads clients
}

func isLocal(addr net.Addr) bool {
	ap, err := netip.ParseAddrPort(addr.String())
	return addr.Network() == "unix" || err == nil && ap.Addr().Unmap().IsLoopback()
}

// old ends the streams of the engine, and then the connection.
func (c *limitedConn) old() {
	c.retire()
	select {
	case <-c.ctx.Done():
	case <-time.After(ageGrace):
		_ = c.Close()
	}
}
