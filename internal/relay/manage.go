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

// runManager reports readiness, state and liveness to the service manager.
func (r *Relay) runManager(ctx context.Context) error {
	r.manager.Ready() // the ports are open
	return r.manager.Run(ctx, r.summary, map[string]func(context.Context) error{
		"sources": func(context.Context) error { r.supervisor.Status(); return nil },
		"view":    r.view.Alive,
		"mcp":     r.catalogs.mcp.Alive,
		"envoy":   r.catalogs.envoy.Alive,
		"streams": func(context.Context) error { r.engine.Clients(); return nil },
	})
}

// summary describes the relay in a line, with problems first.
func (r *Relay) summary() string {
	var problems []string
	statuses := r.supervisor.Status()
	for _, source := range statuses {
		switch {
		case source.State != sources.Healthy:
			problems = append(problems, fmt.Sprintf("%s is %s", source.Name, source.State))
		case source.Held != nil:
			problems = append(problems, source.Name+" holds back a loss")
		}
	}
	text := fmt.Sprintf("objects %d, sources %d, clients %d", r.view.Snapshot().Len(), len(statuses), r.engine.Streams())
	if !r.view.Synced() {
		text += "; not ready"
	}
	if len(problems) > 0 {
		text = strings.Join(problems, ", ") + "; " + text
	}
	return text
}

// The first read of all sources makes much garbage, in memory that the relay needs later anyway. Rare garbage
// collection saves a third of the processor time (100,000 files). It ends when this process has read all sources, or
// after a minute, since a source may never be read. A memory limit (GOMEMLIMIT) still makes collections more frequent.
const (
	startupGCPercent = 400
	startupLimit     = time.Minute
	startupGrace     = 5 * time.Second // for the first clients; then the system gets unused memory back
)

// relaxGC makes garbage collection rare until the caller calls end, unless GOGC is set.
func relaxGC() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	debug.SetGCPercent(startupGCPercent)
	return func() { debug.SetGCPercent(100) } // the default, since GOGC is not set
}

// awaitStartup restores normal garbage collection after the start.
func (r *Relay) awaitStartup(ctx context.Context) error {
	startup, cancel := context.WithTimeout(ctx, startupLimit)
	defer cancel()
	r.supervisor.AwaitRead(startup)
	r.endStartup()
	select {
	case <-ctx.Done():
	case <-time.After(startupGrace):
		debug.FreeOSMemory()
	}
	return nil
}

// awaitSync waits until each source was read, and reports whether that was before ctx ended.
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
