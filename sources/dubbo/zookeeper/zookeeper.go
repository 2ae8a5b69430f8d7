package zookeeper

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"tributary/internal/worker"
	"tributary/sources/dubbo/backend"
	"tributary/sources/dubbo/provider"
)

// Registry is a ZooKeeper with the registrations of Dubbo's providers.
type Registry struct {
	dial    Dial
	address Address
	resync  time.Duration

	watching atomic.Pointer[watch] // while Watch runs
}

var _ backend.Registry = (*Registry)(nil)

// WithDial returns a registry that connects by dial.
func WithDial(dial Dial, a Address, resync time.Duration) *Registry {
	return &Registry{dial: dial, address: a, resync: resync}
}

// maxReads bounds concurrent reads. More would only wait in ZooKeeper.
const maxReads = 64

// minSession is how long a connection may at least be without a session.
const minSession = 2 * time.Second

// applications is the path of applications, unless the registry has a group of its own.
const applications = "/services"

// watch reads the registry by one connection.
type watch struct {
	// read-only
	conn       Conn
	to         backend.Listener
	categories []backend.Category // that are read of an interface
	group      string             // path
	apps       string             // path
	resync     time.Duration
	turns      chan struct{}
	loops      *worker.Group

	mu      sync.Mutex
	up      chan struct{} // closed at the next connection
	lost    *time.Timer   // runs while there is no session, and then ends the connection
	waiting bool          // lost runs
}

// Watch implements backend.Registry.
func (r *Registry) Watch(ctx context.Context, to backend.Listener, w backend.Wanted) error {
	for ctx.Err() == nil {
		if err := r.watch(ctx, to, w.Consumers); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// watch reads by one connection, until ctx ends or the connection had no session for as long as one lasts. A connection
// remembers the newest transaction that it has seen, and servers with older data refuse it, e.g. after ZooKeeper lost
// its data; they accept a new connection. The session can be given up: it owns no nodes.
func (r *Registry) watch(ctx context.Context, listener backend.Listener, consumers bool) error {
	ctx, cancelFunc := context.WithCancel(ctx)
	defer cancelFunc()
	watch := &watch{
		to: listener, categories: []backend.Category{backend.Providers, backend.Configurators}, group: r.address.group(),
		apps: r.address.Root + applications, resync: r.resync, turns: make(chan struct{}, maxReads), up: make(chan struct{}),
		waiting: true, lost: time.AfterFunc(max(r.address.Session, minSession), cancelFunc),
	}
	defer watch.lost.Stop()
	if consumers {
		watch.categories = append(watch.categories, backend.Consumers)
	}
	if r.address.Group != DefaultGroup {
		watch.apps = watch.group
	}
	conn, err := r.dial(ctx, func(c backend.Connection) { watch.state(c, r.address.Session) })
	if err != nil {
		return err
	}
	watch.loops, ctx = worker.New(ctx)
	defer watch.loops.Stop()
	watch.conn = conn
	r.watching.Store(watch)
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() { // this ends waiting calls
		defer close(closed)
		conn.Close()
	})
	if watch.authenticate(ctx, r.address) {
		watch.loops.Go(func() { watch.interfaces(ctx) })
		watch.loops.Go(func() { watch.applications(ctx) })
	}
	<-ctx.Done()
	failed := watch.loops.Wait()
	<-closed
	r.watching.Store(nil)
	return failed
}

// authenticate adds the credentials before anything is read; ok is false if ctx ended first.
func (w *watch) authenticate(ctx context.Context, a Address) (ok bool) {
	for a.User != "" && ctx.Err() == nil {
		if w.conn.AddAuth("digest", []byte(a.User+":"+a.Password.Reveal())) == nil {
			break
		}
		_ = worker.Wait(ctx, w.connected(), time.Second)
	}
	return ctx.Err() == nil
}

// state takes the state of the connection. A connection without a session ends when the session would have expired.
func (w *watch) state(connection backend.Connection, session time.Duration) {
	w.mu.Lock()
	switch {
	case connection.Up:
		w.lost.Stop()
		w.waiting = false
		close(w.up)
		w.up = make(chan struct{})
	case !w.waiting:
		w.waiting = true
		w.lost.Reset(max(session, minSession))
	}
	w.mu.Unlock()
	w.to.Connection(connection)
}

// connected returns a channel that is closed at the next connection.
func (w *watch) connected() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up
}

// turn waits until one of maxReads is free.
func (w *watch) turn(ctx context.Context) (release func(), ok bool) {
	select {
	case <-ctx.Done():
		return nil, false
	case w.turns <- struct{}{}:
		return func() { <-w.turns }, true
	}
}

// each follows the names below a path, and runs a loop for each name while it is listed. A missing path has no names.
func (w *watch) each(ctx context.Context, path string, selected func(name string) bool,
	tell func(names []string, err error),
	loop func(ctx context.Context, name string),
) {
	ends := map[string]context.CancelFunc{}
	defer func() {
		for _, end := range ends {
			end()
		}
	}()
	follow(ctx, w, path, w.children(), w.exists, func(children []string, err error) {
		if err != nil && !errors.Is(err, backend.ErrAbsent) {
			tell(nil, err)
			return
		}
		names := slices.DeleteFunc(slices.Clone(children), func(name string) bool { return !selected(name) })
		tell(names, nil)
		backend.Sync(ends, names, func(name string) context.CancelFunc {
			ctx, end := context.WithCancel(ctx)
			w.loops.Go(func() { loop(ctx, name) })
			return end
		}, func(end context.CancelFunc) { end() })
	})
}

// registers reports whether a node of the registry's group may be of an interface or application.
func registers(node string) bool { return node != "config" && node != "mapping" && node != "metadata" }

// interfaces follows the interfaces.
func (w *watch) interfaces(ctx context.Context) {
	w.each(ctx, w.group, registers, func(nodes []string, err error) {
		var parts []backend.Part
		for _, node := range nodes {
			for _, c := range w.categories {
				parts = append(parts, partOf(node, c))
			}
		}
		w.to.Parts(parts, err)
	}, w.iface)
}

// partOf is one category of a node. Several nodes may be of the same interface, since other clients encode its name in
// another way than Dubbo.
func partOf(node string, c backend.Category) backend.Part {
	return backend.Part{Interface: decode(node), Category: c, Node: node}
}

// decode undoes the form encoding of a node's name, if it has one.
func decode(node string) string {
	if name, err := url.QueryUnescape(node); err == nil {
		return name
	}
	return node
}

// iface follows the categories of an interface's node.
func (w *watch) iface(ctx context.Context, node string) {
	for _, c := range w.categories {
		w.loops.Go(func() {
			follow(ctx, w, w.group+"/"+node+"/"+string(c), w.children(), w.exists, func(nodes []string, err error) {
				w.to.Registered(partOf(node, c), readAll(nodes), err)
			})
		})
	}
}

// readAll parses the names of nodes.
func readAll(nodes []string) []backend.Registration {
	registrations := make([]backend.Registration, len(nodes))
	for i, node := range nodes {
		u, err := provider.ParseNode(node)
		registrations[i] = backend.Registration{URL: u, Err: err}
	}
	return registrations
}

// applications follows the applications.
func (w *watch) applications(ctx context.Context) {
	selected := func(name string) bool { return w.apps != w.group || registers(name) }
	w.each(ctx, w.apps, selected, w.to.Applications, w.application)
}

// application follows the instances of an application.
func (w *watch) application(ctx context.Context, name string) {
	path := w.apps + "/" + name
	selected := func(id string) bool { return w.apps != w.group || isAddress(id) } // interfaces may be there, too
	w.each(ctx, path, selected, func(ids []string, err error) { w.to.Instances(name, ids, err) },
		func(ctx context.Context, id string) {
			follow(ctx, w, path+"/"+id, w.data(), w.vanished, func(content []byte, err error) {
				var i provider.Instance
				ok := false
				if err == nil {
					i, ok, err = provider.ParseInstance(name, content)
				}
				w.to.Instance(name, id, i, ok, err)
			})
		})
}

// isAddress reports whether the name of a node is host:port, as that of an instance is.
func isAddress(id string) bool {
	_, port, err := provider.SplitAddress(id)
	return err == nil && port > 0
}

// vanishedFor is the pause before a vanished node is read again. By then its parent has usually reported that it has
// gone.
const vanishedFor = time.Second

// vanished stands in for a watch on nodes that rarely return: ZooKeeper would keep a watch for each.
func (w *watch) vanished(string) (<-chan zk.Event, error) {
	fired := make(chan zk.Event)
	time.AfterFunc(vanishedFor, func() { close(fired) })
	return fired, nil
}

// Metadata implements backend.Registry. dubbo-go and Java use different paths.
func (r *Registry) Metadata(_ context.Context, application, revision string) ([]byte, error) {
	conn, err := r.connection()
	if err != nil {
		return nil, err
	}
	group := r.address.group()
	for _, path := range []string{
		group + "/metadata/" + application + "/" + revision,
		group + "/" + application + "/" + revision,
	} {
		content, _, err := conn.Get(path)
		if err = explain(path, err); err == nil && strings.HasPrefix(strings.TrimSpace(string(content)), "{") {
			return content, nil
		}
		if err != nil && !errors.Is(err, backend.ErrAbsent) {
			return nil, err
		}
	}
	return nil, backend.ErrAbsent
}

// Mapped implements backend.Registry.
func (r *Registry) Mapped(ctx context.Context) (map[string][]string, error) {
	conn, err := r.connection()
	if err != nil {
		return nil, err
	}
	path := r.address.group() + "/mapping"
	nodes, _, err := conn.Children(path)
	if err = explain(path, err); err != nil {
		return nil, err
	}
	place := "ZooKeeper's " + path + " on " + strings.Join(r.address.Servers, ", ")
	if err := backend.CheckSize(len(nodes), place); err != nil {
		return nil, err
	}
	var mapping backend.Mapping
	for _, node := range nodes {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		content, _, err := conn.Get(path + "/" + node)
		if err = explain(path+"/"+node, err); errors.Is(err, errConnection) {
			return nil, err
		}
		if err == nil {
			if err := mapping.Add(place, decode(node), string(content)); err != nil {
				return nil, err
			}
		}
	}
	return mapping.ByApplication(), nil
}

// connection returns the connection while Watch runs.
func (r *Registry) connection() (Conn, error) {
	if w := r.watching.Load(); w != nil {
		return w.conn, nil
	}
	return nil, errConnection
}
