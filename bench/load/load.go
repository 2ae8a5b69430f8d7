package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/adsc"
	"tributary/internal/words"
	"tributary/server/verify"
)

// Config describes the load.
type Config struct {
	Server        string    // host:port
	TLS           *adsc.TLS // nil for plaintext
	TokenFile     string    // a file with a bearer token, which needs TLS; empty for none
	Clients       int
	PerConnection int // clients that share a connection
	Delta         bool
	Types         []string // type URLs that each client asks for as a whole
	Metadata      map[string]string

	SyncWithin time.Duration // how long the clients have to be synced
	Duration   time.Duration // how long to go on afterwards

	// Progress is called with the progress from time to time. It is not called after Run has returned.
	Progress func(Report)
	Every    time.Duration // one second if zero
}

// Run opens the streams, and keeps them until the time is over, ctx ends, or all have failed. It then returns the
// report of their traffic. The error says that some of them did not get all of their resources; the report is valid in
// this case, too.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if cfg.TokenFile != "" {
		if cfg.TLS == nil || !cfg.TLS.Secure() {
			return Report{}, adsc.ErrPlainToken
		}
		token, err := os.ReadFile(cfg.TokenFile)
		if err != nil {
			return Report{}, fmt.Errorf("token: %w", err)
		}
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	conns, err := dial(cfg)
	defer func() {
		for _, c := range conns {
			_ = c.Close() // it fails only if it was closed before
		}
	}()
	if err != nil {
		return Report{}, err
	}
	interrupted := ctx
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	m := newMeter(cfg)
	var streams sync.WaitGroup
	for i := range cfg.Clients {
		s := &stream{cfg: &cfg, conn: conns[i/cfg.PerConnection], node: cfg.node(i), meter: m, types: make(map[string]*received, len(cfg.Types))}
		streams.Go(func() {
			err := s.run(ctx)
			if ctx.Err() != nil {
				err = nil // we ended it
			}
			s.end(err)
		})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		streams.Wait()
	}()
	err = m.watch(interrupted, ended)
	stop()
	<-ended
	return m.report(), err
}

func dial(cfg Config) ([]*grpc.ClientConn, error) {
	var conns []*grpc.ClientConn
	secure, err := cfg.TLS.Credentials(cfg.Server)
	if err != nil {
		return nil, err
	}
	for range (cfg.Clients + cfg.PerConnection - 1) / cfg.PerConnection {
		conn, err := grpc.NewClient(cfg.Server,
			grpc.WithTransportCredentials(secure),
			grpc.WithNoProxy(),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.ForceCodecV2(codec{encoding.GetCodecV2(grpcproto.Name)})),
		)
		if err != nil {
			return conns, fmt.Errorf("connect to %s: %w", cfg.Server, err)
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

// node introduces client i in the form that istiod wants, so that any server takes it for one of its own.
func (cfg *Config) node(i int) *corev3.Node {
	fields := make(map[string]*structpb.Value, len(cfg.Metadata))
	for k, v := range cfg.Metadata {
		fields[k] = structpb.NewStringValue(v)
	}
	return &corev3.Node{
		Id:       fmt.Sprintf("sidecar~127.0.0.1~tributary-load-%d.default~default.svc.cluster.local", i),
		Metadata: &structpb.Struct{Fields: fields}, UserAgentName: verify.CommandAgent,
	}
}

// watch returns when there is no more to do: everything took its time, ctx ended, or the streams have.
func (m *meter) watch(ctx context.Context, ended <-chan struct{}) error {
	tick := time.NewTicker(cmp.Or(m.cfg.Every, time.Second))
	defer tick.Stop()
	deadline := time.After(m.cfg.SyncWithin)
	settled := m.settled
	var over <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return m.verdict("when it was interrupted")
		case <-ended:
			return m.verdict("before all streams had ended")
		case <-deadline:
			return m.verdict("within " + m.cfg.SyncWithin.String())
		case <-settled:
			settled, deadline = nil, nil
			over = time.After(m.cfg.Duration)
		case <-over:
			return m.verdict("")
		case <-tick.C:
			if m.cfg.Progress != nil {
				m.cfg.Progress(m.report())
			}
		}
	}
}

// verdict says whether there is something to complain of.
func (m *meter) verdict(when string) error {
	r := m.report()
	switch {
	case r.Failed > 0:
		return fmt.Errorf("%d of %d streams to %s failed; the first: %s", r.Failed, r.Clients, m.cfg.Server,
			words.StreamError(m.cfg.Server, r.Failure))
	case r.Synced < r.Clients:
		return fmt.Errorf("%s had answered all types to %d of %d clients %s", m.cfg.Server, r.Synced, r.Clients, when)
	}
	return nil
}
