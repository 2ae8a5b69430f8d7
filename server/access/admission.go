package access

import (
	"context"
	"crypto/x509"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/server/identity"
)

// Policy decides the identities and rights of clients.
type Policy struct {
	Rules Rules // nil allows everything
	// Previous are the rules before a reload, until the reload ends; nil at other times. A client is served only if Rules
	// and Previous give it the same rights.
	Previous      *Rules
	Authenticator *identity.Authenticator // nil accepts no tokens
	// Trust and AdminTrust verify a certificate of an xDS or admin client again; nil accepts each certificate.
	Trust, AdminTrust func(chain []*x509.Certificate) error
}

// authenticate returns the identity of a connection that sends these Authorization headers. The certificate is verified
// again, because the connection may be older than the present authorities.
func (p *Policy) authenticate(
	connection *identity.Identity, headers []string, trust func(chain []*x509.Certificate) error,
) (*identity.Identity, error) {
	client, err := p.Authenticator.Authenticate(connection, headers)
	if err == nil {
		err = client.Verify(trust)
	}
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return client, nil
}

// admit returns the identity of a client of the xDS port. It returns an error if no rule matches, whatever the node ID.
func (p *Policy) admit(connection *identity.Identity, headers []string) (*identity.Identity, error) {
	client, err := p.authenticate(connection, headers, p.Trust)
	if err == nil && !p.Rules.admit(client) {
		err = errNoRights(client)
	}
	return client, err
}

// errNoRights refuses a client that no rule matches. The message has the identity, which the client may know.
func errNoRights(client *identity.Identity) error {
	return status.Errorf(codes.PermissionDenied, "no access rule matches %s", client)
}

// errRightsChanged ends the streams of a client after its rights changed, and refuses the client until a reload ends.
var errRightsChanged = status.Error(codes.Unavailable, "the rights of this client have changed: connect again")

// rights returns the rights of a client with a node ID.
func (p *Policy) rights(client *identity.Identity, node string) (*Rights, error) {
	rights, err := p.Rules.rights(client, node)
	if err != nil || p.Previous == nil {
		return rights, err
	}
	if previous, err := p.Previous.rights(client, node); err != nil || previous.Key() != rights.Key() {
		return nil, errRightsChanged
	}
	return rights, nil
}

func (rules Rules) rights(client *identity.Identity, node string) (*Rights, error) {
	if rule := rules.Find(client, node); rule != nil {
		return rule.Rights, nil
	}
	return nil, errNoRights(client)
}

// Admission admits the clients of a gRPC server that an access rule matches. It ends the streams of clients whose
// identity or rights change; these connect again. It is safe for concurrent use.
type Admission struct {
	// read-only
	log        *slog.Logger
	logLimiter *rate.Limiter
	refusals   *prometheus.CounterVec

	policy atomic.Pointer[Policy]

	mu      sync.Mutex
	clients map[*client]struct{}
}

// logRate limits the refusals that are logged in a second. The metric counts all.
const logRate = 10

// refusalReasons are the reasons of the metric by gRPC status.
var refusalReasons = map[codes.Code]string{
	codes.Unauthenticated:  "identity",
	codes.PermissionDenied: "access",
	codes.Unavailable:      "changed",
}

// NewAdmission returns an admission with a policy.
func NewAdmission(policy Policy, log *slog.Logger, metrics prometheus.Registerer) *Admission {
	admission := &Admission{
		log:        log,
		logLimiter: rate.NewLimiter(logRate, 10*logRate),
		clients:    make(map[*client]struct{}),
		refusals: promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "tributary_access_refusals_total",
			Help: "Streams and calls that were refused or ended: the certificate or token of the client is invalid " +
				"(identity), no rule allows the request (access), or the rights of the client have changed since it connected " +
				"(changed).",
		}, []string{"reason"}),
	}
	for _, reason := range refusalReasons {
		admission.refusals.WithLabelValues(reason)
	}
	admission.policy.Store(&policy)
	return admission
}

// endTimeout limits the wait for streams that end. A stream that is sending ends after its message.
const endTimeout = time.Second

// Set replaces the policy, and rechecks all clients: see Recheck.
func (a *Admission) Set(policy Policy) {
	a.policy.Store(&policy)
	a.Recheck()
}

// Policy returns the policy of the last Set.
func (a *Admission) Policy() Policy { return *a.policy.Load() }

// Recheck ends the streams of clients with another identity or other rights, and waits for their end, at most until
// endTimeout. Call it after a change of trust.
func (a *Admission) Recheck() {
	var ending []*client
	for _, c := range a.snapshot() {
		if err := c.recheck(a.policy.Load()); err != nil {
			c.end(err)
			ending = append(ending, c)
		}
	}
	timeout := time.After(endTimeout)
	for _, c := range ending {
		select {
		case <-c.ended:
		case <-timeout:
			return
		}
	}
}

// refreshInterval is the interval between reads of the files of tokens and keys.
const refreshInterval = time.Second

// Run reads the files of tokens and keys again when they change, until ctx ends.
func (a *Admission) Run(ctx context.Context) error {
	ticker := time.NewTicker(refreshInterval)
	defer ticker.Stop()
	for {
		if a.policy.Load().Authenticator.Refresh() {
			a.Recheck()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (a *Admission) snapshot() []*client {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.clients))
}

// refuse logs and counts a refusal, and returns its error.
func (a *Admission) refuse(client *identity.Identity, err error) error {
	reason := refusalReasons[status.Code(err)]
	if reason == "" {
		return err
	}
	a.refusals.WithLabelValues(reason).Inc()
	if a.logLimiter.Allow() {
		address := client.Address.String()
		if client.Socket {
			address = "a unix socket"
		}
		a.log.Warn("client refused", "peer", address, "identity", client.String(), "err", status.Convert(err).Message())
	}
	return err
}

// AllowedForNode returns the rights of the connected clients with a node ID. decided is false if no client with this
// node ID is connected, or if several have different rights.
func (a *Admission) AllowedForNode(node string) (rights *Rights, decided bool) {
	if a.policy.Load().Rules == nil {
		return nil, true
	}
	for _, c := range a.snapshot() {
		c.mu.Lock()
		current, matches := c.rights[node]
		c.mu.Unlock()
		if matches && decided && current.Key() != rights.Key() {
			return nil, false
		}
		if matches {
			rights, decided = current, true
		}
	}
	return rights, decided
}

// AuthorizeAdmin returns an error with a gRPC status if a client of the admin server may not send a request. Its
// certificate must be trusted. If the
// request needs a right, the client must have an identity and, with access rules, the right to use the service Admin.
// Other requests need no token: an invalid one does not refuse them.
func (a *Admission) AuthorizeAdmin(connection *identity.Identity, headers []string, needsRight bool) error {
	policy := a.policy.Load()
	if !needsRight {
		headers = nil
	}
	client, err := policy.authenticate(connection, headers, policy.AdminTrust)
	switch {
	case err != nil || !needsRight:
	case !client.IsAuthenticated():
		err = status.Error(codes.Unauthenticated, "a token or a client certificate is needed")
	default:
		var rights *Rights
		if rights, err = policy.rights(client, ""); err == nil {
			err = rights.checkService(client, Admin)
		}
	}
	return a.refuse(connection, err)
}
