package transport

import (
	"errors"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// arriving is a listener of connections from these hosts.
type arriving struct {
	net.Listener

	hosts  []string
	closed *int
}

func (a *arriving) Accept() (net.Conn, error) {
	if len(a.hosts) == 0 {
		return nil, errNoMore
	}
	host := a.hosts[0]
	a.hosts = a.hosts[1:]
	if host == "" {
		return nil, errors.New("accept4: too many open files")
	}
	return &arrived{host: host, closed: a.closed}, nil
}

func (a *arriving) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 16010} }

var errNoMore = net.ErrClosed

type arrived struct {
	net.Conn

	host   string
	closed *int
}

func (a *arrived) Close() error { *a.closed++; return nil }

func (a *arrived) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(a.host), Port: 1} }

func TestConnectionLimit_PerHostAndTotal(t *testing.T) {
	buffer, closed := new(testutil.Buffer), 0
	r := NewConnectionLimit(3, 2, buffer.Logger(), prometheus.NewRegistry())
	lis := r.Listener(&arriving{hosts: []string{"10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.1"}, closed: &closed})
	var open []net.Conn
	for range 3 {
		conn, err := lis.Accept()
		require.NoError(t, err)
		open = append(open, conn)
	}
	require.Equal(t, "10.0.0.2", open[2].(*countedConn).Conn.(*arrived).host, "one host has its share")
	require.Equal(t, 1, closed, "a connection above the limit is closed")
	require.NoError(t, open[0].Close())
	require.NoError(t, open[0].Close(), "closing twice gives back one place")
	require.Equal(t, 2, r.open)
	conn, err := lis.Accept()
	require.NoError(t, err)
	require.Equal(t, "10.0.0.3", conn.(*countedConn).Conn.(*arrived).host)
	_, err = lis.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.InDelta(t, 1, promtest.ToFloat64(r.refusals.WithLabelValues(refusedConnections)), 0)
	require.InDelta(t, 1, promtest.ToFloat64(r.refusals.WithLabelValues(refusedPerPeer)), 0)
	require.Contains(t, buffer.String(), `peer=10.0.0.1 limit=connections_per_peer`)
	require.InDelta(t, 0, promtest.ToFloat64(r.errors), 0)
}

func TestAcceptErrors_Counted(t *testing.T) {
	buffer, closed := new(testutil.Buffer), 0
	r := NewConnectionLimit(-1, -1, buffer.Logger(), nil)
	_, err := r.Listener(&arriving{hosts: []string{""}, closed: &closed}).Accept()
	require.ErrorContains(t, err, "too many open files")
	require.InDelta(t, 1, promtest.ToFloat64(r.errors), 0)
	require.Contains(t, buffer.String(), "too many open files")
}
