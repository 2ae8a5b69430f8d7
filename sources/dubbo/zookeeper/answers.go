package zookeeper

import (
	"encoding/binary"
	"fmt"
	"sync"
)

// answers looks at the answers of a ZooKeeper before the library reads them. Of names it makes room for as many as an answer says that
// there are, which may be 64 GB, before it finds that there are not.
type answers struct {
	mu    sync.Mutex
	names map[uint32]bool // the numbers of requests that are answered with names

	// owned by who reads
	head [headSize]byte // of the answer that is being read: its length, its head, and how many names there are
	have int            // of that
	left int            // of the answer
}

// An answer is its length, then the number of its request, of its transaction, an error, and what was asked for. A request is its length,
// its number and its kind.
const (
	lengthSize = 4
	headSize   = lengthSize + 4 + 8 + 4 + 4

	getChildren  = 8
	getChildren2 = 12
)

// asked takes note of a request.
func (a *answers) asked(request []byte) {
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

// come looks at what was read of answers.
func (a *answers) come(p []byte) error {
	for len(p) > 0 {
		if a.have < headSize && (a.have < lengthSize || a.left > 0) {
			until := headSize
			if a.have < lengthSize {
				until = lengthSize
			}
			n := copy(a.head[a.have:until], p)
			if a.have >= lengthSize {
				n = min(n, a.left)
				a.left -= n
			}
			a.have += n
			p = p[n:]
			switch a.have {
			case lengthSize:
				if a.left = int(binary.BigEndian.Uint32(a.head[:])); a.left > maxAnswer {
					return fmt.Errorf("an answer of %d bytes, and more than %d (maxAnswer) are not read: delete what is not needed of the node that is "+
						"so large", a.left, maxAnswer)
				}
			case headSize:
				if err := a.check(); err != nil {
					return err
				}
			}
		} else {
			n := min(len(p), a.left)
			a.left -= n
			p = p[n:]
		}
		if a.have >= lengthSize && a.left == 0 {
			a.done()
		}
	}
	return nil
}

// check refuses an answer that says that there are more names than it has room for: each takes its length, at least.
func (a *answers) check() error {
	a.mu.Lock()
	of := a.names[binary.BigEndian.Uint32(a.head[lengthSize:])]
	a.mu.Unlock()
	failed := binary.BigEndian.Uint32(a.head[16:]) != 0
	if names := binary.BigEndian.Uint32(a.head[20:]); of && !failed && int(names) > a.left/lengthSize {
		return fmt.Errorf("an answer says that it has %d names, and has %d bytes for them", names, a.left)
	}
	return nil
}

// done makes ready for the next answer.
func (a *answers) done() {
	if a.have >= 2*lengthSize {
		a.mu.Lock()
		delete(a.names, binary.BigEndian.Uint32(a.head[lengthSize:]))
		a.mu.Unlock()
	}
	a.have, a.left = 0, 0
}
