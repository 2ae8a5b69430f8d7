package role

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unique"

	"google.golang.org/grpc"

	"tributary/bench/wire"
)

// The types that an Envoy asks for.
const (
	Clusters  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	Endpoints = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	Listeners = "type.googleapis.com/envoy.config.listener.v3.Listener"
	Routes    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	Hosts     = "type.googleapis.com/envoy.config.route.v3.VirtualHost"
)

// Envoys speak on their streams as Envoys do, by delta: they take all clusters and listeners, and ask by name for the
// endpoints of clusters and the routes of listeners; or on demand, by name for virtual hosts and clusters, too. Only
// names are looked at. Its exported methods are called by net/rpc.
type Envoys struct {
	received, bytes atomic.Uint64

	mu     sync.Mutex
	watch  *envoyWatch
	envoys []*envoy
}

// EnvoysArgs are the number of further streams to open, and the resources that each is to have.
type EnvoysArgs struct {
	Address  string
	Streams  int
	Services int // all endpoints of their clusters are awaited
	Metadata map[string]string
	Gateway  bool // they are gateways, and not sidecars
	Port     string
	Uses     []string // hosts on that port; if there are some, virtual hosts and clusters are asked for by name, for these
	Timeout  time.Duration
}

// Open opens streams and waits until each has everything.
func (e *Envoys) Open(args EnvoysArgs, reply *Opened) error {
	reply.Start = time.Now()
	first := len(e.envoys)
	w := &envoyWatch{watch: newWatch(args.Streams), first: first}
	e.set(w)
	for i := range args.Streams {
		v := &envoy{
			envoys: e, id: first + i, services: args.Services, gateway: args.Gateway, port: args.Port, uses: args.Uses,
			subscribed: map[string]map[unique.Handle[string]]struct{}{},
		}
		e.envoys = append(e.envoys, v)
		conn, err := dial(args.Address)
		if err != nil {
			return err
		}
		go func() { // until the process ends
			defer func() { _ = conn.Close() }()
			kind := "sidecar"
			if args.Gateway {
				kind = "router"
			}
			node := wire.Node(fmt.Sprintf("%s~127.0.0.1~vm%d.bench~bench.svc.cluster.local", kind, v.id), args.Metadata)
			e.get().fail(fmt.Errorf("stream %d: %w", v.id, v.run(conn, node)))
		}()
	}
	var err error
	reply.Arrivals, err = w.wait(args.Timeout)
	return err
}

func (e *Envoys) set(w *envoyWatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watch = w
}

func (e *Envoys) get() *envoyWatch {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.watch
}

// ArmEnvoysArgs are the change that the streams look for, and its type.
type ArmEnvoysArgs struct{ TypeURL, Marker string }

// Arm prepares for a change; Await waits for it.
func (e *Envoys) Arm(args ArmEnvoysArgs, _ *struct{}) error {
	w := &envoyWatch{watch: newWatch(len(e.envoys)), typeURL: args.TypeURL}
	w.marker = []byte(args.Marker)
	e.set(w)
	return nil
}

// Await waits until every stream has the awaited resources.
func (e *Envoys) Await(timeout time.Duration, reply *Arrivals) (err error) {
	*reply, err = e.get().wait(timeout)
	return err
}

// Traffic returns the traffic so far.
func (e *Envoys) Traffic(_ struct{}, reply *Traffic) error {
	*reply = Traffic{Received: e.received.Load(), Bytes: e.bytes.Load()}
	return nil
}

// Collect gives memory back, so that the clients' garbage is not collected while the server is measured.
func (*Envoys) Collect(_ struct{}, _ *struct{}) error {
	debug.FreeOSMemory()
	return nil
}

// envoyWatch waits, for the streams from one on, for a marker in a type, or for all resources.
type envoyWatch struct {
	*watch
	first   int
	typeURL string
}

// envoy is one stream.
type envoy struct {
	envoys     *Envoys
	id         int
	services   int
	gateway    bool
	port       string
	uses       []string
	endpoints  int // that it has
	routes     int
	subscribed map[string]map[unique.Handle[string]]struct{} // by type
}

// run serves the stream until it breaks.
func (e *envoy) run(conn *grpc.ClientConn, node []byte) error {
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	stream, err := conn.NewStream(context.Background(), desc, wire.MethodDelta, grpc.ForceCodecV2(wire.Codec{}), grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	send := func(s wire.Subscription) error {
		b := wire.Bytes(s.First())
		return stream.SendMsg(&b)
	}
	if err := send(wire.Subscription{Delta: true, Node: node, TypeURL: Clusters}); err != nil {
		return err
	}
	for {
		var r wire.Response
		if err := stream.RecvMsg(&r); err != nil {
			return err
		}
		now := time.Now()
		if err := r.Scan(); err != nil {
			return err
		}
		ack := wire.Bytes(wire.Subscription{Delta: true, TypeURL: r.TypeURL}.ACK(&r))
		if err := stream.SendMsg(&ack); err != nil {
			return err
		}
		e.envoys.received.Add(1)
		e.envoys.bytes.Add(uint64(r.Size))
		if err := e.take(now, &r, send); err != nil {
			return err
		}
		r.Free()
	}
}

// take reads a response, and subscribes to the resources that follow from it.
func (e *envoy) take(now time.Time, r *wire.Response, send func(wire.Subscription) error) error {
	if w := e.envoys.get(); len(w.marker) > 0 && (w.typeURL == "" || w.typeURL == r.TypeURL) {
		w.look(e.id, now, 0, r)
	}
	names, _, err := r.Names()
	if err != nil {
		return err
	}
	switch r.TypeURL {
	case Clusters:
		first := e.subscribed[Endpoints] == nil
		if err := e.ask(Endpoints, names, send, func(name string) string {
			if strings.HasPrefix(name, "outbound|") {
				return name
			}
			return ""
		}); err != nil {
			return err
		}
		if first {
			return send(wire.Subscription{Delta: true, TypeURL: Listeners})
		}
	case Listeners:
		return e.ask(Routes, names, send, func(name string) string {
			address, port, _ := strings.Cut(name, "_")
			if address != "127.0.0.1" && address != "0.0.0.0" {
				return ""
			}
			if e.gateway {
				return "http." + port
			}
			return port
		})
	case Endpoints:
		e.endpoints += len(names)
	case Routes:
		e.routes += len(names)
		if err := e.askHosts(send); err != nil {
			return err
		}
	case Hosts:
		if err := e.ask(Clusters, names, send, func(name string) string {
			_, host, _ := strings.Cut(name, "/")
			return "outbound|" + e.port + "||" + strings.TrimSuffix(host, ":"+e.port)
		}); err != nil {
			return err
		}
	}
	if w := e.envoys.get(); len(w.marker) == 0 && e.id >= w.first && e.endpoints >= e.services && e.routes > 0 {
		w.look(e.id-w.first, now, 1, r)
	}
	return nil
}

// askHosts subscribes to the virtual hosts that the client uses, after a request without names, as Envoy does.
func (e *envoy) askHosts(send func(wire.Subscription) error) error {
	if len(e.uses) == 0 || e.subscribed[Hosts] != nil {
		return nil
	}
	if err := send(wire.Subscription{Delta: true, TypeURL: Hosts}); err != nil {
		return err
	}
	return e.ask(Hosts, e.uses, send, func(host string) string { return e.port + "/" + host + ":" + e.port })
}

// ask subscribes to the resources of a type that follow from names, without earlier subscriptions.
func (e *envoy) ask(typeURL string, names []string, send func(wire.Subscription) error, nameOf func(string) string) error {
	if e.subscribed[typeURL] == nil {
		e.subscribed[typeURL] = make(map[unique.Handle[string]]struct{})
	}
	var subscribe []string
	for _, name := range names {
		name = nameOf(name)
		if _, isSubscribed := e.subscribed[typeURL][unique.Make(name)]; name == "" || isSubscribed {
			continue
		}
		e.subscribed[typeURL][unique.Make(name)] = struct{}{}
		subscribe = append(subscribe, name)
	}
	if len(subscribe) == 0 {
		return nil
	}
	return send(wire.Subscription{Delta: true, TypeURL: typeURL, Names: subscribe})
}
