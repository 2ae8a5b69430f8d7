// Package attack has the attacks of clients on an xDS server, each with bounded costs for the machine. It is for
// servers of one's own, on loopback.
package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Target is the server and its type of resources.
type Target struct {
	Address string
	Admin   string // the address of the admin port; empty if there is none
	TypeURL string // a type with resources
	Node    []byte // encoded, of an honest client
	// Size is the share of the attack's full size, from 0 to 1.
	Size float64
}

// Counts are the results of an attack.
type Counts struct {
	Dials   int64 // connections that were made
	Refused int64 // of these, cut off or broken by the server; or streams that were ended by it
	Sent    int64 // requests, or streams that were opened, or bytes of handshakes: the units of the attack
}

// run is an attack under way.
type run struct {
	Target

	dials, refused, sent atomic.Int64
}

func (r *run) counts() Counts {
	return Counts{Dials: r.dials.Load(), Refused: r.refused.Load(), Sent: r.sent.Load()}
}

// kind is one sort of attack. Each of its many attackers calls act again when it ends, after a pause.
type kind struct {
	name  string
	many  int
	pause time.Duration
	act   func(ctx context.Context, r *run, n int) error
}

// kinds are all attacks.
func kinds() []kind {
	return []kind{
		{"10,000 silent connections", 10_000, time.Second, sayNothing},
		{"1,000 slow handshakes", 1000, time.Second, shakeSlowly},
		{"200 slow readers", 200, time.Second, readSlowly},
		{"streams opened and reset", 10, 100 * time.Millisecond, resetRapidly},
		{"64 MiB requests on 200 streams", 200, time.Second, sendLarge(64 << 20)},
		{"3.9 MiB requests on 200 streams", 200, time.Second, sendLarge(39 << 20 / 10)},
		{"a million names on 20 streams", 20, time.Second, subscribeToMuch},
		{"endless headers", 50, 100 * time.Millisecond, floodHeaders},
		{"compressed bombs on 50 streams", 50, 100 * time.Millisecond, sendBombs},
		{"NACKs on 50 streams", 50, time.Second, rejectAll},
		{"NACKs of 50 Envoys", 50, time.Second, rejectAsEnvoy},
		{"250 pages of the admin port", 1, 10 * time.Millisecond, getPages},
		{"10,000 watches of health", 100, time.Second, watchHealth},
		{"reflection on 50 streams", 50, 100 * time.Millisecond, askReflection},
		{"100 made-up profiles of Envoys", 100, time.Second, makeUpProfiles},
		{"50 made-up revisions a second", 50, time.Second, makeUpRevisions},
	}
}

// Names returns the names of the attacks.
func Names() (names []string) {
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// Begin begins an attack. The returned function ends it.
func Begin(name string, target Target) (end func() Counts, err error) {
	attacks := kinds()
	i := slices.IndexFunc(attacks, func(k kind) bool { return k.name == name })
	if i < 0 {
		return nil, fmt.Errorf("no attack is called %q", name)
	}
	host, _, err := net.SplitHostPort(target.Address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, errors.New("attacks are for loopback only")
	}
	k, r := attacks[i], &run{Target: target}
	ctx, cancel := context.WithCancel(context.Background())
	var attackers sync.WaitGroup
	for n := range max(int(float64(k.many)*target.Size), 1) {
		attackers.Go(func() { k.repeat(ctx, r, n) })
	}
	return func() Counts {
		counts := r.counts()
		cancel()
		attackers.Wait()
		return counts
	}, nil
}

// repeat has one attacker come back whenever he is thrown out.
func (k *kind) repeat(ctx context.Context, r *run, n int) {
	wait := time.Duration(n%1000) * time.Millisecond // not all at once: the machine is that of the server
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := k.act(ctx, r, n); err != nil && ctx.Err() == nil {
			r.refused.Add(1)
		}
		wait = k.pause
	}
}

// dial connects from one of four addresses that honest clients do not have: limits that count by address shall spare these.
func (r *run) dial(ctx context.Context, n int) (net.Conn, error) { return r.dialTo(ctx, n, r.Address) }

func (r *run) dialTo(ctx context.Context, n int, address string) (net.Conn, error) {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+n%4))}, Timeout: 10 * time.Second}
	conn, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	r.dials.Add(1)
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, nil
}

// each calls do so often a second, until it fails or ctx ends.
func each(ctx context.Context, perSecond int, do func() error) error {
	const step = 20 * time.Millisecond
	for tick := time.NewTicker(step); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return ctx.Err()
		case <-tick.C:
		}
		for range max(perSecond/int(time.Second/step), 1) {
			if err := do(); err != nil {
				tick.Stop()
				return err
			}
		}
	}
}
