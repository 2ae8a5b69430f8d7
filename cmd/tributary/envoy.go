package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"tributary/cmd/internal/client"
	"tributary/cmd/internal/output"
)

// envoyType returns the type of Envoy's that a person means by name.
func envoyType(name string) (client.EnvoyType, bool) {
	types := client.EnvoyTypes()
	i := slices.IndexFunc(types, func(t client.EnvoyType) bool { return t.Name == strings.ToLower(name) })
	if i < 0 {
		return client.EnvoyType{}, false
	}
	return types[i], true
}

// checkEnvoy complains of flags that mean nothing for Envoy's types.
func (f *clientFlags) checkEnvoy(cmd *cobra.Command, t client.EnvoyType) error {
	for _, name := range []string{"namespace", "all-namespaces"} {
		if cmd.Flags().Changed(name) {
			return usage("%s have no namespaces: leave out --%s", t.Name, name)
		}
	}
	return nil
}

// getEnvoy prints resources of Envoy's: all, or the one called name.
func getEnvoy(ctx context.Context, cmd *cobra.Command, flags *clientFlags, format string, t client.EnvoyType, name string) error {
	if err := flags.checkEnvoy(cmd, t); err != nil {
		return err
	}
	answer, err := flags.client(cmd).GetEnvoy(ctx, t)
	if err != nil {
		return err
	}
	warn(cmd, answer.Rejects...)
	for _, missing := range answer.Missing {
		if name == "" || name == missing {
			cmd.PrintErrf("warning: %s refers to %s %s, which it did not send\n", flags.server, t.Name, missing)
		}
	}
	var selected []proto.Message
	for _, r := range answer.Resources {
		if name == "" || client.NameOf(r) == name {
			selected = append(selected, r)
		}
	}
	switch {
	case name != "" && len(selected) == 0:
		return fmt.Errorf("%s has no %s %s", flags.server, t.Name, name)
	case len(selected) == 0 && format != "json":
		cmd.PrintErrf("no %s\n", t.Name)
		return nil
	}
	return printEnvoy(cmd.OutOrStdout(), format, t, selected, name != "")
}

func printEnvoy(w io.Writer, format string, t client.EnvoyType, all []proto.Message, single bool) error {
	if format == "table" || format == "wide" {
		return output.EnvoyTable(w, t.URL, all)
	}
	var documents []document
	for _, m := range all {
		documents = append(documents, document{client.NameOf(m), func(format string) ([]byte, error) { return output.Envoy(m, format) }})
	}
	return printDocuments(w, format, documents, single, func(items []json.RawMessage) any { return items })
}

// watchEnvoy prints resources of Envoy's, and each change of them.
func watchEnvoy(ctx context.Context, cmd *cobra.Command, flags *clientFlags, format string, t client.EnvoyType) error {
	if err := flags.checkEnvoy(cmd, t); err != nil {
		return err
	}
	return flags.watch(cmd, func(server *client.XDS) error {
		return server.WatchEnvoy(ctx, t, func(e client.Event[proto.Message]) error {
			what := t.Name + " " + cmp.Or(client.NameOf(e.Resource), "(no name)")
			return printChange(cmd.OutOrStdout(), format, e.Change, what, nil, func(format string) ([]byte, error) {
				return output.Envoy(e.Resource, format)
			})
		})
	})
}
