package relay

import (
	"context"
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

// newGuard returns the guard of the xDS port, with the access rules and credentials of a configuration.
func newGuard(cfg *config.Config, l *listeners, log *slog.Logger, metrics prometheus.Registerer) (*access.Guard, error) {
	proofs, err := authenticator(cfg, log)
	if err != nil {
		return nil, err
	}
	policy := access.Policy{Rules: cfg.Rules(), Authenticator: proofs}
	if l.adminTLS != nil {
		policy.AdminTrust = l.adminTLS.Trusts
	}
	if l.xdsTLS == nil {
		return access.NewGuard(policy, log, metrics), nil
	}
	policy.Trust = l.xdsTLS.Trusts
	guard := access.NewGuard(policy, log, metrics)
	l.xdsTLS.OnChange(guard.Recheck)
	return guard, nil
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

// changeRules ends the streams of clients with other rights by the next rules, and refuses these clients while the
// sources change. The caller calls undo if the reload fails, or else setCredentials.
func changeRules(guard *access.Guard, next access.Rules) (undo func()) {
	previous := guard.Policy()
	changing := previous
	changing.Rules, changing.Previous = next, &previous.Rules
	guard.Set(changing)
	return func() { guard.Set(previous) }
}

// setCredentials puts the access rules and credentials of a configuration in force. Reloads call it one at a time.
func setCredentials(guard *access.Guard, cfg *config.Config, proofs *identity.Authenticator) {
	policy := guard.Policy()
	policy.Rules, policy.Previous, policy.Authenticator = cfg.Rules(), nil, proofs
	guard.Set(policy)
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
			p.Message = fmt.Sprintf("there is no token of the name %q in %s%s", token, cfg.Identity.Tokens, words.Meant(token, names))
			doubts = append(doubts, p)
		}
	}
	return doubts, nil
}

var quiet = slog.New(slog.DiscardHandler)
