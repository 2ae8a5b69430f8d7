// Package handover has one process take over from another while clients look: the new one inherits the sockets on which the old one listens, prepares
// itself, and the old one ends when the new one says that it is ready. They speak over a pair of sockets, in steps:
//
//	new: prepared   its program runs, and its configuration is right
//	old: go         what only one may have (the state directory) is let go
//	new: ready      everything is read
//	old: yours      clients are the new one's from now on
//
// or, from the new one, "failed" and why, instead of any step.
package handover

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
)

// Step is what one process tells the other.
type Step string

// The steps, in order.
const (
	Prepared Step = "prepared"
	Go       Step = "go"
	Ready    Step = "ready"
	Yours    Step = "yours"
)

const failed = "failed "

// variable names the sockets that a process inherits, after the one by which it speaks with its predecessor.
const variable = "TRIBUTARY_HANDOVER"

// firstFile is the number of the first file that a process inherits besides those that all have.
const firstFile = 3

// peer is the other process.
type peer struct {
	conn net.Conn
	said chan string // closed when it says no more

	mu   sync.Mutex
	last error // why it says no more
}

func newPeer(conn net.Conn) *peer {
	p := &peer{conn: conn, said: make(chan string, 8)}
	go func() {
		defer close(p.said)
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			p.said <- lines.Text()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.last = lines.Err(); p.last == nil {
			p.last = io.EOF
		}
	}()
	return p
}

// Tell tells the other process a step.
func (p *peer) Tell(step Step) error {
	_, err := fmt.Fprintln(p.conn, step)
	return err
}

// errGone says that the other process ended, or does not speak any more.
var errGone = errors.New("it has ended")

// Await waits for a step of the other process.
func (p *peer) Await(ctx context.Context, step Step) error {
	select {
	case said, ok := <-p.said:
		switch {
		case !ok:
			return errGone
		case said == string(step):
			return nil
		case strings.HasPrefix(said, failed):
			return errors.New(strings.TrimPrefix(said, failed))
		}
		return fmt.Errorf("it says %q in place of %q", said, step)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the conversation.
func (p *peer) Close() error { return p.conn.Close() }

// Predecessor is the process from which this one takes over.
type Predecessor struct {
	*peer
	sockets map[string]net.Listener
}

// FromEnvironment returns the process that started this one to take over; nil if none did.
func FromEnvironment() (*Predecessor, error) {
	names, ok := os.LookupEnv(variable)
	if !ok {
		return nil, nil
	}
	if err := os.Unsetenv(variable); err != nil { // it is not for those that we start
		return nil, err
	}
	control := os.NewFile(firstFile, "predecessor")
	conn, err := net.FileConn(control)
	if err = errors.Join(err, control.Close()); err != nil {
		return nil, fmt.Errorf("take over: %w", err)
	}
	p := &Predecessor{peer: newPeer(conn), sockets: make(map[string]net.Listener)}
	for i, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' }) {
		f := os.NewFile(uintptr(firstFile+1+i), name)
		lis, err := net.FileListener(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("take over the socket %s: %w", name, err)
		}
		p.sockets[name] = lis
	}
	return p, nil
}

// Sockets are those that the predecessor listens on, by name.
func (p *Predecessor) Sockets() map[string]net.Listener { return p.sockets }

// Fail tells the predecessor why it goes on. It may be called on nil.
func (p *Predecessor) Fail(why error) {
	if p == nil {
		return
	}
	_, _ = fmt.Fprintln(p.conn, failed+strings.Join(strings.Fields(why.Error()), " ")) // if it cannot be told, it sees that we end
}
