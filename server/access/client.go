package access

import (
	"context"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"tributary/server/identity"
)

// client is a stream or call.
type client struct {
	// read-only
	guard      *Guard
	connection *identity.Identity
	headers    []string // Authorization; secret
	cancel     context.CancelCauseFunc
	ended      chan struct{} // closed after the stream ended

	mu       sync.Mutex
	identity *identity.Identity // nil until authenticated, then read-only
	expiry   *time.Timer        // ends the stream when the identity expires; or nil
	services []string           // in use
	decided  bool               // node and rights are set
	node     string
	rights   *Rights
}

type clientKey struct{}

// admit authenticates a client. The context ends with a gRPC status as its cause when the client loses its identity or
// rights. The caller calls leave after the stream.
func (g *Guard) admit(ctx context.Context) (context.Context, *client, error) {
	c := &client{
		guard: g, connection: &identity.Identity{}, headers: metadata.ValueFromIncomingContext(ctx, "authorization"),
		ended: make(chan struct{}),
	}
	if remote, ok := peer.FromContext(ctx); ok {
		if tls, ok := remote.AuthInfo.(credentials.TLSInfo); ok {
			c.connection = identity.FromConnection(remote.Addr, &tls.State)
		} else {
			c.connection = identity.FromConnection(remote.Addr, nil)
		}
	}
	ctx, c.cancel = context.WithCancelCause(context.WithValue(ctx, clientKey{}, c))
	g.mu.Lock()
	g.clients[c] = struct{}{} // before authentication, so that a policy change in between rechecks the client
	g.mu.Unlock()
	if err := c.authenticate(); err != nil {
		c.leave()
		return nil, nil, g.refuse(c.connection, err)
	}
	return ctx, c, nil
}

// leave releases the client after its stream.
func (c *client) leave() {
	if c.expiry != nil {
		c.expiry.Stop()
	}
	c.guard.mu.Lock()
	delete(c.guard.clients, c)
	c.guard.mu.Unlock()
	c.cancel(nil)
	close(c.ended)
}

// authenticate sets the identity of the client. A client without rights by any node ID is refused.
func (c *client) authenticate() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	policy := c.guard.policy.Load()
	client, err := policy.authenticate(c.connection, c.headers, policy.Trust)
	if err != nil {
		return err
	}
	if !policy.Rules.admit(client) {
		return errNoRights(client)
	}
	if c.identity = client; !client.Expires.IsZero() {
		c.expiry = time.AfterFunc(time.Until(client.Expires), func() { c.end(errExpired) })
	}
	return nil
}

// end ends the stream of an authenticated client.
func (c *client) end(reason error) {
	_ = c.guard.refuse(c.identity, reason)
	c.cancel(reason)
}

var errExpired = status.Error(codes.Unauthenticated, identity.ErrExpired.Error())

// recheck returns an error if the policy gives the client another identity or other rights.
func (c *client) recheck(policy *Policy) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.identity == nil {
		return nil // authenticate uses the present policy
	}
	client, err := policy.authenticate(c.connection, c.headers, policy.Trust)
	switch {
	case err != nil:
		return err
	case client.String() != c.identity.String():
		return errRightsChanged
	case !policy.Rules.admit(client):
		return errNoRights(client)
	}
	for _, service := range c.services {
		if err := policy.checkService(client, service); err != nil {
			return err
		}
	}
	if !c.decided {
		return nil
	}
	rights, err := policy.rights(client, c.node)
	if err == nil && rights.Key() != c.rights.Key() {
		err = errRightsChanged
	}
	return err
}

// decide returns the rights of the client, and keeps them for the stream.
func (c *client) decide(node string) (*Rights, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decided {
		return c.rights, nil
	}
	rights, err := c.guard.policy.Load().rights(c.identity, node)
	if err != nil {
		return nil, c.guard.refuse(c.identity, err)
	}
	c.decided, c.node, c.rights = true, node, rights
	return rights, nil
}

// use returns an error if the client may not use a service. The stream ends when the client loses this right.
func (c *client) use(service string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.guard.policy.Load().checkService(c.identity, service); err != nil {
		return c.guard.refuse(c.identity, err)
	}
	c.services = append(c.services, service)
	return nil
}

// RightsOf returns the rights of the client of a stream. The first call decides them by the identity and the node ID.
// An error is a gRPC status that ends the stream. Without a guard, everything is allowed.
func RightsOf(ctx context.Context, node *corev3.Node) (*Rights, error) {
	if c, ok := ctx.Value(clientKey{}).(*client); ok {
		return c.decide(node.GetId())
	}
	return nil, nil //nolint:nilnil // nil allows everything
}

// Identity returns the identity that the client of a stream has proven; empty without a proof. It contains no secrets.
func Identity(ctx context.Context) string {
	if c, ok := ctx.Value(clientKey{}).(*client); ok && c.identity.IsAuthenticated() {
		return c.identity.String()
	}
	return ""
}
