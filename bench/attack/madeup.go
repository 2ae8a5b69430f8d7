package attack

import (
	"context"
	"fmt"
	"time"

	"tributary/bench/wire"
)

// makeUpProfiles is a sidecar with a unique folder of credentials. It subscribes to all clusters, stays for three
// seconds, and comes back with another folder.
func makeUpProfiles(ctx context.Context, r *run, n int) error {
	node := wire.Node(fmt.Sprintf("sidecar~127.0.0.1~envoy-%d.bench~bench.svc.cluster.local", n), map[string]string{
		"NAMESPACE": "bench", "ISTIO_VERSION": "1.27.9", "CREDENTIALS": fmt.Sprintf("/made/up/%d", r.sent.Load()+int64(n)<<32),
	})
	return r.visit(ctx, n, wire.Subscription{Delta: true, Node: node, TypeURL: clusters}, 3*time.Second)
}

// makeUpRevisions is an istiod of a unique revision. It subscribes to everything of a kind, goes, and comes back with
// another revision.
func makeUpRevisions(ctx context.Context, r *run, n int) error {
	node := wire.Node("sidecar~127.0.0.1~istiod.bench~bench.svc.cluster.local", map[string]string{
		"GENERATOR": "api", "ISTIO_REVISION": fmt.Sprintf("made-up-%d-%d", n, r.sent.Load()),
	})
	return r.visit(ctx, n, wire.Subscription{Delta: true, Node: node, TypeURL: r.TypeURL}, time.Second/5)
}

// visit sends a subscription and reads responses for a while.
func (r *run) visit(ctx context.Context, n int, subscription wire.Subscription, stay time.Duration) error {
	attackCtx := ctx
	ctx, cancel := context.WithTimeout(ctx, stay)
	defer cancel()
	s, hangUp, err := r.stream(ctx, n, wire.MethodDelta)
	if err != nil {
		return err
	}
	defer hangUp()
	first := wire.Bytes(subscription.First())
	r.sent.Add(1)
	if err := s.SendMsg(&first); err != nil {
		return drain(s)
	}
	if err := drain(s); ctx.Err() == nil || attackCtx.Err() != nil {
		return err
	}
	return nil
}
