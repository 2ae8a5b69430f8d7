package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tributary/config"
	"tributary/internal/words"
	"tributary/server/access"
	"tributary/server/identity"
)

func newAccess() *cobra.Command {
	return group(&cobra.Command{Use: "access", Short: "Check the access rules"}, newAccessCheck())
}

func newAccessCheck() *cobra.Command {
	var file string
	var proofs []string
	var query access.Query
	command := &cobra.Command{
		Use:   "check [-c FILE] --identity PROOF... [--kind KIND] [--namespace NAMESPACE]",
		Short: "Say which rule decides the rights of a client",
		Long: `Check reads the access rules of a configuration file, and says which of them decides whether a client may
see something. A client is given as the log writes it: by its URI, such as a SPIFFE ID, dns:NAME, subject:NAME,
token:NAME, jwt:ISSUER|SUBJECT (with audience:NAME if rules name audiences), ip:ADDRESS or socket; --identity may be
repeated. No server is asked.

It exits with 3 if it is not allowed.`,
		Example: `  tributary access check -c tributary.yaml --identity spiffe://cluster.local/ns/prod/sa/web --kind se --namespace prod
  tributary access check --identity token:ci --identity ip:10.1.2.3 --type clusters`,
		Args: cobra.NoArgs,
		RunE: runCommand(func(command *cobra.Command, _ []string) (err error) {
			if query.Client, err = identity.Parse(proofs); err != nil {
				return &failure{exitUsage, err}
			}
			query.Content = make(map[string]string)
			command.Flags().Visit(func(flag *pflag.Flag) { query.Content[flag.Name] = flag.Value.String() })
			if kind := query.Content["kind"]; kind != "" {
				schema, err := schemaNamed(kind)
				if err != nil {
					return err
				}
				query.Content["kind"] = string(schema.Kind)
			}
			err = cmp.Or(amongThose("type", query.Content["type"], access.Types()),
				amongThose("service", query.Content["service"], access.Services()))
			if err != nil {
				return err
			}
			cfg, err := loadConfig(&file)
			if err != nil {
				return err
			}
			for _, doubt := range doubtsOf(cfg, query.Client) {
				command.PrintErrf("warning: %s\n", doubt)
			}
			allowed, explanation := cfg.Rules().Check(query)
			if _, err := fmt.Fprintln(command.OutOrStdout(), explanation); err != nil || allowed {
				return err
			}
			return &failure{code: exitFindings}
		}),
	}
	flagSet := command.Flags()
	addConfig(command, &file, "")
	flagSet.StringArrayVar(&proofs, "identity", nil, "a proof of the client's identity; may be repeated")
	flagSet.StringVar(&query.Node, "node-id", "", "node ID of the client")
	flagSet.String("kind", "", "kind of the objects")
	flagSet.StringP("namespace", "n", "", "namespace of the objects")
	flagSet.String("source", "", "source of the objects")
	flagSet.String("type", "", "type of Envoy: "+strings.Join(access.Types(), ", "))
	flagSet.String("service", "", "other services than xDS: "+strings.Join(access.Services(), ", "))
	completeFlag(command, "type", cobra.FixedCompletions(access.Types(), noFiles))
	completeFlag(command, "service", cobra.FixedCompletions(access.Services(), noFiles))
	completeFlag(command, "kind", cobra.FixedCompletions(offeredKinds(), noFiles))
	return command
}

func amongThose(flag, value string, values []string) error {
	if value == "" || slices.Contains(values, value) {
		return nil
	}
	return usage("--%s %s%s: want one of %s", flag, value, words.Suggestion(value, values), strings.Join(values, ", "))
}

// doubtsOf returns reasons for a surprising answer.
func doubtsOf(cfg *config.Config, client *identity.Identity) (doubts []string) {
	byNetwork := func(rule config.AccessRule) bool { return len(rule.Who.CIDR) > 0 }
	if !client.Address.IsValid() && !client.Socket && slices.ContainsFunc(cfg.Access, byNetwork) {
		doubts = append(doubts, "some rules match networks, and the client has no address: add --identity ip:ADDRESS")
	}
	settings := cfg.Identity.Settings()
	if client.Token == "" || settings == nil {
		return doubts
	}
	proofs, err := identity.NewAuthenticator(identity.Settings{Tokens: settings.Tokens}, slog.New(slog.DiscardHandler))
	if err != nil {
		return append(doubts, err.Error())
	}
	if names := proofs.Tokens(); !slices.Contains(names, client.Token) {
		doubts = append(doubts, fmt.Sprintf("there is no token of the name %q in %s%s", client.Token, settings.Tokens,
			words.Suggestion(client.Token, names)))
	}
	return doubts
}

func newToken() *cobra.Command {
	return group(&cobra.Command{Use: "token", Short: "Make tokens that prove the identity of clients"}, newTokenNew())
}

func newTokenNew() *cobra.Command {
	var file string
	command := &cobra.Command{
		Use:   "new NAME --file FILE",
		Short: "Make a token, and add its hash to a file of tokens",
		Long: `New makes a token for the client of that name, prints it, and adds its hash to the file, which is the
identity.tokens of the configuration. A server that runs reads the file again by itself. The token itself is kept
nowhere.

To replace a token, make another of the same name, and delete the old line when the client has the new one: that ends
the streams that came with the old one.`,
		Example: `  tributary token new ci --file /etc/tributary/tokens > ci.token`,
		Args:    cobra.ExactArgs(1),
		RunE: runCommand(func(command *cobra.Command, args []string) error {
			token, line, err := identity.NewToken(args[0])
			if err != nil {
				return &failure{exitUsage, err}
			}
			if err := writable(file); err != nil {
				return err
			}
			if _, err = fmt.Fprintln(command.OutOrStdout(), token); err != nil { // a token without a holder must not be accepted
				return err
			}
			return appendTo(file, line)
		}),
	}
	command.Flags().StringVar(&file, "file", "", "file of hashed tokens; it is made if there is none")
	_ = command.MarkFlagRequired("file") // there is one
	return command
}

// writable checks that a file can be written, and makes a missing one with rights for its owner only.
func writable(file string) error {
	opened, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return opened.Close()
}

func appendTo(file, line string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		line = "\n" + line
	}
	opened, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = opened.WriteString(line) // in one step, so that concurrent readers see the old or the new file
	return errors.Join(err, opened.Close())
}
