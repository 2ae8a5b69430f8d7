package xds

import (
	"container/list"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// lobby has connections wait until something comes on them. All are watched by one goroutine, with an epoll of its own.
type lobby struct {
	net.Listener
	server *Server
	within time.Duration // how long they may wait

	open  sync.Once
	said  chan net.Conn
	fails chan error
	done  chan struct{}
	close func() error

	mu       sync.Mutex
	poll     *os.File        // the epoll; nil if there is none
	control  syscall.RawConn // of poll
	waiting  *list.List      // of *guest, in order of arrival
	byNumber map[int32]*list.Element
}

// How long it takes until it is tried again to accept connections, as in gRPC.
const acceptSoon, acceptLate = 5 * time.Millisecond, time.Second

// guest is who waits.
type guest struct {
	conn   net.Conn
	raw    syscall.RawConn
	number int32 // of its file
	until  time.Time
}

func newLobby(lis net.Listener, s *Server) net.Listener {
	l := &lobby{
		Listener: lis, server: s, within: min(orForever(s.opts.Limits.HandshakeTimeout), time.Hour),
		said: make(chan net.Conn), fails: make(chan error), done: make(chan struct{}), waiting: list.New(), byNumber: make(map[int32]*list.Element),
	}
	l.close = sync.OnceValue(l.end)
	return l
}

// Accept implements net.Listener.
func (l *lobby) Accept() (net.Conn, error) {
	l.open.Do(l.begin)
	select {
	case conn := <-l.said:
		return conn, nil
	case err := <-l.fails:
		return nil, err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Who waits is sent away.
func (l *lobby) Close() error { return l.close() }

func (l *lobby) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
		return // it was closed before it began
	default:
	}
	if err := l.openPoll(); err != nil { // for want of files, say: the handshake waits instead
		l.server.log.Warn("who says nothing costs a goroutine", "listener", l.Addr().String(), "err", err)
	} else {
		go l.watch()
	}
	go l.receive()
}

// openPoll makes an epoll that the runtime waits for, as for a connection; l.mu is held.
func (l *lobby) openPoll() error {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that the runtime takes it
		return errors.Join(err, unix.Close(fd))
	}
	poll := os.NewFile(uintptr(fd), "epoll") //nolint:gosec // a descriptor is not negative
	control, err := poll.SyscallConn()
	if err != nil {
		return errors.Join(err, poll.Close())
	}
	l.poll, l.control = poll, control
	return nil
}

// end closes everything.
func (l *lobby) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.done)
	err := l.Listener.Close()
	if l.poll != nil {
		err = errors.Join(err, l.poll.Close())
	}
	for e := l.waiting.Front(); e != nil; e = e.Next() {
		_ = e.Value.(*guest).conn.Close() //nolint:forcetypeassert // nothing else is in it
	}
	l.waiting.Init()
	clear(l.byNumber)
	return err
}

// receive lets in who connects. What keeps it from that for a while, such as too many files, keeps nobody from being served who is in.
func (l *lobby) receive() {
	wait := time.Duration(0)
	for {
		conn, err := l.Listener.Accept()
		if err == nil {
			wait = 0
			if !l.keep(conn) {
				l.pass(conn)
			}
			continue
		}
		fails, again := l.fails, (<-chan time.Time)(nil)
		if temporary, ok := errors.AsType[interface {
			error
			Temporary() bool
		}](err); ok && temporary.Temporary() {
			wait = min(max(2*wait, acceptSoon), acceptLate)
			fails, again = nil, time.After(wait)
		}
		select {
		case fails <- err:
		case <-again:
		case <-l.done:
			return
		}
	}
}

// pass gives a connection to who accepts.
func (l *lobby) pass(conn net.Conn) {
	select {
	case l.said <- conn:
	case <-l.done:
		_ = conn.Close() // nobody serves it any more
	}
}

// keep has a connection wait, and says whether it does.
func (l *lobby) keep(conn net.Conn) bool {
	raw := below(conn)
	if raw == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
		_ = conn.Close()
		return true
	default:
	}
	if l.poll == nil {
		return false
	}
	g := &guest{conn: conn, raw: raw, until: time.Now().Add(l.within)}
	var err error
	if late := raw.Control(func(fd uintptr) {
		g.number = int32(fd) //nolint:gosec // a descriptor is small
		err = l.control.Control(func(poll uintptr) {
			err = unix.EpollCtl(int(poll), unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: g.number}) //nolint:gosec // as above
		})
	}); late != nil || err != nil {
		return false
	}
	l.byNumber[g.number] = l.waiting.PushBack(g)
	if l.waiting.Len() == 1 {
		_ = l.poll.SetReadDeadline(g.until) // it can be closed, and then nobody waits
	}
	return true
}

// watch passes on those on whose connections something came, and closes those on which nothing did in time.
func (l *lobby) watch() {
	var events [128]unix.EpollEvent
	for {
		n := 0
		var failed error
		err := l.control.Read(func(poll uintptr) bool {
			n, failed = unix.EpollWait(int(poll), events[:], 0) //nolint:gosec // a descriptor is small
			return n != 0 || failed != nil
		})
		if failed != nil && !errors.Is(failed, unix.EINTR) || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return // it is closed
		}
		for _, e := range events[:max(n, 0)] {
			if g := l.take(e.Fd); g != nil && !g.hasGone() {
				l.pass(g.conn)
			}
		}
		for _, g := range l.late(time.Now()) {
			l.server.complain(g.conn.RemoteAddr(), refusedHandshake, errNoHandshake)
			_ = g.conn.Close() // it is sent away
		}
	}
}

// take has one wait no longer.
func (l *lobby) take(number int32) *guest {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byNumber[number]
	if e == nil {
		return nil
	}
	g := l.remove(e)
	_ = l.control.Control(func(poll uintptr) { _ = unix.EpollCtl(int(poll), unix.EPOLL_CTL_DEL, int(number), nil) }) //nolint:gosec // it is there
	return g
}

// late returns those who have waited for too long, who wait no longer, and sees to it that the next one of them is looked for in time.
func (l *lobby) late(now time.Time) (all []*guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.waiting.Front(); e != nil; e = l.waiting.Front() {
		g := e.Value.(*guest) //nolint:forcetypeassert // nothing else is in it
		if g.until.After(now) {
			_ = l.poll.SetReadDeadline(g.until)
			return all
		}
		all = append(all, l.remove(e))
	}
	_ = l.poll.SetReadDeadline(time.Time{})
	return all
}

// remove forgets one; l.mu is held.
func (l *lobby) remove(e *list.Element) *guest {
	g := l.waiting.Remove(e).(*guest) //nolint:forcetypeassert // nothing else is in it
	delete(l.byNumber, g.number)
	return g
}

// hasGone closes the connection if its client has hung up without a word, and says whether it has.
func (g *guest) hasGone() bool {
	n, err := 0, error(nil)
	if late := g.raw.Control(func(fd uintptr) {
		n, _, err = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT) //nolint:gosec // a descriptor is small
	}); late == nil && (n > 0 || errors.Is(err, unix.EAGAIN)) {
		return false
	}
	_ = g.conn.Close() // it is sent away
	return true
}
