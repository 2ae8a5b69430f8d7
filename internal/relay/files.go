package relay

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"tributary/config"
	"tributary/internal/spiffe"
	"tributary/internal/words"
)

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
