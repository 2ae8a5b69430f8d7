package zookeeper

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// deadlined is a connection that remembers how long the last read may take.
type deadlined struct {
	net.Conn

	left time.Duration // 0 for any time
}

func (d *deadlined) SetReadDeadline(t time.Time) error {
	d.left = 0
	if !t.IsZero() {
		d.left = time.Until(t)
	}
	return nil
}

// TestServersMayGrantLongerSessions has a server that does not grant a session as short as the one that was asked for. It is pinged as often as the one
// that it grants needs, and has nothing to say meanwhile: only its first answer is waited for as long as ours would take.
func TestServersMayGrantLongerSessions(t *testing.T) {
	below := &deadlined{}
	c := &impatient{Conn: below, patience: time.Minute}
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Hour)))
	require.InDelta(t, time.Minute, below.left, float64(time.Second), "the first answer")
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	require.NoError(t, c.SetReadDeadline(time.Now().Add(2*time.Hour)))
	require.InDelta(t, 2*time.Hour, below.left, float64(time.Second), "what the library says of the session that was granted")
}
