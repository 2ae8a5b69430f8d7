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
	"tributary/server/xds"
)

func envoyType(name string) (client.EnvoyType, bool) {
	types := client.EnvoyTypes()
	i := slices.IndexFunc(types, func(t client.EnvoyType) bool { return t.Name == strings.ToLower(name) })
	if i < 0 {
		return client.EnvoyType{}, false
	}
	return types[i], true
}

// checkEnvoy refuses flags without a meaning for Envoy's types.
func (f *clientFlags) checkEnvoy(cmd *cobra.Command, t client.EnvoyType) error {
	for _, name := range []string{"namespace", "all-namespaces"} {
		if cmd.Flags().Changed(name) {
			return usage("%s have no namespaces: leave out --%s", t.Name, name)
		}
	}
	return nil
}

func getEnvoyResources(
	ctx context.Context, command *cobra.Command, flags *clientFlags, format string, envoyType client.EnvoyType,
	name string,
) error {
	if err := flags.checkEnvoy(command, envoyType); err != nil {
		return err
	}
	answer, err := flags.client(command).GetEnvoy(ctx, envoyType)
	if err != nil {
		return err
	}
	warn(command, answer.Rejects...)
	for _, missing := range answer.Missing {
		if name == "" || name == missing {
			command.PrintErrf("warning: %s refers to %s %s, which it did not send\n", flags.server, envoyType.Name, missing)
		}
	}
	var selected []proto.Message
	for _, message := range answer.Resources {
		if name == "" || xds.NameOf(message) == name {
			selected = append(selected, message)
		}
	}
	switch {
	case name != "" && len(selected) == 0:
		return fmt.Errorf("%s has no %s %s", flags.server, envoyType.Name, name)
	case len(selected) == 0 && format != "json":
		command.PrintErrf("no %s\n", envoyType.Name)
		return nil
	}
	return printEnvoy(command.OutOrStdout(), format, envoyType, selected, name != "")
}

func printEnvoy(writer io.Writer, format string, t client.EnvoyType, resources []proto.Message, single bool) error {
	if format == "table" || format == "wide" {
		return output.EnvoyTable(writer, t.URL, resources)
	}
	var documents []document
	for _, m := range resources {
		marshal := func(format string) ([]byte, error) { return output.Envoy(m, format) }
		documents = append(documents, document{xds.NameOf(m), marshal})
	}
	return printDocuments(writer, format, documents, single, func(items []json.RawMessage) any { return items })
}

func watchEnvoyResources(
	ctx context.Context, command *cobra.Command, flags *clientFlags, format string, envoyType client.EnvoyType,
) error {
	if err := flags.checkEnvoy(command, envoyType); err != nil {
		return err
	}
	return flags.watch(command, func(server *client.XDS) error {
		return server.WatchEnvoy(ctx, envoyType, func(event client.Event[proto.Message]) error {
			subject := envoyType.Name + " " + cmp.Or(xds.NameOf(event.Resource), "(no name)")
			return printChange(command.OutOrStdout(), format, event.Change, subject, nil, func(format string) ([]byte, error) {
				return output.Envoy(event.Resource, format)
			})
		})
	})
}
