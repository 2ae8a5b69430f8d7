package relay

import (
	"context"
	"fmt"
	"strings"

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
