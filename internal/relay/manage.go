package relay

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
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

// While everything is read for the first time there is much garbage and little else, and memory that will be needed anyway:
// to collect it seldom saves a third of the processor time (100,000 files). It ends when all sources were read by this
// process, or after a minute, since one may take for ever. A memory limit (GOMEMLIMIT) counts meanwhile, as it always does:
// the closer it is, the more often is collected.
const (
	startupGCPercent = 400
	startupLimit     = time.Minute
	startupRest      = 5 * time.Second // for the first clients; then what the start leaves is given back to the system
)

// rarelyCollect makes garbage collection rare until the function is called that it returns, unless GOGC says what is wanted.
func rarelyCollect() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	debug.SetGCPercent(startupGCPercent)
	return func() { debug.SetGCPercent(100) } // the default, since GOGC is not set
}

// endStart makes garbage collection usual again when the start is over.
func (r *Relay) endStart(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, startupLimit)
	defer cancel()
	r.supervisor.AwaitRead(within)
	r.started()
	select {
	case <-ctx.Done():
	case <-time.After(startupRest):
		debug.FreeOSMemory()
	}
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
