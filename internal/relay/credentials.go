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

// newAdmission returns the admission of clients, with the access rules and credentials of a configuration.
func newAdmission(
	cfg *config.Config, listeners *listeners, log *slog.Logger, metrics prometheus.Registerer,
) (*access.Admission, error) {
	authentication, err := authenticator(cfg, log)
	if err != nil {
		return nil, err
	}
	admission := access.NewAdmission(access.Policy{
		Rules: cfg.Rules(), Authenticator: authentication,
		Trust: listeners.xdsTLS.Trusts, AdminTrust: listeners.adminTLS.Trusts,
	}, log, metrics)
	if listeners.xdsTLS != nil {
		listeners.xdsTLS.OnChange(admission.Recheck)
	}
	return admission, nil
}

// authenticator reads the files of tokens and keys. It returns nil if the configuration names none.
func authenticator(cfg *config.Config, log *slog.Logger) (*identity.Authenticator, error) {
	settings := cfg.Identity.Settings()
	if settings == nil {
		return nil, nil //nolint:nilnil // nil takes no tokens
	}
	authenticator, err := identity.NewAuthenticator(*settings, log)
	if invalid, ok := errors.AsType[*identity.FileError](err); ok {
		key := "identity.tokens"
		for i, issuer := range settings.Issuers {
			if invalid.File == issuer.JWKS && invalid.File != settings.Tokens {
				key = fmt.Sprintf("identity.jwt[%d].jwks", i)
			}
		}
		return nil, &ConfigError{cfg.Fault(key, err)}
	}
	return authenticator, err
}

// changeRules ends the streams of clients that have other rights by the next rules, and refuses these clients while the
// sources change. Then the caller calls setCredentials, or undo if the reload fails.
func changeRules(admission *access.Admission, next access.Rules) (undo func()) {
	previous := admission.Policy()
	changing := previous
	changing.Rules = next
	changing.Previous = &previous.Rules
	admission.Set(changing)
	return func() { admission.Set(previous) }
}

// setCredentials puts the access rules and credentials of a configuration in force. Reloads call it one at a time.
func setCredentials(admission *access.Admission, cfg *config.Config, authentication *identity.Authenticator) {
	policy := admission.Policy()
	policy.Rules = cfg.Rules()
	policy.Previous = nil
	policy.Authenticator = authentication
	admission.Set(policy)
}

// CheckFiles reads the certificates, tokens and keys that a configuration names. It returns the errors that would
// prevent a start, and warnings. It sends no query to a Workload API.
func CheckFiles(ctx context.Context, cfg *config.Config) (failures []error, warnings []config.Problem) {
	check := func(key string, serverTLS config.ServerTLS) {
		if spiffe.Named(serverTLS.Certificate) || spiffe.Named(serverTLS.ClientCAs) {
			return
		}
		if _, err := loadCertificates(ctx, cfg, key, serverTLS, quiet); err != nil {
			failures = append(failures, err)
		}
	}
	if l := cfg.Listen.XDSTLS; l != nil {
		check("listen.xdsTLS", l.ServerTLS)
	}
	if l := cfg.Listen.AdminTLS; l != nil {
		check("listen.adminTLS", *l)
	}
	for _, s := range cfg.ConfigSources {
		if err := config.CheckTLSFiles(s.Settings); err != nil {
			failures = append(failures, fmt.Errorf("source %s: tlsSettings.%w", s.Name, err))
		}
	}
	warnings, err := CheckTokens(cfg)
	if err != nil {
		failures = append(failures, err)
	}
	return failures, warnings
}

// CheckTokens reads the files of tokens and keys. It returns the error that would prevent a start, and a warning for
// each token of an access rule that no file has.
func CheckTokens(cfg *config.Config) (warnings []config.Problem, err error) {
	authentication, err := authenticator(cfg, quiet)
	if authentication == nil {
		return nil, err
	}
	names := authentication.Tokens()
	for i, rule := range cfg.Access {
		for n, token := range rule.Who.Token {
			if strings.Contains(token, "*") || slices.Contains(names, token) {
				continue
			}
			place := cfg.Places[fmt.Sprintf("access[%d].who.token[%d]", i, n)]
			place.Message = fmt.Sprintf("there is no token of the name %q in %s%s", token, cfg.Identity.Tokens,
				words.Suggestion(token, names))
			warnings = append(warnings, place)
		}
	}
	return warnings, nil
}

var quiet = slog.New(slog.DiscardHandler)
