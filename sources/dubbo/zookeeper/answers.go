package zookeeper

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"tributary/internal/intake"
)

// answers checks answers before the library does: the library allocates for as many names as an answer claims, up to 64
// GB. An answer takes memory until the next one begins: the library has decoded it by then.
type answers struct {
	ctx   context.Context //nolint:containedctx // of the connection
	lease *intake.Lease

	mu    sync.Mutex
	names map[uint32]bool // the numbers of requests for names

	// owned by the reader
	head      [headSize]byte // of the current answer: its length, its head, and its number of names
	read      int            // bytes of head
	remaining int            // bytes of the answer that are still to come
}

// An answer is its length, the number of its request, that of its transaction, an error, and the content. A request is
// its length, its number and its kind.
const (
	lengthSize = 4
	headSize   = lengthSize + 4 + 8 + 4 + 4

	getChildren  = 8
	getChildren2 = 12
)

func newAnswers(ctx context.Context) answers {
	ctx, lease := intake.Begin(ctx)
	return answers{ctx: ctx, lease: lease, names: map[uint32]bool{}}
}

// sawRequest notes a request for names.
func (a *answers) sawRequest(request []byte) {
	if len(request) < 3*lengthSize {
		return
	}
	if kind := binary.BigEndian.Uint32(request[8:]); kind != getChildren && kind != getChildren2 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names[binary.BigEndian.Uint32(request[4:])] = true
}

// inspect checks the next bytes of answers.
func (a *answers) inspect(p []byte) error {
	for len(p) > 0 {
		if a.read < headSize && (a.read < lengthSize || a.remaining > 0) {
			limit := headSize
			if a.read < lengthSize {
				limit = lengthSize
			}
			n := copy(a.head[a.read:limit], p)
			if a.read >= lengthSize {
				n = min(n, a.remaining)
				a.remaining -= n
			}
			a.read += n
			p = p[n:]
			switch a.read {
			case lengthSize:
				if a.remaining = int(binary.BigEndian.Uint32(a.head[:])); a.remaining > maxAnswer {
					return fmt.Errorf("answer of %d bytes (limit %d, maxAnswer): delete unneeded children of the node",
						a.remaining, maxAnswer)
				}
				a.lease.Release()
				if err := a.lease.Take(a.ctx, a.remaining); err != nil {
					return err
				}
			case headSize:
				if err := a.check(); err != nil {
					return err
				}
			}
		} else {
			n := min(len(p), a.remaining)
			a.remaining -= n
			p = p[n:]
		}
		if a.read >= lengthSize && a.remaining == 0 {
			a.reset()
		}
	}
	return nil
}

// nameBytes is the memory of a decoded name in addition to its text.
const nameBytes = 32

// check refuses an answer that claims more names than fit into it: each has at least a length.
func (a *answers) check() error {
	a.mu.Lock()
	hasNames := a.names[binary.BigEndian.Uint32(a.head[lengthSize:])]
	a.mu.Unlock()
	failed := binary.BigEndian.Uint32(a.head[16:]) != 0
	names := int(binary.BigEndian.Uint32(a.head[20:]))
	switch {
	case !hasNames || failed:
		return nil
	case names > a.remaining/lengthSize:
		return fmt.Errorf("answer claims %d names in %d bytes", names, a.remaining)
	}
	return a.lease.Take(a.ctx, names*nameBytes)
}

// reset prepares for the next answer.
func (a *answers) reset() {
	if a.read >= 2*lengthSize {
		a.mu.Lock()
		delete(a.names, binary.BigEndian.Uint32(a.head[lengthSize:]))
		a.mu.Unlock()
	}
	a.read, a.remaining = 0, 0
}
