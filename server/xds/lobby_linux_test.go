package xds

import (
	"errors"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// strangers connect and say nothing.
func (w *world) strangers(n int) (all []net.Conn) {
	for range n {
		conn, err := (&net.Dialer{}).DialContext(w.t.Context(), "tcp", w.addr)
		require.NoError(w.t, err)
		w.t.Cleanup(func() { _ = conn.Close() })
		all = append(all, conn)
	}
	return all
}

// guests is how many have said nothing yet.
func (w *world) guests() int {
	l := w.lobby.(*lobby) //nolint:forcetypeassert // it is
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Len(w.t, l.byNumber, l.waiting.Len())
	return l.waiting.Len()
}

// TestWhoSaysNothingCostsNoGoroutine, and others are served beside thousands of them; who hangs up leaves nothing behind.
func TestWhoSaysNothingCostsNoGoroutine(t *testing.T) {
	w := newWorld(t, Options{})
	w.set(testType, "a")
	before := runtime.NumGoroutine()
	all := w.strangers(500)
	c := w.delta(testType)
	c.ask(testType)
	c.expect(testType, "a@1")
	eventually(t, func() bool { return w.guests() == 500 })
	require.Less(t, runtime.NumGoroutine(), before+100)
	for _, conn := range all {
		require.NoError(t, conn.Close())
	}
	eventually(t, func() bool { return w.guests() == 0 })
}

// TestWhoSaysNothingIsSentAwayInTime, one after the other, and who came last has his time, too.
func TestWhoSaysNothingIsSentAwayInTime(t *testing.T) {
	w := newWorld(t, Options{Limits: Limits{HandshakeTimeout: 100 * time.Millisecond}})
	for range 3 {
		for _, conn := range w.strangers(20) {
			_, err := conn.Read(make([]byte, 1))
			require.Error(t, err)
		}
	}
	w.refusedFor(refusedHandshake, 60)
}

// full is a listener that cannot accept for a while, as without files.
type full struct {
	net.Listener
	fails chan error
}

func (f full) Accept() (net.Conn, error) {
	select {
	case err := <-f.fails:
		return nil, err
	default:
		return f.Listener.Accept()
	}
}

// TestWhatKeepsFromAcceptingIsNotTheEnd: who is in is served, and so are others when it is over; any other error ends it.
func TestWhatKeepsFromAcceptingIsNotTheEnd(t *testing.T) {
	w := newWorld(t, Options{})
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := full{lis, make(chan error, 3)}
	for range 3 {
		f.fails <- &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	l := w.server.Lobby(f)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", lis.Addr().String())
	require.NoError(t, err)
	_, err = conn.Write([]byte("x"))
	require.NoError(t, err)
	in, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, in.Close())
	require.NoError(t, conn.Close())
	f.fails <- errors.New("broken")
	conn, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", lis.Addr().String()) // wakes who accepts
	require.NoError(t, err)
	_, err = l.Accept()
	require.EqualError(t, err, "broken")
	require.NoError(t, l.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.NoError(t, conn.Close())
}

// TestALobbyThatIsClosedBeforeItBeginsLeavesNothingBehind: who serves may come to accept only after it was closed.
func TestALobbyThatIsClosedBeforeItBeginsLeavesNothingBehind(t *testing.T) {
	w := newWorld(t, Options{})
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := w.server.Lobby(lis)
	require.NoError(t, l.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.Nil(t, l.(*lobby).poll) //nolint:forcetypeassert // it is
}
