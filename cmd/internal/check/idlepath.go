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

// Through is an address that an istiod uses to read from tributary, with any proxy or balancer on the way.
type Through struct {
	Client  *client.XDS   // its node ID is unique
	Hold    time.Duration // of the idle stream
	Holding func()        // called when the idle stream begins
}

// arrivalTimeout bounds the wait until a server lists a new client: the client's first request may still be on its way.
const arrivalTimeout = 5 * time.Second

// checkKeepalive holds an idle stream with the pings of an istiod, and reports the reason if the stream ends.
func (d *Doctor) checkKeepalive(ctx context.Context, cfg *config.Config) {
	if d.Through == nil || d.Offline {
		d.note(keepaliveCheck, Skipped, "no idle stream was held: name the address that istiod has for us with --through", "")
		return
	}
	address := d.Through.Client.Server
	arrived := true
	duration, err := d.Through.Client.Stay(ctx, d.Through.Hold, func() {
		d.Through.Holding()
		if d.Running != nil && cfg != nil && d.running != nil {
			arrived = d.listsClient(ctx, cfg, d.Through.Client.NodeID)
		}
	})
	if ctx.Err() != nil {
		return
	}
	rounded := duration.Round(time.Millisecond)
	if duration > time.Second {
		rounded = duration.Round(time.Second)
	}
	severity, message, advice := Error, fmt.Sprintf("%s: after %s %v", address, rounded, err), ""
	switch {
	case err == nil:
		severity, message = Fine, fmt.Sprintf("%s: an idle stream stood for %s", address, rounded)
	case errors.Is(err, client.ErrPings):
		advice = "another gRPC server answers there, not tributary: make it allow a ping every 30 s " +
			"(KeepaliveEnforcementPolicy of gRPC), or make it pass TCP on unchanged"
	case errors.Is(err, client.ErrSilent):
		advice = "a firewall or NAT on the way forgets idle connections: make it keep them for longer than the 30 s " +
			"between istiod's pings"
	case errors.Is(err, client.ErrEnded):
		advice = "unless tributary was stopped: raise the idle timeout of the balancer or proxy on the way above 30 s. " +
			"An HTTP proxy answers pings itself: make it never end idle streams or old connections, or pass TCP on unchanged"
	default:
		message = err.Error()
		advice = "check that the address is the one in istiod's configSources, and that this machine can reach it; " +
			"for TLS give --tls-ca, --tls-cert and --tls-key as istiod has them"
	}
	d.note(keepaliveCheck, severity, message, advice)
	if !arrived {
		d.note(keepaliveCheck, Warning,
			fmt.Sprintf("%s: the answering server is not the server that runs with %s", address, d.File),
			"check that the proxy or balancer on the way leads to this server, not to another replica")
	}
}

// listsClient reports whether the running server lists a client with a node ID.
func (d *Doctor) listsClient(ctx context.Context, cfg *config.Config, nodeID string) bool {
	for deadline := time.Now().Add(arrivalTimeout); ; time.Sleep(arrivalTimeout / 50) {
		running := d.Running(ctx, cfg)
		if running == nil || running.hasClient(nodeID) {
			return true
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return false
		}
	}
}

func (r *Running) hasClient(nodeID string) bool {
	for _, nodes := range r.NodesByType {
		if slices.Contains(nodes, nodeID) {
			return true
		}
	}
	return false
}
