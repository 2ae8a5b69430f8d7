package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"tributary/server/identity"
	"tributary/server/xds"
)

// picky is an Envoy that has the routes of port 80, and rejects what is BAD.
type picky struct {
	leave func()

	mu   sync.Mutex
	has  string
	gone error
}

func (r *rig) picky(t *testing.T, token string) *picky {
	t.Helper()
	conn, err := grpc.NewClient(r.XDS().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.WithoutCancel(t.Context()), "authorization", "Bearer "+token))
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(t, err)
	p, done := &picky{}, make(chan struct{})
	p.leave = sync.OnceFunc(func() {
		cancel()
		_ = conn.Close()
		<-done
	})
	t.Cleanup(p.leave)
	go func() {
		defer close(done)
		err := stream.Send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "picky"}, TypeUrl: xds.RouteURL, ResourceNamesSubscribe: []string{"80"}})
		for err == nil {
			var resp *discovery.DeltaDiscoveryResponse
			if resp, err = stream.Recv(); err != nil {
				break
			}
			ack := &discovery.DeltaDiscoveryRequest{TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce()}
			for _, one := range resp.GetResources() {
				if body := one.GetResource().GetValue(); bytes.Contains(body, []byte("BAD")) {
					ack.ErrorDetail = &rpcstatus.Status{Message: "something is wrong with it"}
				} else {
					p.mu.Lock()
					p.has = string(body)
					p.mu.Unlock()
				}
			}
			err = stream.Send(ack)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.gone = err
	}()
	return p
}

// sees waits until the routes have a text.
func (p *picky) sees(t *testing.T, text string) {
	t.Helper()
	eventually(t, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !strings.Contains(p.has, text) {
			return fmt.Errorf("no %q in %q (%w)", text, p.has, errors.Join(errNot, p.gone))
		}
		return nil
	})
}

// answers are VirtualServices that answer with a text.
func answers(namespace string, texts ...string) (text string) {
	for i, body := range texts {
		text += fmt.Sprintf("apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: vs%d, namespace: %s}\n"+
			"spec: {hosts: [vs%d.%s.internal], http: [{directResponse: {status: 200, body: {string: %s}}}]}\n---\n", i, namespace, i, namespace, body)
	}
	return text
}

func (r *rig) quarantined(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, func() error {
		var names []string
		for _, q := range r.catalogs.rejected() {
			names = append(names, q.Namespace+"/"+q.Name)
		}
		if !slices.Equal(names, want) {
			return fmt.Errorf("in quarantine are %v, and not %v", names, want)
		}
		return nil
	})
}

// What those reject who may see a part only is in quarantine for them over restarts, and for as long as there is a rule that allows that part.
func TestTheQuarantineOfARuleOutlivesARestart(t *testing.T) {
	dir := t.TempDir()
	token, line, err := identity.NewToken("prod")
	require.NoError(t, err)
	write(t, dir+"/tokens", line)
	configure := func(rules string) {
		write(t, dir+"/tributary.yaml", "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: state\nidentity: {tokens: tokens}\nconfigSources: [{address: 'fs://"+dir+"/rules'}]\naccess:\n"+rules)
	}
	const prod, other = "- {who: {token: [prod]}, allow: {namespaces: [prod]}}\n", "- {who: {token: [prod]}, allow: {namespaces: [test]}}\n"
	configure(prod)
	write(t, dir+"/rules/prod.yaml", answers("prod", "first.", "neighbour."))
	write(t, dir+"/rules/test.yaml", answers("test", "of-test."))
	r := start(t, dir)
	r.awaitReady(t)
	one := r.picky(t, token)
	one.sees(t, "first.")
	write(t, dir+"/rules/prod.yaml", answers("prod", "BAD", "next."))
	one.sees(t, "next.")
	one.sees(t, "first.")
	r.quarantined(t, "prod/vs0")
	eventually(t, func() error {
		if len(glob(t, dir+"/state/envoy-quarantine-*")) == 0 {
			return errNot
		}
		return nil
	})
	one.leave()
	r.stop()
	write(t, dir+"/state/.envoy-quarantine-of-a-crash", "{")

	r = start(t, dir)
	r.awaitReady(t)
	one = r.picky(t, token) // which knows nothing of before
	one.sees(t, "first.")
	r.quarantined(t, "prod/vs0")
	require.Empty(t, glob(t, dir+"/state/.envoy-quarantine*"), "what a crash has left half made")

	// It goes with the rule, also while somebody has it.
	configure(other)
	_, err = r.Reload(t.Context())
	require.NoError(t, err)
	require.Empty(t, glob(t, dir+"/state/envoy-quarantine-*"))
	two := r.picky(t, token)
	two.sees(t, "of-test.")
	r.quarantined(t)
	configure(prod)
	_, err = r.Reload(t.Context())
	require.NoError(t, err)
	r.quarantined(t)
	r.picky(t, token).sees(t, "next.") // what is BAD is rejected anew, and left out
	r.quarantined(t, "prod/vs0")
	r.stop()

	// A rule that is gone while nothing runs is gone.
	configure(other)
	start(t, dir)
	require.Empty(t, glob(t, dir+"/state/envoy-quarantine-*"))
}
