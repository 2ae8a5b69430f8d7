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
	admission  *Admission
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

// admit authenticates a client, and refuses it if no rule matches. The returned context ends when the identity or the
// rights of the client change; its cause is a gRPC status. The caller calls leave after the stream.
func (a *Admission) admit(ctx context.Context) (context.Context, *client, error) {
	newClient := &client{
		admission:  a,
		connection: &identity.Identity{},
		headers:    metadata.ValueFromIncomingContext(ctx, "authorization"),
		ended:      make(chan struct{}),
		rights:     make(map[string]*Rights),
	}
	if remote, ok := peer.FromContext(ctx); ok {
		var state *tls.ConnectionState
		if info, secure := remote.AuthInfo.(credentials.TLSInfo); secure {
			state = &info.State
		}
		newClient.connection = identity.FromConnection(remote.Addr, state)
	}
	ctx, newClient.cancel = context.WithCancelCause(context.WithValue(ctx, clientKey{}, newClient))
	newClient.mu.Lock() // Recheck waits until the client is admitted
	defer newClient.mu.Unlock()
	a.mu.Lock()
	a.clients[newClient] = struct{}{}
	a.mu.Unlock()
	admitted, err := a.policy.Load().admit(newClient.connection, newClient.headers)
	if err != nil {
		newClient.leave()
		return nil, nil, a.refuse(newClient.connection, err)
	}
	newClient.identity = admitted
	if !admitted.Expires.IsZero() {
		newClient.expiry = time.AfterFunc(time.Until(admitted.Expires), func() { newClient.end(errExpired) })
	}
	return ctx, newClient, nil
}

// leave forgets the client after its stream.
func (c *client) leave() {
	if c.expiry != nil {
		c.expiry.Stop()
	}
	c.admission.mu.Lock()
	delete(c.admission.clients, c)
	c.admission.mu.Unlock()
	c.cancel(nil)
	close(c.ended)
}

var errExpired = status.Error(codes.Unauthenticated, identity.ErrExpired.Error())

// end ends the stream of an admitted client.
func (c *client) end(reason error) { c.cancel(c.admission.refuse(c.identity, reason)) }

// recheck returns an error if a policy gives the client another identity or other rights.
func (c *client) recheck(policy *Policy) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.identity == nil {
		return nil // it was not admitted
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

// rightsFor returns the rights of the client with a node ID. From now on, the stream ends when they change.
func (c *client) rightsFor(node string) (*Rights, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rights, used := c.rights[node]; used {
		return rights, nil
	}
	rights, err := c.admission.policy.Load().rights(c.identity, node)
	if err != nil {
		return nil, c.admission.refuse(c.identity, err)
	}
	c.rights[node] = rights
	return rights, nil
}

// RightsOf returns the rights of the client of a stream by its identity and node ID. An error is a gRPC status that
// ends the stream. Without an admission, everything is allowed.
func RightsOf(ctx context.Context, node *corev3.Node) (*Rights, error) {
	if c, ok := ctx.Value(clientKey{}).(*client); ok {
		return c.rightsFor(node.GetId())
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
	rights, err := c.rightsFor("")
	if err == nil {
		err = c.admission.refuse(c.identity, rights.checkService(c.identity, name))
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
