package access

import (
	"context"
	"crypto/tls"
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
	identity *identity.Identity // nil until admitted, then read-only
	expiry   *time.Timer        // ends the stream when the identity expires; or nil
	rights   map[string]*Rights // in use, by node ID
}

type clientKey struct{}

// admit authenticates a client. A client without rights by any node ID is refused. The context ends with a gRPC status
// as its cause when the client gets another identity or other rights. The caller calls leave after the stream.
func (g *Guard) admit(ctx context.Context) (context.Context, *client, error) {
	newClient := &client{
		guard: g, connection: &identity.Identity{}, headers: metadata.ValueFromIncomingContext(ctx, "authorization"),
		ended: make(chan struct{}), rights: make(map[string]*Rights),
	}
	if remote, ok := peer.FromContext(ctx); ok {
		var state *tls.ConnectionState
		if info, secure := remote.AuthInfo.(credentials.TLSInfo); secure {
			state = &info.State
		}
		newClient.connection = identity.FromConnection(remote.Addr, state)
	}
	ctx, newClient.cancel = context.WithCancelCause(context.WithValue(ctx, clientKey{}, newClient))
	newClient.mu.Lock() // a policy change waits until the client is admitted, and then rechecks it
	defer newClient.mu.Unlock()
	g.mu.Lock()
	g.clients[newClient] = struct{}{}
	g.mu.Unlock()
	admitted, err := g.policy.Load().admit(newClient.connection, newClient.headers)
	if err != nil {
		newClient.leave()
		return nil, nil, g.refuse(newClient.connection, err)
	}
	if newClient.identity = admitted; !admitted.Expires.IsZero() {
		newClient.expiry = time.AfterFunc(time.Until(admitted.Expires), func() { newClient.end(errExpired) })
	}
	return ctx, newClient, nil
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

var errExpired = status.Error(codes.Unauthenticated, identity.ErrExpired.Error())

// end ends the stream of an admitted client.
func (c *client) end(reason error) { c.cancel(c.guard.refuse(c.identity, reason)) }

// recheck returns an error if a policy gives the client another identity or other rights.
func (c *client) recheck(policy *Policy) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.identity == nil {
		return nil // it was refused
	}
	admitted, err := policy.admit(c.connection, c.headers)
	if err != nil {
		return err
	}
	if admitted.String() != c.identity.String() {
		return errRightsChanged
	}
	for node, before := range c.rights {
		if rights, err := policy.rights(admitted, node); err != nil {
			return err
		} else if rights.Key() != before.Key() {
			return errRightsChanged
		}
	}
	return nil
}

// use returns the rights of the client with a node ID. Its stream ends when they change.
func (c *client) use(node string) (*Rights, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rights, used := c.rights[node]
	if used {
		return rights, nil
	}
	rights, err := c.guard.policy.Load().rights(c.identity, node)
	if err != nil {
		return nil, c.guard.refuse(c.identity, err)
	}
	c.rights[node] = rights
	return rights, nil
}

// RightsOf returns the rights of the client of a stream by its identity and node ID. An error is a gRPC status that
// ends the stream. Without a guard, everything is allowed.
func RightsOf(ctx context.Context, node *corev3.Node) (*Rights, error) {
	if c, ok := ctx.Value(clientKey{}).(*client); ok {
		return c.use(node.GetId())
	}
	return nil, nil //nolint:nilnil // nil allows everything
}

// RequireService returns an error with a gRPC status if the client of a stream may not use a service. The node ID does
// not count.
func RequireService(ctx context.Context, name string) error {
	c, ok := ctx.Value(clientKey{}).(*client)
	if !ok {
		return nil
	}
	rights, err := c.use("")
	if err == nil {
		err = c.guard.refuse(c.identity, rights.checkService(c.identity, name))
	}
	return err
}

// Identity returns the identity that the client of a stream has proven; empty without a proof. It contains no secrets.
func Identity(ctx context.Context) string {
	if c, ok := ctx.Value(clientKey{}).(*client); ok && c.identity.IsAuthenticated() {
		return c.identity.String()
	}
	return ""
}
