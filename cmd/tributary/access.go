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

	"tributary/config"
	"tributary/internal/words"
	"tributary/server/access"
	"tributary/server/identity"
)

func newAccess() *cobra.Command {
	return group(&cobra.Command{Use: "access", Short: "Look at the rules of who may see what"}, newAccessCheck())
}

func newAccessCheck() *cobra.Command {
	var file, kind, namespace, source string
	var who []string
	var q access.Question
	cmd := &cobra.Command{
		Use:   "check [-c FILE] --identity WHO... [--kind KIND] [--namespace NAMESPACE]",
		Short: "Say which rule decides what a client may see",
		Long: `Check reads the access rules of a configuration file, and says which of them decides whether a client may see something. A client
is given as the log writes it: by its URI, such as a SPIFFE ID, dns:NAME, subject:NAME, token:NAME, jwt:ISSUER|SUBJECT, ip:ADDRESS or
socket; --identity may be repeated. No server is asked.

It exits with 3 if it is not allowed.`,
		Example: `  tributary access check -c tributary.yaml --identity spiffe://cluster.local/ns/prod/sa/web --kind se --namespace prod
  tributary access check --identity token:ci --identity ip:10.1.2.3 --type clusters`,
		Args: cobra.NoArgs,
		RunE: does(func(cmd *cobra.Command, _ []string) (err error) {
			if q.Who, err = identity.Parse(who); err != nil {
				return &failure{exitUsage, err}
			}
			if kind != "" {
				schema, err := schemaNamed(kind)
				if err != nil {
					return err
				}
				q.Kind = schema.Kind
			}
			err = cmp.Or(amongThose("type", q.Type, access.Types()), amongThose("service", q.Service, access.Services()))
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("namespace") {
				q.Namespace = &namespace
			}
			if cmd.Flags().Changed("source") {
				q.Source = &source
			}
			cfg, err := loadConfig(&file)
			if err != nil {
				return err
			}
			for _, doubt := range doubtsOf(cfg, q.Who) {
				cmd.PrintErrf("warning: %s\n", doubt)
			}
			allowed, why := cfg.Rules().Check(q)
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), why); err != nil || allowed {
				return err
			}
			return &failure{code: exitFindings}
		}),
	}
	f := cmd.Flags()
	addConfig(cmd, &file, "")
	f.StringArrayVar(&who, "identity", nil, "who the client is; may be repeated")
	f.StringVar(&q.Node, "node-id", "", "id that the client gives itself")
	f.StringVar(&kind, "kind", "", "kind of the objects")
	f.StringVarP(&namespace, "namespace", "n", "", "namespace of the objects")
	f.StringVar(&source, "source", "", "source of the objects")
	f.StringVar(&q.Type, "type", "", "type of Envoy: "+strings.Join(access.Types(), ", "))
	f.StringVar(&q.Service, "service", "", "other services than xDS: "+strings.Join(access.Services(), ", "))
	completeFlag(cmd, "type", cobra.FixedCompletions(access.Types(), noFiles))
	completeFlag(cmd, "service", cobra.FixedCompletions(access.Services(), noFiles))
	completeFlag(cmd, "kind", completeKinds)
	return cmd
}

func amongThose(flag, value string, values []string) error {
	if value == "" || slices.Contains(values, value) {
		return nil
	}
	return usage("--%s %s%s: want one of %s", flag, value, words.Suggestion(value, values), strings.Join(values, ", "))
}

// doubtsOf returns why the answer may be another one than is expected.
func doubtsOf(cfg *config.Config, who *identity.Identity) (all []string) {
	byNetwork := func(rule config.AccessRule) bool { return len(rule.Who.CIDR) > 0 }
	if !who.Address.IsValid() && !who.Socket && slices.ContainsFunc(cfg.Access, byNetwork) {
		all = append(all, "rules go by networks, and none of these is for a client without an address: say --identity ip:ADDRESS as well")
	}
	settings := cfg.Identity.Settings()
	if who.Token == "" || settings == nil {
		return all
	}
	proofs, err := identity.NewAuthenticator(identity.Settings{Tokens: settings.Tokens}, slog.New(slog.DiscardHandler))
	switch {
	case err != nil:
		all = append(all, err.Error())
	case !slices.Contains(proofs.Tokens(), who.Token):
		all = append(all, fmt.Sprintf("there is no token of the name %q in %s%s", who.Token, settings.Tokens,
			words.Suggestion(who.Token, proofs.Tokens())))
	}
	return all
}

func newToken() *cobra.Command {
	return group(&cobra.Command{Use: "token", Short: "Make tokens by which clients prove who they are"}, newTokenNew())
}

func newTokenNew() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "new NAME --file FILE",
		Short: "Make a token, and add its hash to a file of tokens",
		Long: `New makes a token for the client of that name, prints it, and adds its hash to the file, which is the identity.tokens of the
configuration. A server that runs reads the file again by itself. The token itself is kept nowhere.

To replace a token, make another of the same name, and delete the old line when the client has the new one: that ends the
streams that came with the old one.`,
		Example: `  tributary token new ci --file /etc/tributary/tokens > ci.token`,
		Args:    cobra.ExactArgs(1),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			token, line, err := identity.NewToken(args[0])
			if err != nil {
				return &failure{exitUsage, err}
			}
			if err := writable(file); err != nil {
				return err
			}
			if _, err = fmt.Fprintln(cmd.OutOrStdout(), token); err != nil { // a token that nobody has is not to be taken
				return err
			}
			return appendTo(file, line)
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "file of hashed tokens; it is made if there is none")
	_ = cmd.MarkFlagRequired("file") // there is one
	return cmd
}

// writable says why a file cannot be written, and makes it if there is none, so that nobody but its owner reads it.
func writable(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func appendTo(file, line string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		line = "\n" + line
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line) // at once, so that who reads meanwhile reads all of it or nothing
	return errors.Join(err, f.Close())
}
