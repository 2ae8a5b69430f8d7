package spiffe

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// patience is how long an answer is waited for: the Workload API is on this machine, and answers from memory.
	patience = 5 * time.Second
	// again is how soon it is looked for again once the library has given up.
	again = 5 * time.Second
)

// API is a Workload API. What it said last stays when it is away. It is safe for concurrent use.
type API struct {
	address string

	mu   sync.Mutex
	last *Said
	err  error // why last is not, or may not be, what it says now
}

// New returns the Workload API at address; the empty one stands for $SPIFFE_ENDPOINT_SOCKET. It is not asked yet.
func New(address string) *API { return &API{address: address} }

// Check says what is wrong with its address.
func (a *API) Check() error { return CheckAddress(a.address) }

// Last returns what the API said last, nil before it has, and what went wrong since.
func (a *API) Last() (*Said, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.err
}

// Ask returns what the API says now. If it does not answer, that is what it said last, as long as our certificate is valid.
func (a *API) Ask(ctx context.Context) (*Said, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said, err := a.fetch(ctx)
	if err == nil {
		a.OnX509ContextUpdate(said)
		last, _ := a.Last()
		return last, nil
	}
	a.OnX509ContextWatchError(err)
	last, err := a.Last()
	if last != nil && time.Now().Before(last.svids[0].Certificates[0].NotAfter) {
		return last, nil
	}
	return nil, err
}

func (a *API) fetch(ctx context.Context) (*workloadapi.X509Context, error) {
	client, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // what it had to say was said
	return client.FetchX509Context(ctx)
}

func (a *API) connect(ctx context.Context) (*workloadapi.Client, error) {
	address, err := addressOf(a.address)
	if err != nil {
		return nil, err
	}
	return workloadapi.New(ctx, workloadapi.WithAddr(address))
}

// Run follows the API until ctx ends: it says by itself when something is new.
func (a *API) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := a.watch(ctx); err != nil && ctx.Err() == nil {
			a.OnX509ContextWatchError(err)
		}
		select { // the library goes on by itself, but for what it takes for final
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

func (a *API) watch(ctx context.Context) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // what it had to say was said
	return client.WatchX509Context(ctx, a)
}

// OnX509ContextUpdate implements workloadapi.X509ContextWatcher.
func (a *API) OnX509ContextUpdate(said *workloadapi.X509Context) {
	next := &Said{svids: said.SVIDs, bundles: said.Bundles}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = nil
	if !next.Equal(a.last) { // what is said twice is one
		a.last = next
	}
}

// OnX509ContextWatchError implements workloadapi.X509ContextWatcher.
func (a *API) OnX509ContextWatchError(err error) {
	if errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled {
		return // it is we who end
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = a.explain(err)
}

// explain says in words what the answers of the Workload API mean that are met most.
func (a *API) explain(err error) error {
	address, missing := addressOf(a.address)
	if missing != nil {
		return missing
	}
	switch said := status.Convert(err); said.Code() {
	case codes.PermissionDenied:
		return fmt.Errorf("the SPIFFE Workload API at %s gives this process no identity (%s): is it registered there?", address, said.Message())
	case codes.DeadlineExceeded:
		return fmt.Errorf("the SPIFFE Workload API at %s does not answer in time", address)
	case codes.Unavailable:
		return fmt.Errorf("the SPIFFE Workload API at %s cannot be reached: %s", address, said.Message())
	}
	return fmt.Errorf("the SPIFFE Workload API at %s: %w", address, err)
}
