package main

import (
	"cmp"
	"fmt"
	"log/slog"
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
		Short: "Show the access rule that decides the rights of a client",
		Long: `Check reads the access rules of a configuration file, and prints the rule that allows or denies a client
the objects, type or service that the flags select. A client is given as the log writes it: by its URI, such as a
SPIFFE ID, dns:NAME, subject:NAME, token:NAME, jwt:ISSUER|SUBJECT (with audience:NAME if rules name audiences),
ip:ADDRESS or socket; --identity may be repeated. No server is asked.

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
			err = cmp.Or(checkOneOf("type", query.Content["type"], access.Types()),
				checkOneOf("service", query.Content["service"], access.Services()))
			if err != nil {
				return err
			}
			cfg, err := loadConfig(&file)
			if err != nil {
				return err
			}
			var sources []string
			for _, source := range cfg.ConfigSources {
				sources = append(sources, source.Name)
			}
			if err := checkOneOf("source", query.Content["source"], sources); err != nil {
				return err
			}
			for _, warning := range unverifiedConditions(cfg, query.Client) {
				command.PrintErrf("warning: %s\n", warning)
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
	flagSet.String("type", "", "type of Envoy resources: "+strings.Join(access.Types(), ", "))
	flagSet.String("service", "", "a service other than xDS: "+strings.Join(access.Services(), ", "))
	completeFlag(command, "type", cobra.FixedCompletions(access.Types(), noFiles))
	completeFlag(command, "service", cobra.FixedCompletions(access.Services(), noFiles))
	completeFlag(command, "kind", cobra.FixedCompletions(offeredKinds(), noFiles))
	return command
}

func checkOneOf(flag, value string, values []string) error {
	if value == "" || slices.Contains(values, value) {
		return nil
	}
	return usage("--%s %s%s: want one of %s", flag, value, words.Suggestion(value, values), strings.Join(values, ", "))
}

// unverifiedConditions returns warnings about conditions that the given proofs of a client cannot meet.
func unverifiedConditions(cfg *config.Config, client *identity.Identity) (warnings []string) {
	byNetwork := func(rule config.AccessRule) bool { return len(rule.Who.CIDR) > 0 }
	if !client.Address.IsValid() && !client.Socket && slices.ContainsFunc(cfg.Access, byNetwork) {
		warnings = append(warnings, "some rules match networks, and the client has no address: add --identity ip:ADDRESS")
	}
	settings := cfg.Identity.Settings()
	if client.Token == "" || settings == nil {
		return warnings
	}
	proofs, err := identity.NewAuthenticator(identity.Settings{Tokens: settings.Tokens}, slog.New(slog.DiscardHandler))
	if err != nil {
		return append(warnings, err.Error())
	}
	if names := proofs.Tokens(); !slices.Contains(names, client.Token) {
		warnings = append(warnings, fmt.Sprintf("there is no token of the name %q in %s%s", client.Token, settings.Tokens,
			words.Suggestion(client.Token, names)))
	}
	return warnings
}
