// Package zktest is a ZooKeeper for tests, in memory: nodes, watches that fire once, and sessions that are cut off and
// expire.
package zktest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/zookeeper"
)

// Server is a ZooKeeper. Its methods are safe for concurrent use.
type Server struct {
	mu      sync.Mutex
	nodes   map[string][]byte // by path
	down    bool
	denied  map[string]bool // denied paths, with all paths below
	broken  map[string]bool // paths with watches that do not fire
	clients map[*client]bool
	reads   int
}

// New returns a server without nodes.
func New() *Server {
	return &Server{
		nodes: map[string][]byte{}, denied: map[string]bool{}, broken: map[string]bool{}, clients: map[*client]bool{},
	}
}

// Dial makes a connection; it is a zookeeper.Dial.
func (s *Server) Dial(_ context.Context, state func(backend.Connection)) (zookeeper.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	client := &client{server: s, state: state, watches: map[watched][]chan zk.Event{}, closed: make(chan struct{})}
	s.clients[client] = true
	if !s.down {
		client.state(backend.Connection{Up: true, Fresh: true})
		return client, nil
	}
	client.expired = true
	client.state(backend.Connection{Message: "no connection to the test's ZooKeeper"})
	return client, nil
}

// Put makes a node, with its parents, or changes its content.
func (s *Server) Put(path, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for parent := range parents(path) {
		if _, exists := s.nodes[parent]; !exists {
			s.make(parent, "127.0.0.1")
		}
	}
	if _, exists := s.nodes[path]; !exists {
		s.make(path, content)
		return
	}
	s.nodes[path] = []byte(content)
	s.fire(path, zk.EventNodeDataChanged)
}

// Delete removes a node, and all below it.
func (s *Server) Delete(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, node := range slices.Backward(slices.Sorted(maps.Keys(s.nodes))) {
		if node == path || strings.HasPrefix(node, path+"/") {
			delete(s.nodes, node)
			s.fire(node, zk.EventNodeDeleted)
			s.fire(parent(node), zk.EventNodeChildrenChanged)
		}
	}
}

// Cut ends all connections; the sessions live on, and watches fire when the connections are back.
func (s *Server) Cut() { s.cut(false) }

// Expire ends all connections, and their sessions with them.
func (s *Server) Expire() { s.cut(true) }

// Reconnect undoes Cut and Expire.
func (s *Server) Reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.down {
		return
	}
	s.down = false
	for client := range s.clients {
		if client.refused {
			continue
		}
		client.state(backend.Connection{Up: true, Fresh: client.expired})
		if client.expired {
			for _, chans := range client.watches {
				for _, ch := range chans {
					ch <- zk.Event{Type: zk.EventNotWatching, Err: zk.ErrSessionExpired}
					close(ch)
				}
			}
			clear(client.watches)
		}
		client.expired = false
		for _, fire := range client.pending {
			fire()
		}
		client.pending = nil
	}
}

// Refuse ends all connections for good, as a server with older data does. New connections are accepted.
func (s *Server) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		c.refused = true
		c.state(backend.Connection{Message: "the test's ZooKeeper takes no connection that knows more than it does"})
	}
}

// Deny denies reads of a node and of the nodes below it.
func (s *Server) Deny(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied[path] = true
	for client := range s.clients { // a changed rule fires no watch; these events make the clients read again
		for w := range client.watches {
			if w.path == path || strings.HasPrefix(w.path, path+"/") {
				client.fire(w, zk.EventNodeChildrenChanged)
			}
		}
	}
}

// Allow undoes Deny.
func (s *Server) Allow(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.denied, path)
}

// Mute stops all watches of a node from firing.
func (s *Server) Mute(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[path] = true
}

// Reads returns how many reads there were.
func (s *Server) Reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *Server) make(path, content string) {
	s.nodes[path] = []byte(content)
	s.fire(path, zk.EventNodeCreated)
	s.fire(parent(path), zk.EventNodeChildrenChanged)
}

func (s *Server) cut(expire bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	for c := range s.clients {
		c.expired = c.expired || expire
		c.state(backend.Connection{Message: "no connection to the test's ZooKeeper"})
	}
}

func (s *Server) fire(path string, eventType zk.EventType) {
	if s.broken[path] {
		return
	}
	for c := range s.clients {
		for _, k := range kindsOf(eventType) {
			c.fire(watched{path, k}, eventType)
		}
	}
}

func (s *Server) read(path string) error {
	s.reads++
	if s.down {
		return zk.ErrNoServer
	}
	for p := range s.denied {
		if path == p || strings.HasPrefix(path, p+"/") {
			return zk.ErrNoAuth
		}
	}
	if _, exists := s.nodes[path]; !exists && path != "/" {
		return zk.ErrNoNode
	}
	return nil
}

func (s *Server) children(path string) []string {
	var names []string
	for node := range s.nodes {
		if parent(node) == path {
			names = append(names, node[strings.LastIndexByte(node, '/')+1:])
		}
	}
	return names
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

func parents(path string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for i := 1; i < len(path); i++ {
			if path[i] == '/' && !yield(path[:i]) {
				return
			}
		}
	}
}

type kind int

const (
	ofData kind = iota
	ofChildren
	ofExistence
)

func kindsOf(t zk.EventType) []kind {
	switch t {
	case zk.EventNodeCreated:
		return []kind{ofExistence}
	case zk.EventNodeDataChanged:
		return []kind{ofExistence, ofData}
	case zk.EventNodeChildrenChanged:
		return []kind{ofChildren}
	}
	return []kind{ofExistence, ofData, ofChildren}
}

type watched struct {
	path string
	kind kind
}

// client is a connection. Its state is guarded by the mu of its server.
type client struct {
	server *Server
	state  func(backend.Connection)
	closed chan struct{}

	watches map[watched][]chan zk.Event
	pending []func()
	expired bool
	refused bool
}

func (c *client) fire(watch watched, eventType zk.EventType) {
	chans := c.watches[watch]
	if len(chans) == 0 {
		return
	}
	if c.server.down || c.refused {
		if !c.expired {
			c.pending = append(c.pending, func() { c.fire(watch, eventType) })
		}
		return
	}
	delete(c.watches, watch)
	for _, ch := range chans {
		ch <- zk.Event{Type: eventType, Path: watch.path}
		close(ch)
	}
}

func (c *client) watch(path string, k kind) <-chan zk.Event {
	ch := make(chan zk.Event, 1)
	c.watches[watched{path, k}] = append(c.watches[watched{path, k}], ch)
	return ch
}

// try makes a read, and waits a little with an error of the connection, as the library does.
func (c *client) try(path string, read func()) error {
	c.server.mu.Lock()
	err := c.server.read(path)
	if c.refused {
		err = zk.ErrNoServer
	}
	if err == nil {
		read()
	}
	c.server.mu.Unlock()
	if err == zk.ErrNoServer { //nolint:errorlint // ours
		select {
		case <-c.closed:
			return zk.ErrClosing
		case <-time.After(time.Millisecond):
		}
	}
	return err
}

// Children implements zookeeper.Conn.
func (c *client) Children(path string) (names []string, _ *zk.Stat, err error) {
	err = c.try(path, func() { names = c.server.children(path) })
	return names, nil, err
}

// ChildrenW implements zookeeper.Conn.
func (c *client) ChildrenW(path string) (names []string, _ *zk.Stat, ch <-chan zk.Event, err error) {
	err = c.try(path, func() { names, ch = c.server.children(path), c.watch(path, ofChildren) })
	return names, nil, ch, err
}

// Get implements zookeeper.Conn.
func (c *client) Get(path string) (data []byte, _ *zk.Stat, err error) {
	err = c.try(path, func() { data = c.server.nodes[path] })
	return data, nil, err
}

// GetW implements zookeeper.Conn.
func (c *client) GetW(path string) (data []byte, _ *zk.Stat, ch <-chan zk.Event, err error) {
	err = c.try(path, func() { data, ch = c.server.nodes[path], c.watch(path, ofData) })
	return data, nil, ch, err
}

// ExistsW implements zookeeper.Conn.
func (c *client) ExistsW(path string) (exists bool, _ *zk.Stat, ch <-chan zk.Event, err error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	err = c.server.read(path)
	switch {
	case c.refused:
		return false, nil, nil, zk.ErrNoServer
	case err != nil && err != zk.ErrNoNode: //nolint:errorlint // ours
		return false, nil, nil, err
	}
	return err == nil, nil, c.watch(path, ofExistence), nil
}

// AddAuth implements zookeeper.Conn.
func (c *client) AddAuth(string, []byte) error { return nil }

// Close implements zookeeper.Conn.
func (c *client) Close() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	delete(c.server.clients, c)
	close(c.closed)
}
