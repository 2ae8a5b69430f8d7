package access

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"tributary/server/identity"
)

// Policy is what is in force.
type Policy struct {
	Rules Rules // nil allows everything
	// Previous are the rules before a reload, while the sources change; nil at other times. Meanwhile only clients with
	// the same rights by both rules are served.
	Previous      *Rules
	Authenticator *identity.Authenticator               // nil takes no tokens
	Trust         func(chain []*x509.Certificate) error // whether a certificate is still one of whom we trust; all are if nil
	AdminTrust    func(chain []*x509.Certificate) error // the same of those who come to the admin server
}

// prove returns who somebody is by what he shows, and what is trusted now: his connection may be older than that.
func (p *Policy) prove(i *identity.Identity, headers []string, trust func(chain []*x509.Certificate) error) (*identity.Identity, error) {
	who, err := p.Authenticator.Authenticate(i, headers)
	if err == nil {
		err = who.Trusted(trust)
	}
	if err == nil && !who.Expires.IsZero() && !time.Now().Before(who.Expires) {
		err = identity.ErrExpired
	}
	if err != nil {
		return nil, unauthenticated(err)
	}
	return who, nil
}

// Guard admits clients of a gRPC server that have at least one right. It ends streams after the client's identity or rights
// changed, and the client connects again. It is safe for concurrent use.
type Guard struct {
	// read-only
	log      *slog.Logger
	logged   *rate.Limiter
	refusals *prometheus.CounterVec

	policy atomic.Pointer[Policy]

	mu      sync.Mutex
	clients map[*client]struct{}
}

// linesLogged is how many refusals a second are logged; the metric counts all.
const linesLogged = 10

// The reasons of the metric.
const (
	reasonIdentity = "identity" // what it showed is not right, or no longer
	reasonAccess   = "access"   // it is allowed nothing
	reasonChanged  = "changed"  // other rules apply to it than when it came
)

// NewGuard returns a guard with a policy.
func NewGuard(p Policy, log *slog.Logger, metrics prometheus.Registerer) *Guard {
	g := &Guard{
		log: log, logged: rate.NewLimiter(linesLogged, 10*linesLogged), clients: make(map[*client]struct{}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tributary_access_refusals_total",
			Help: "Streams and calls that were refused or ended: what the client showed is not right (identity), nothing is allowed to it " +
				"(access), or its rights have changed since it came (changed).",
		}, []string{"reason"}),
	}
	for _, reason := range []string{reasonIdentity, reasonAccess, reasonChanged} {
		g.refusals.WithLabelValues(reason)
	}
	if metrics != nil {
		metrics.MustRegister(g.refusals)
	}
	g.policy.Store(&p)
	return g
}

// Set puts another policy in force, and ends the streams that it concerns. When it returns they are sent nothing more, but for what they
// were being sent if they are slow to take it.
func (g *Guard) Set(p Policy) {
	g.policy.Store(&p)
	g.await(g.recheck())
}

// leaveWithin is how long streams that have to end are waited for. One that is being sent something ends when that is over.
const leaveWithin = time.Second

// await waits until streams have ended.
func (g *Guard) await(all []*client) {
	late := time.After(leaveWithin)
	for _, c := range all {
		select {
		case <-c.gone:
		case <-late:
			return
		}
	}
}

// Policy returns what is in force.
func (g *Guard) Policy() Policy { return *g.policy.Load() }

// Recheck ends the streams of which the client has not now what it had when it came: it is to be called when files of the policy have
// changed.
func (g *Guard) Recheck() { g.recheck() }

func (g *Guard) recheck() (ended []*client) {
	g.mu.Lock()
	all := make([]*client, 0, len(g.clients))
	for c := range g.clients {
		all = append(all, c)
	}
	g.mu.Unlock()
	for _, c := range all {
		if reason, err := c.recheck(g.policy.Load()); err != nil {
			g.refuse(c.who, reason, err)
			c.end(err)
			ended = append(ended, c)
		}
	}
	return ended
}

// refuse logs and counts a refusal.
func (g *Guard) refuse(i *identity.Identity, reason string, err error) {
	g.refusals.WithLabelValues(reason).Inc()
	if !g.logged.Allow() {
		return
	}
	from := i.Address.String()
	if i.Socket {
		from = "a unix socket"
	}
	g.log.Warn("client refused", "peer", from, "identity", i.String(), "err", status.Convert(err).Message())
}

// client is a stream.
type client struct {
	guard *Guard
	end   context.CancelCauseFunc
	gone  chan struct{} // closed when it has ended

	mu      sync.Mutex
	who     *identity.Identity // set once
	node    *string            // nil until it is known
	decided bool
	allowed *Allowed
}

type clientKey struct{}

// Of returns what the client of a stream is allowed, which is decided when it is asked for the first time, by who the client is and how it
// calls itself. An error, which carries a gRPC status, is what ends the stream. Without a guard everything is allowed.
func Of(ctx context.Context, node *corev3.Node) (*Allowed, error) {
	c, ok := ctx.Value(clientKey{}).(*client)
	if !ok {
		return nil, nil //nolint:nilnil // nil is everything
	}
	allowed, err := c.decide(node.GetId())
	if err != nil {
		c.guard.refuse(c.who, reasonAccess, err)
	}
	return allowed, err
}

// Identity returns what the client of a stream has proven to be; empty if nothing. It has no secrets.
func Identity(ctx context.Context) string {
	c, ok := ctx.Value(clientKey{}).(*client)
	if !ok {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.who == nil || !c.who.Proven() {
		return ""
	}
	return c.who.String()
}

// AllowedTo returns what those are allowed who are connected and call themselves node, and false if that cannot be told, since what is
// allowed depends on who somebody is, and there is nobody, or there are several who may see different things.
func (g *Guard) AllowedTo(node string) (allowed *Allowed, known bool) {
	if g.policy.Load().Rules == nil {
		return nil, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.clients {
		one, is := c.allows(node)
		if is && known && one.Key() != allowed.Key() {
			return nil, false
		}
		if is {
			allowed, known = one, true
		}
	}
	return allowed, known
}

// allows returns what the client is allowed, if it calls itself node and that was decided.
func (c *client) allows(node string) (*Allowed, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allowed, c.decided && c.node != nil && *c.node == node
}

func (c *client) decide(node string) (*Allowed, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decided {
		return c.allowed, nil
	}
	c.node = &node
	allowed, err := c.guard.policy.Load().allowed(c.who, c.node)
	if err != nil {
		return nil, err
	}
	c.decided, c.allowed = true, allowed
	return allowed, nil
}

// errNothing is what those are told who are allowed nothing. Who they are to us helps whoever looks for the reason, and is no secret from
// themselves.
func errNothing(i *identity.Identity) error {
	return status.Errorf(codes.PermissionDenied, "nothing is allowed to %s", i)
}

// errRightsChanged ends the streams of a client after its rights changed, and refuses the client until a reload is done.
var errRightsChanged = status.Error(codes.Unavailable, "the rights of this client have changed: connect again")

// allowed returns the rights of a client. They are preliminary while its node is not known.
func (p *Policy) allowed(client *identity.Identity, node *string) (*Allowed, error) {
	rights, err := allowedBy(p.Rules, client, node)
	if err != nil || p.Previous == nil {
		return rights, err
	}
	previous, err := allowedBy(*p.Previous, client, node)
	if err != nil || previous.Key() != rights.Key() {
		return nil, errRightsChanged
	}
	return rights, nil
}

func allowedBy(rules Rules, i *identity.Identity, node *string) (*Allowed, error) {
	if rules == nil {
		return nil, nil //nolint:nilnil // nil is everything
	}
	rule, undecided := rules.Of(i, node)
	switch {
	case rule == nil && undecided:
		return nil, nil //nolint:nilnil // it will be decided
	case rule == nil:
		return nil, errNothing(i)
	}
	return rule.Allow, nil
}

// recheck reports why the stream has to end: the identity is not valid any more, or the client has other rights than at
// the start.
func (c *client) recheck(p *Policy) (reason string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.who == nil {
		return "", nil // it will be looked at by what is in force
	}
	if err := p.Authenticator.Again(c.who, p.Trust); err != nil {
		return reasonIdentity, unauthenticated(err)
	}
	rights, err := p.allowed(c.who, c.node)
	switch {
	case errors.Is(err, errRightsChanged), err == nil && c.decided && rights.Key() != c.allowed.Key():
		return reasonChanged, errRightsChanged
	case err != nil:
		return reasonAccess, err
	}
	return "", nil
}

func unauthenticated(err error) error { return status.Error(codes.Unauthenticated, err.Error()) }

var errExpired = unauthenticated(identity.ErrExpired)

// admit finds out who a client is, and returns the context of its stream, which ends, with a gRPC status as its cause, when the client is
// to go.
func (g *Guard) admit(ctx context.Context) (_ context.Context, c *client, done func(), err error) {
	i := &identity.Identity{}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			i = identity.Of(p.Addr, &info.State)
		} else {
			i = identity.Of(p.Addr, nil)
		}
	}
	c = &client{guard: g, gone: make(chan struct{})}
	ctx, c.end = context.WithCancelCause(context.WithValue(ctx, clientKey{}, c))
	g.mu.Lock()
	g.clients[c] = struct{}{} // before it is looked at: a policy that comes meanwhile looks at it, too
	g.mu.Unlock()
	done = func() {
		g.mu.Lock()
		delete(g.clients, c)
		g.mu.Unlock()
		c.end(nil)
		close(c.gone)
	}
	reason, err := c.identify(i, metadata.ValueFromIncomingContext(ctx, "authorization"))
	if err != nil {
		g.refuse(i, reason, err)
		done()
		return nil, nil, nil, err
	}
	if until := c.who.Expires; !until.IsZero() {
		expire := time.AfterFunc(time.Until(until), func() {
			g.refuse(c.who, reasonIdentity, errExpired)
			c.end(errExpired)
		})
		leave := done
		done = func() { expire.Stop(); leave() }
	}
	return ctx, c, done, nil
}

func (c *client) identify(i *identity.Identity, headers []string) (reason string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.guard.policy.Load()
	who, err := p.prove(i, headers, p.Trust)
	if err != nil {
		return reasonIdentity, err
	}
	if _, err := p.allowed(who, nil); err != nil {
		return reasonAccess, err
	}
	c.who = who
	return "", nil
}

// unknown is a service that no rule can allow.
const unknown = "unknown"

// serviceOf returns the name by which rules allow the service of a method; empty for xDS, and for whoever watches our health. A single
// question about our health is open to everybody: load balancers ask it, and the answer tells nothing.
func serviceOf(method string) (name string, open bool) {
	switch service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/"); {
	case strings.HasPrefix(service, "envoy.service.status."):
		return CSDS, false
	case strings.HasPrefix(service, "envoy.service."):
		return "", false
	case service == "grpc.health.v1.Health":
		return "", !strings.HasSuffix(method, "/Watch")
	case strings.HasPrefix(service, "grpc.reflection."):
		return Reflection, false
	case strings.HasPrefix(service, "grpc.channelz."):
		return Channelz, false
	}
	return unknown, false
}

// service says whether the client may ask for a service, which is decided without a node.
func (c *client) service(name string) error {
	if name == "" {
		return nil
	}
	if name == unknown {
		return status.Error(codes.Unimplemented, "this service is not served to clients")
	}
	rules := c.guard.policy.Load().Rules
	if rules == nil {
		return nil
	}
	if rule, _ := rules.Of(c.who, nil); rule != nil && rule.Allow.Service(name) {
		return nil
	}
	err := status.Errorf(codes.PermissionDenied, "%s is not allowed to %s", name, c.who)
	c.guard.refuse(c.who, reasonAccess, err)
	return err
}

// Service returns an error, which carries a gRPC status, if the client of a stream may not ask for a service.
func Service(ctx context.Context, name string) error {
	if c, ok := ctx.Value(clientKey{}).(*client); ok {
		return c.service(name)
	}
	return nil
}

// Stream is a grpc.StreamServerInterceptor.
func (g *Guard) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	name, open := serviceOf(info.FullMethod)
	if open {
		return handler(srv, ss)
	}
	ctx, c, done, err := g.admit(ss.Context())
	if err != nil {
		return err
	}
	defer done()
	if err := c.service(name); err != nil {
		return err
	}
	return handler(srv, &guarded{ss, ctx})
}

// guarded is a stream that ends when its client is to go.
type guarded struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // that is what it is for
}

// Context implements grpc.ServerStream.
func (s *guarded) Context() context.Context { return s.ctx }

// Unary is a grpc.UnaryServerInterceptor.
func (g *Guard) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	name, open := serviceOf(info.FullMethod)
	if open {
		return handler(ctx, req)
	}
	ctx, c, done, err := g.admit(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := c.service(name); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// Change returns an error, which carries a gRPC status, if somebody may not change something on the admin server: he needs a proof of who
// he is, and, if there are rules, one that allows it. The headers are those named Authorization.
func (g *Guard) Change(i *identity.Identity, headers []string) error {
	reason, err := g.mayChange(i, headers)
	if err != nil {
		g.refuse(i, reason, err)
	}
	return err
}

// Known returns an error, which carries a gRPC status, if somebody who comes to the admin server has shown a certificate that is not
// trusted any more.
func (g *Guard) Known(i *identity.Identity) error {
	err := i.Trusted(g.policy.Load().AdminTrust)
	if err != nil {
		err = unauthenticated(err)
		g.refuse(i, reasonIdentity, err)
	}
	return err
}

func (g *Guard) mayChange(i *identity.Identity, headers []string) (reason string, err error) {
	p := g.policy.Load()
	who, err := p.prove(i, headers, p.AdminTrust)
	switch {
	case err != nil:
		return reasonIdentity, err
	case !who.Proven():
		return reasonIdentity, status.Error(codes.Unauthenticated, "a token or a client certificate is needed")
	}
	if rule, _ := p.Rules.Of(who, nil); p.Rules != nil && (rule == nil || !rule.Allow.Service(Admin)) {
		return reasonAccess, status.Errorf(codes.PermissionDenied, "changes are not allowed to %s", who)
	}
	return "", nil
}
