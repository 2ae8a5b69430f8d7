package relay

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"tributary/sources"
)

// managed has the service manager look after the relay.
func (r *Relay) managed(ctx context.Context) error {
	r.manager.Ready() // the ports are open
	return r.manager.Run(ctx, r.inWords, map[string]func(context.Context) error{
		"sources": func(context.Context) error { r.supervisor.Status(); return nil },
		"view":    r.view.Alive,
		"mcp":     r.catalogs.mcp.Alive,
		"envoy":   r.catalogs.envoy.Alive,
		"streams": func(context.Context) error { r.engine.Clients(); return nil },
	})
}

// inWords says how the relay is in one line: what is wrong comes first.
func (r *Relay) inWords() string {
	var wrong []string
	all := r.supervisor.Status()
	for _, s := range all {
		switch {
		case s.State != sources.Healthy:
			wrong = append(wrong, fmt.Sprintf("%s is %s", s.Name, s.State))
		case s.Held != nil:
			wrong = append(wrong, s.Name+" holds back a loss")
		}
	}
	text := fmt.Sprintf("objects %d, sources %d, clients %d", r.view.Snapshot().Len(), len(all), r.engine.Streams())
	if !r.view.Synced() {
		text += "; not ready"
	}
	if len(wrong) > 0 {
		text = strings.Join(wrong, ", ") + "; " + text
	}
	return text
}

func (o Options) manager() Manager {
	if o.Manager == nil {
		return unmanaged{}
	}
	return o.Manager
}

// unmanaged is the manager of a relay that has none.
type unmanaged struct{}

func (unmanaged) Ready()     {}
func (unmanaged) Reloading() {}
func (unmanaged) Stopping()  {}
func (unmanaged) Main(int)   {}
func (unmanaged) Run(context.Context, func() string, map[string]func(context.Context) error) error {
	return nil
}

// While everything is read for the first time there is much garbage and little else, and memory that will be needed anyway:
// to collect it seldom saves a third of the processor time (100,000 files). It ends when all sources were read by this
// process, or after a minute, since one may take for ever. A memory limit (GOMEMLIMIT) counts meanwhile, as it always does:
// the closer it is, the more often is collected.
const (
	startupGCPercent = 400
	startupLimit     = time.Minute
)

// starting counts the starts in this process that last, before the first of which garbage collection was as usual.
var starting struct {
	sync.Mutex
	count, usual int
}

// rarelyCollect makes garbage collection rare, unless GOGC says what is wanted, until the function is called that it returns.
func rarelyCollect() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	starting.Lock()
	defer starting.Unlock()
	if starting.count++; starting.count == 1 {
		starting.usual = debug.SetGCPercent(startupGCPercent)
	}
	return func() {
		starting.Lock()
		defer starting.Unlock()
		if starting.count--; starting.count == 0 {
			debug.SetGCPercent(starting.usual)
			debug.FreeOSMemory()
		}
	}
}

// endStart makes garbage collection usual again when the start is over.
func (r *Relay) endStart(ctx context.Context) error {
	defer r.started()
	ctx, cancel := context.WithTimeout(ctx, startupLimit)
	defer cancel()
	r.supervisor.AwaitRead(ctx)
	return nil
}

// awaitSync waits until everything was read once, and reports whether it was before ctx ended.
func (r *Relay) awaitSync(ctx context.Context) bool {
	for {
		changed := r.view.Changed()
		if r.view.Synced() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}
