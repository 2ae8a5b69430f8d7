package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/client"
	"tributary/cmd/internal/output"
	"tributary/resource"
)

func newWatch() *cobra.Command {
	var flags clientFlags
	format := outputs("text", "yaml", "json")
	command := &cobra.Command{
		Use:   "watch {KIND | TYPE}",
		Short: "Show the objects that a server has, and each change of them",
		Long: `Watch asks a server of MCP over xDS, tributary or istiod, for the objects of a kind, prints each as added,
and then prints each addition, update and deletion until it is interrupted. It waits for a server that is not up yet,
and reconnects when the server goes away. Without -n it shows the objects of all namespaces.

It also watches Envoy's ` + strings.Join(envoyTypeNames(), ", ") + ` of any ADS server.

Each change has its time, and an update the fields that it changed. With -o json each line is an object with the keys
time, change, fields and object; with -o yaml the change is a comment. Standard error has waits and reconnections.`,
		Example: `  tributary watch vs -n shop -o yaml
  tributary watch endpoints --server istiod.example:15010`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeType,
		RunE: runInterruptible(func(ctx context.Context, command *cobra.Command, args []string) error {
			if t, ok := envoyType(args[0]); ok {
				return watchEnvoyResources(ctx, command, &flags, format.value, t)
			}
			schema, err := schemaNamed(args[0])
			if err != nil {
				return err
			}
			return watchObjects(ctx, command, &flags, format.value, schema, flags.selects)
		}),
	}
	flags.add(command, "")
	addServerConfig(command)
	format.add(command)
	return command
}

// watchObjects prints the selected objects of a kind, and each change of them, until it is interrupted.
func watchObjects(
	ctx context.Context, command *cobra.Command, flags *clientFlags, format string, schema *resource.Schema,
	meant func(*resource.Resource) bool,
) error {
	return flags.watch(command, func(server *client.XDS) error {
		return server.Watch(ctx, schema, func(event client.Event[*resource.Resource]) error {
			if !meant(event.Resource) {
				return nil
			}
			marshal := func(format string) ([]byte, error) { return marshalled(event.Resource, format) }
			key := event.Resource.Key().String()
			return printChange(command.OutOrStdout(), format, event.Change, key, fieldsOf(event), marshal)
		})
	})
}

// watch calls run with a client of the server, until it is interrupted.
func (f *clientFlags) watch(command *cobra.Command, run func(server *client.XDS) error) error {
	server := f.client(command)
	// Changes may have been missed.
	server.Reconnected = func(server string) { command.PrintErrf("%s connected again to %s\n", clock(), server) }
	server.Waiting = func(err error) { command.PrintErrf("%s waiting: %v\n", clock(), err) }
	if err := run(server); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil // the user ended it
}

func clock() string { return time.Now().UTC().Format("15:04:05Z") }

// maxFields bounds the named fields of an update.
const maxFields = 5

// printChange prints a change of an object, and the fields that an update changes. marshal writes the object in a
// format.
func printChange(writer io.Writer, format string, change client.Change, subject string, fields []string,
	marshal func(format string) ([]byte, error),
) error {
	if format == "json" || format == "yaml" {
		now := time.Now().UTC().Format(time.RFC3339)
		object, err := marshal(format)
		if err == nil && format == "yaml" {
			_, err = fmt.Fprintf(writer, "---\n# %s at %s\n%s", change, now, object)
			return err
		}
		if err != nil {
			return err
		}
		return json.NewEncoder(writer).Encode(struct {
			Time   string          `json:"time"`
			Change client.Change   `json:"change"`
			Fields []string        `json:"fields,omitempty"`
			Object json.RawMessage `json:"object"`
		}{now, change, fields, object})
	}
	if hidden := len(fields) - maxFields; hidden > 0 {
		fields = append(fields[:maxFields], fmt.Sprintf("and %d more", hidden))
	}
	line := fmt.Sprintf("%s %-7s  %s  %s", clock(), change, subject, strings.Join(fields, ", "))
	_, err := fmt.Fprintln(writer, strings.TrimRight(line, " "))
	return err
}

// fieldsOf returns the fields that an update changed; none if they are unknown.
func fieldsOf(event client.Event[*resource.Resource]) []string {
	if event.Previous == nil {
		return nil
	}
	fields, err := output.ChangedFields(event.Previous, event.Resource)
	if err != nil {
		return nil
	}
	return fields
}
