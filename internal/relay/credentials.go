package relay

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/config"
	"tributary/internal/spiffe"
	"tributary/internal/words"
	"tributary/server/access"
	"tributary/server/identity"
)

// credentialReloader updates the policy of the access guard when the configuration changes, or a file of tokens or keys that it names.
type credentialReloader struct {
	guard *access.Guard
	trust func(chain []*x509.Certificate) error // or nil
	known func(chain []*x509.Certificate) error // by the admin server; or nil
	next  chan *identity.Authenticator          // the newest that run has not taken
	first *identity.Authenticator               // owned by run
}

func newCredentialReloader(cfg *config.Config, d *listeners, log *slog.Logger, metrics prometheus.Registerer) (*credentialReloader, error) {
	proofs, err := authenticator(cfg, log)
	if err != nil {
		return nil, err
	}
	p := &credentialReloader{next: make(chan *identity.Authenticator, 1), first: proofs}
	if d.xdsTLS != nil {
		p.trust = d.xdsTLS.Trusts
	}
	if d.adminTLS != nil {
		p.known = d.adminTLS.Trusts
	}
	p.guard = access.NewGuard(access.Policy{Rules: cfg.Rules(), Authenticator: proofs, Trust: p.trust, AdminTrust: p.known}, log, metrics)
	if d.xdsTLS != nil {
		d.xdsTLS.OnChange(p.guard.Recheck)
	}
	return p, nil
}

// authenticator reads the files of tokens and keys; it is nil if the configuration names none.
func authenticator(cfg *config.Config, log *slog.Logger) (*identity.Authenticator, error) {
	settings := cfg.Identity.Settings()
	if settings == nil {
		return nil, nil //nolint:nilnil // nil takes no tokens
	}
	a, err := identity.NewAuthenticator(*settings, log)
	if wrong, ok := errors.AsType[*identity.FileError](err); ok {
		return nil, &ConfigError{cfg.Fault(keyOfFile(settings, wrong.File), err)}
	}
	return a, err
}

// keyOfFile is the key of a file.
func keyOfFile(s *identity.Settings, file string) string {
	if i := slices.IndexFunc(s.Issuers, func(is identity.Issuer) bool { return is.JWKS == file }); i >= 0 && file != s.Tokens {
		return fmt.Sprintf("identity.jwt[%d].jwks", i)
	}
	return "identity.tokens"
}

// change ends the streams of clients with other rights by the next rules, and refuses these clients while the sources
// change. The caller calls undo if the reload fails, or else set.
func (p *credentialReloader) change(next access.Rules) (undo func()) {
	previous := p.guard.Policy()
	changing := previous
	changing.Rules, changing.Previous = next, &previous.Rules
	p.guard.Set(changing)
	return func() { p.guard.Set(previous) }
}

// set puts the rules and credentials of cfg in force. It is not safe for concurrent use.
func (p *credentialReloader) set(cfg *config.Config, proofs *identity.Authenticator) {
	p.guard.Set(access.Policy{Rules: cfg.Rules(), Authenticator: proofs, Trust: p.trust, AdminTrust: p.known})
	select {
	case <-p.next: // nobody has taken it
	default:
	}
	p.next <- proofs
}

// run follows the files of tokens and keys until ctx ends.
func (p *credentialReloader) run(ctx context.Context) error {
	for proofs := p.first; ; {
		following, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func(proofs *identity.Authenticator) { // its own: the next are known before it has ended
			defer close(ended)
			if proofs != nil {
				proofs.Run(following, p.guard.Recheck)
			}
		}(proofs)
		over := false
		select {
		case <-ctx.Done():
			over = true
		case proofs = <-p.next:
		}
		stop()
		<-ended
		if over {
			return nil
		}
	}
}

// Files reads the files that cfg names for its own ports and for proofs, and returns why a relay would not start with them, and what is
// hardly meant. Nothing is asked of a Workload API.
func Files(ctx context.Context, cfg *config.Config) (wrong []error, doubts []config.Problem) {
	look := func(key string, t config.ServerTLS) {
		if spiffe.Named(t.Certificate) || spiffe.Named(t.ClientCAs) {
			return
		}
		if _, err := load(ctx, cfg, key, t, quiet); err != nil {
			wrong = append(wrong, err)
		}
	}
	if l := cfg.Listen.XDSTLS; l != nil {
		look("listen.xdsTLS", l.ServerTLS)
	}
	if l := cfg.Listen.AdminTLS; l != nil {
		look("listen.adminTLS", *l)
	}
	for _, s := range cfg.ConfigSources {
		if err := config.CheckTLSFiles(s.Settings); err != nil {
			wrong = append(wrong, fmt.Errorf("source %s: tlsSettings.%w", s.Name, err))
		}
	}
	doubts, err := Proofs(cfg)
	if err != nil {
		wrong = append(wrong, err)
	}
	return wrong, doubts
}

// Proofs reads the files by which clients prove who they are, and returns why a relay would not start with them, and which tokens rules
// name that nobody can have.
func Proofs(cfg *config.Config) (doubts []config.Problem, err error) {
	proofs, err := authenticator(cfg, quiet)
	if proofs == nil {
		return nil, err
	}
	names := proofs.Tokens()
	for i, rule := range cfg.Access {
		for n, token := range rule.Who.Token {
			if strings.Contains(token, "*") || slices.Contains(names, token) {
				continue
			}
			p := cfg.Places[fmt.Sprintf("access[%d].who.token[%d]", i, n)]
			p.Message = fmt.Sprintf("there is no token of the name %q in %s%s", token, cfg.Identity.Tokens, words.Suggestion(token, names))
			doubts = append(doubts, p)
		}
	}
	return doubts, nil
}

var quiet = slog.New(slog.DiscardHandler)
