package dubbo

import (
	"context"
	"errors"
	"time"

	"tributary/internal/worker"
	"tributary/sources/dubbo/provider"
)

// asker asks an instance for its metadata. The answer may be for another revision, e.g. from before all services were exported. how names
// the method, for messages.
type asker interface {
	Ask(ctx context.Context, i provider.Instance) (m provider.Metadata, how string, err error)
}

// nextAfter is how long askAny waits for an answer before it asks the next instance as well.
const nextAfter = 300 * time.Millisecond

// askAny asks instances one after another until one answers, starting the next after nextAfter.
func askAny(ctx context.Context, a asker, instances []provider.Instance) (provider.Metadata, string, error) {
	if len(instances) == 0 {
		return provider.Metadata{}, "", errors.New("no instance says how to ask it")
	}
	type answer struct {
		m   provider.Metadata
		how string
		err error
	}
	answers := make(chan answer, len(instances)) // so that no worker blocks
	workers, asking := worker.New(ctx)
	defer workers.Stop()
	var reasons []error
	for asked := 0; len(reasons) < len(instances); {
		var next <-chan time.Time
		if asked < len(instances) {
			i := instances[asked]
			asked++
			workers.Go(func() {
				m, how, err := a.Ask(asking, i)
				answers <- answer{m, how, err}
			})
			next = time.After(nextAfter)
		}
		select {
		case <-asking.Done():
			workers.Stop()
			return provider.Metadata{}, "", errors.Join(append(reasons, workers.Wait(), ctx.Err())...)
		case one := <-answers:
			if one.err == nil {
				return one.m, one.how, nil
			}
			reasons = append(reasons, one.err)
		case <-next:
		}
	}
	return provider.Metadata{}, "", errors.Join(reasons...)
}
