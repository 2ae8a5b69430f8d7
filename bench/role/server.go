package role

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"runtime/pprof"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"tributary/bench/engine"
	"tributary/bench/process"
)

// Usage is the usage of a server process.
type Usage struct {
	CPU        time.Duration // user and system, since the process started
	RSS        uint64        // bytes, now
	PeakRSS    uint64        // bytes, since the last Begin
	Allocs     uint64        // heap objects, since the process started
	AllocBytes uint64
	Received   uint64 // messages from clients
	Sent       uint64 // messages to clients
	Streams    int64  // open now
}

// Server drives one engine. Its exported methods are called by net/rpc, one at a time.
type Server struct {
	received, sent atomic.Uint64
	streams        atomic.Int64

	engine    engine.Engine
	resources int
	window    int // changes begin within the first window resources
	changes   int
	profile   *os.File

	poll   time.Duration // the cost of one poll for the server's rest
	looked time.Duration // the costs of all polls
}

// StartArgs describe the server.
type StartArgs struct {
	Engine    string
	Resources int
	// Window is how many resources, from the first, a client that subscribes by name asks for. A change always touches one
	// of them, so that every client is sent something.
	Window int
	Stock  bool // the gRPC server is as go-control-plane's example has it
}

// Start loads the resources and serves them on the loopback address that it returns.
func (s *Server) Start(args StartArgs, address *string) error {
	e, err := engine.New(context.Background(), args.Engine)
	if err != nil {
		return err
	}
	s.engine, s.resources, s.window = e, args.Resources, args.Window
	s.look()
	items := make([]engine.Item, s.resources)
	for i := range items {
		items[i] = engine.NewItem(i, 0)
	}
	if err := e.Publish(items); err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	*address = lis.Addr().String()
	// Clients that resume name every resource that they have, in one request.
	options := append(e.Options(), grpc.MaxRecvMsgSize(256<<20), grpc.StreamInterceptor(s.count))
	if args.Stock {
		options = stockOptions()
	}
	server := grpc.NewServer(options...)
	e.Register(server)
	go func() {
		if err := server.Serve(lis); err != nil {
			fmt.Fprintln(os.Stderr, "serving:", err)
		}
	}()
	return nil
}

// count counts the messages of every stream, for every engine in the same way.
func (s *Server) count(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	s.streams.Add(1)
	defer s.streams.Add(-1)
	return handler(srv, &countedStream{stream, s})
}

type countedStream struct {
	grpc.ServerStream
	server *Server
}

func (c *countedStream) SendMsg(m any) error {
	err := c.ServerStream.SendMsg(m)
	if err == nil {
		c.server.sent.Add(1)
	}
	return err
}

func (c *countedStream) RecvMsg(m any) error {
	err := c.ServerStream.RecvMsg(m)
	if err == nil {
		c.server.received.Add(1)
	}
	return err
}

// Begin collects garbage, unless its arguments forbid it, so that the following step pays for its own garbage only,
// waits for the background work of the collector, and returns the usage so far. Memory is not given back to the system,
// since the step would then pay for faulting it in again.
func (s *Server) Begin(collect bool, usage *Usage) error {
	if collect {
		runtime.GC()
	}
	if _, err := s.rest(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	process.ResetPeak(os.Getpid())
	*usage = s.usage()
	return nil
}

// Changed tells of a step that the server took.
type Changed struct {
	Change        int // the last one; clients look for its engine.Marker
	Applied       int // how many there were
	At            time.Time
	Before, After Usage
}

// NextChange returns the number that the change after this one will have.
func (s *Server) NextChange(_ struct{}, n *int) error {
	*n = s.changes + 1
	return nil
}

// Change replaces n resources at once and waits until the server has come to rest.
func (s *Server) Change(n int, reply *Changed) error {
	items := s.next(n)
	reply.Change, reply.Applied = s.changes, n
	reply.Before = s.usage()
	reply.At = time.Now()
	if err := s.engine.Publish(items); err != nil {
		return err
	}
	var err error
	reply.After, err = s.calm(reply.Before, time.Minute)
	return err
}

// next returns n resources as of a new change.
func (s *Server) next(n int) []engine.Item {
	s.changes++
	start := s.changes % s.window
	items := make([]engine.Item, n)
	for i := range items {
		items[i] = engine.NewItem((start+i)%s.resources, s.changes)
	}
	return items
}

// StormArgs bound a storm. Its last change has the number Final, which no other has, so that clients know the end.
type StormArgs struct {
	Rate     int // single changes a second
	Duration time.Duration
	Final    int
	Rest     time.Duration
}

// Storm makes single changes at a rate, as far as the server can keep up, and waits until it has come to rest.
func (s *Server) Storm(args StormArgs, reply *Changed) error {
	reply.Before = s.usage()
	start := time.Now()
	random := rand.New(rand.NewPCG(1, 2))
	total := int(float64(args.Rate) * args.Duration.Seconds())
	for reply.Applied < total-1 {
		elapsed := time.Since(start)
		if elapsed > args.Duration {
			break // the server does not keep up
		}
		due := min(int(float64(args.Rate)*elapsed.Seconds()), total-1)
		for reply.Applied < due && time.Since(start) <= args.Duration {
			s.changes++
			item := engine.NewItem(random.IntN(s.resources), s.changes)
			if err := s.engine.Publish([]engine.Item{item}); err != nil {
				return err
			}
			reply.Applied++
		}
		time.Sleep(time.Millisecond)
	}
	if s.changes >= args.Final {
		return fmt.Errorf("%d changes before the last one, which is to be %d", s.changes, args.Final)
	}
	s.changes = args.Final - 1
	last := s.next(1)
	reply.Change = s.changes
	reply.At = time.Now()
	if err := s.engine.Publish(last); err != nil {
		return err
	}
	reply.Applied++
	var err error
	reply.After, err = s.calm(reply.Before, args.Rest)
	return err
}

// RestArgs are the conditions of the rest.
type RestArgs struct {
	Received uint64 // messages that clients have sent since the server started
	Timeout  time.Duration
}

// Rest waits until the server has received all that clients have sent and has come to rest.
func (s *Server) Rest(args RestArgs, usage *Usage) error {
	deadline := time.Now().Add(args.Timeout)
	for s.received.Load() < args.Received {
		if time.Now().After(deadline) {
			return fmt.Errorf("received %d of %d messages", s.received.Load(), args.Received)
		}
		s.pause()
	}
	var err error
	*usage, err = s.rest(deadline)
	return err
}

// calm waits until every response since before was answered and the server has come to rest.
func (s *Server) calm(before Usage, timeout time.Duration) (Usage, error) {
	deadline := time.Now().Add(timeout)
	for {
		usage, err := s.rest(deadline)
		if err != nil {
			return usage, err
		}
		if usage.Received-before.Received >= usage.Sent-before.Sent {
			return usage, nil
		}
		s.pause()
	}
}

// A server is at rest when it used no more CPU than looking at it costs, for restPolls polls in a row.
const (
	pollEvery = 10 * time.Millisecond
	restPolls = 5
	// lookPolls are made while the server is idle, to measure the cost of a poll: microseconds on one machine, and a
	// quarter of a millisecond on another.
	lookPolls = 40
)

// pause waits until it is time for another poll. Its cost is not counted.
func (s *Server) pause() {
	time.Sleep(pollEvery)
	s.looked += s.poll
}

// look measures the cost of one poll.
func (s *Server) look() {
	costs := make([]time.Duration, lookPolls)
	last := process.CPU()
	for i := range costs {
		s.pause()
		now := process.CPU()
		costs[i], last = now-last, now
	}
	slices.Sort(costs)
	s.poll = costs[lookPolls/2]
}

var errBusy = errors.New("the server did not come to rest")

// rest returns the usage at the beginning of the rest, without that of looking.
func (s *Server) rest(deadline time.Time) (Usage, error) {
	last := s.glance()
	quiet := last
	budget := max(2*s.poll, 100*time.Microsecond)
	for polls := 0; polls < restPolls; {
		if time.Now().After(deadline) {
			return last, errBusy
		}
		s.pause()
		now := s.glance()
		if now.CPU-last.CPU > budget || now.Received != last.Received || now.Sent != last.Sent {
			polls, quiet = 0, now
		} else {
			polls++
		}
		last = now
	}
	usage := s.usage()
	usage.CPU = quiet.CPU
	return usage, nil
}

// glance returns the part of the usage that is free to read.
func (s *Server) glance() Usage {
	return Usage{CPU: process.CPU() - s.looked, Received: s.received.Load(), Sent: s.sent.Load()}
}

// Idle waits for a while and returns the costs of that, with memory given back to the system first.
func (s *Server) Idle(d time.Duration, reply *Changed) error {
	debug.FreeOSMemory()
	process.ResetPeak(os.Getpid())
	reply.At = time.Now()
	reply.Before = s.usage()
	time.Sleep(d)
	reply.After = s.usage()
	return nil
}

// AwaitNoStreams waits until all clients have gone.
func (s *Server) AwaitNoStreams(timeout time.Duration, _ *struct{}) error {
	for deadline := time.Now().Add(timeout); s.streams.Load() > 0; time.Sleep(pollEvery) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d streams are still open", s.streams.Load())
		}
	}
	return nil
}

func (s *Server) usage() Usage {
	u := Usage{Streams: s.streams.Load()}
	u.Allocs, u.AllocBytes = allocations()
	u.RSS, u.PeakRSS = process.Memory(os.Getpid())
	u.Received, u.Sent = s.received.Load(), s.sent.Load()
	u.CPU = process.CPU() - s.looked // last, so that the polls are not counted in the next step
	return u
}

// allocations returns the number and the bytes of all heap allocations so far.
func allocations() (objects, size uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// StartProfile begins to write a CPU profile to a file.
func (s *Server) StartProfile(file string, _ *struct{}) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	s.profile = f
	return pprof.StartCPUProfile(f)
}

// StopProfile completes the CPU profile.
func (s *Server) StopProfile(_ struct{}, _ *struct{}) error {
	pprof.StopCPUProfile()
	return s.profile.Close()
}

// HeapProfile writes the live objects of the heap, and all earlier allocations, to a file.
func (s *Server) HeapProfile(file string, _ *struct{}) error {
	debug.FreeOSMemory()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := pprof.Lookup("heap").WriteTo(f, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
