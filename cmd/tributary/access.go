package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tributary/config"
	"tributary/server/access"
	"tributary/server/identity"
)

func newAccess() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Look at the rules of who may see what",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAccessCheck())
	return cmd
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
			if cmd.Flags().Changed("namespace") {
				q.Namespace = &namespace
			}
			if cmd.Flags().Changed("source") {
				q.Source = &source
			}
			if file == "" {
				if file, err = config.Find(config.DefaultPaths()); err != nil {
					return &failure{exitConfig, err}
				}
			}
			cfg, err := config.Load(file)
			if err != nil {
				return &failure{exitConfig, err}
			}
			allowed, why := cfg.Rules().Check(q)
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), why); err != nil || allowed {
				return err
			}
			return &failure{code: exitFindings}
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&file, "config", "c", "", "configuration file (default: the first that exists of "+strings.Join(config.DefaultPaths(), ", ")+")")
	f.StringArrayVar(&who, "identity", nil, "who the client is; may be repeated")
	f.StringVar(&q.Node, "node-id", "", "id that the client gives itself")
	f.StringVar(&kind, "kind", "", "kind of the objects")
	f.StringVarP(&namespace, "namespace", "n", "", "namespace of the objects")
	f.StringVar(&source, "source", "", "source of the objects")
	f.StringVar(&q.Type, "type", "", "type of Envoy: "+strings.Join(access.Types(), ", "))
	f.StringVar(&q.Service, "service", "", "what there is besides xDS: "+strings.Join(access.Services(), ", "))
	return cmd
}
