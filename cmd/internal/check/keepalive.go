package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tributary/cmd/internal/client"
	"tributary/config"
)

// Through is an address by which an istiod reads from us, with all that is in between.
type Through struct {
	Client  *client.XDS   // its node is one of its own
	Hold    time.Duration // for how long an idle stream is to stand
	Holding func()        // told when it begins
}

// arrival is for how long a server may not know yet who asks.
const arrival = 5 * time.Second

// keepalive looks whether an idle stream stands, with the pings of an istiod.
func (d *Doctor) keepalive(ctx context.Context, cfg *config.Config) {
	if d.Through == nil || d.Offline {
		d.note(keepaliveCheck, Skipped, "no idle stream was held: name the address that istiod has for us with --through", "")
		return
	}
	address := d.Through.Client.Server
	arrived := true
	stood, err := d.Through.Client.Stay(ctx, d.Through.Hold, func() {
		d.Through.Holding()
		if d.Running != nil && cfg != nil && d.running != nil {
			arrived = d.sees(ctx, cfg, d.Through.Client.NodeID)
		}
	})
	if ctx.Err() != nil {
		return
	}
	after := stood.Round(time.Millisecond)
	if stood > time.Second {
		after = stood.Round(time.Second)
	}
	severity, said, fix := Error, fmt.Sprintf("%s: after %s %v", address, after, err), ""
	switch {
	case err == nil:
		severity, said = Fine, fmt.Sprintf("%s: an idle stream stood for %s", address, after)
	case errors.Is(err, client.ErrPings):
		fix = "it is not our port that does so: find what answers there, and have it allow a ping every 30 s (KeepaliveEnforcementPolicy of " +
			"gRPC), or have it pass TCP on as it is"
	case errors.Is(err, client.ErrSilent):
		fix = "a firewall or NAT in between forgets connections that are idle: have it keep them for longer than the 30 s after which istiod " +
			"pings"
	case errors.Is(err, client.ErrEnded):
		fix = "unless tributary was ended: raise the idle timeout of the balancer or proxy in between above 30 s; if it is one for HTTP, which " +
			"answers pings itself, have it never end idle streams, nor connections for their age, or pass TCP on as it is"
	default:
		said = err.Error()
		fix = "see that the address is the one in istiod's configSources, and can be reached from here; for TLS give --tls-ca, --tls-cert and " +
			"--tls-key as istiod has them"
	}
	d.note(keepaliveCheck, severity, said, fix)
	if !arrived {
		d.note(keepaliveCheck, Warning, fmt.Sprintf("%s: who answers there is not the server that runs with %s", address, d.File),
			"see that what is in between leads to this server; of several replicas it may have been another one")
	}
}

// sees reports whether the server that runs has a client of that node. A stream is there before the server knows what it asks for.
func (d *Doctor) sees(ctx context.Context, cfg *config.Config, node string) bool {
	for end := time.Now().Add(arrival); ; time.Sleep(arrival / 50) {
		now := d.Running(ctx, cfg)
		if now == nil || now.has(node) {
			return true
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return false
		}
	}
}

func (r *Running) has(node string) bool {
	for _, nodes := range r.Asked {
		if slices.Contains(nodes, node) {
			return true
		}
	}
	return false
}
