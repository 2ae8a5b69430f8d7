package dial

import (
	"context"
	"sync"
)

// Lifeline ends blocking queries to a Consul that hangs: their connections stay open, and nothing answers. It is safe
// for concurrent use.
type Lifeline struct {
	mu      sync.Mutex
	queries map[*context.CancelCauseFunc]bool
}

// Begin returns the context of a query. end ends the query, and returns its error, or the cause of Cut.
func (l *Lifeline) Begin(ctx context.Context) (query context.Context, end func(error) error) {
	query, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queries == nil {
		l.queries = make(map[*context.CancelCauseFunc]bool)
	}
	l.queries[&cancel] = true
	return query, func(err error) error {
		l.mu.Lock()
		delete(l.queries, &cancel)
		l.mu.Unlock()
		cause := context.Cause(query)
		cancel(nil)
		if err != nil && ctx.Err() == nil && cause != nil {
			return cause
		}
		return err
	}
}

// Cut ends all queries with an error.
func (l *Lifeline) Cut(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for cancel := range l.queries {
		(*cancel)(cause)
	}
}
