package spiffe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// fetchTimeout limits a query: the Workload API is on this machine, and answers from memory.
	fetchTimeout = 5 * time.Second
	// retryInterval is the pause after an error that ends the watch of the library.
	retryInterval = 5 * time.Second
)

// API is a client of a Workload API. It keeps the last credentials while the API is unreachable. It is safe for
// concurrent use.
type API struct {
	address string

	mu   sync.Mutex
	last *Credentials
	err  error // of the last answer
}

// New returns a client of the Workload API at an address, or at $SPIFFE_ENDPOINT_SOCKET if the address is empty. It
// does not connect.
func New(address string) *API {
	return &API{address: cmp.Or(address, os.Getenv(workloadapi.SocketEnv))}
}

// Check returns an error for an invalid address.
func (a *API) Check() error { return CheckAddress(a.address) }

// Last returns the last credentials, which are nil before the first answer, and the error of the last answer.
func (a *API) Last() (*Credentials, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.err
}

// Ask queries the API. If the query fails, Ask returns the last credentials until their certificate expires.
func (a *API) Ask(ctx context.Context) (*Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	answer, err := workloadapi.FetchX509Context(ctx, workloadapi.WithAddr(a.address))
	if err == nil {
		a.OnX509ContextUpdate(answer)
	} else {
		a.OnX509ContextWatchError(err)
	}
	last, lastErr := a.Last()
	if err != nil && (last == nil || !time.Now().Before(last.SVIDs[0].Certificates[0].NotAfter)) {
		return nil, lastErr
	}
	return last, nil
}

// Run watches the API until ctx ends.
func (a *API) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := workloadapi.WatchX509Context(ctx, a, workloadapi.WithAddr(a.address)); err != nil {
			a.OnX509ContextWatchError(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// OnX509ContextUpdate implements workloadapi.X509ContextWatcher. Unchanged credentials keep their pointer.
func (a *API) OnX509ContextUpdate(answer *workloadapi.X509Context) {
	next := (*Credentials)(answer)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err = nil; !next.Equal(a.last) {
		a.last = next
	}
}

// OnX509ContextWatchError implements workloadapi.X509ContextWatcher. It ignores the end of the context of Run.
func (a *API) OnX509ContextWatchError(err error) {
	if errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = a.explain(err)
}

// explain translates frequent errors of the Workload API.
func (a *API) explain(err error) error {
	answer, invalid := status.Convert(err), a.Check()
	switch {
	case a.address == "":
		return fmt.Errorf("there is no workloadAPI, and $%s is not set", workloadapi.SocketEnv)
	case invalid != nil:
		return invalid
	case answer.Code() == codes.PermissionDenied:
		err = fmt.Errorf(" gives this process no identity (%s): is it registered there?", answer.Message())
	case answer.Code() == codes.DeadlineExceeded:
		err = errors.New(" does not answer in time")
	case answer.Code() == codes.Unavailable:
		err = errors.New(" cannot be reached: " + answer.Message())
	default:
		err = fmt.Errorf(": %w", err)
	}
	return fmt.Errorf("the SPIFFE Workload API at %s%w", a.address, err)
}
