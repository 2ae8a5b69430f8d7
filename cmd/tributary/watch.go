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
	cmd := &cobra.Command{
		Use:   "watch {KIND | TYPE}",
		Short: "Show the objects that a server has, and each change of them",
		Long: `Watch asks a server of MCP over xDS, tributary or istiod, for the objects of a kind, prints each as added, and then
prints what is added, updated and deleted until it is interrupted. It waits for a server that is not up yet, and reconnects when
the server goes away. Without -n it shows the objects of all namespaces.

It also watches Envoy's ` + envoyTypeNames() + ` of any ADS server.

Each change has its time, and an update the fields that it changed. With -o json each line is an object with the keys time, change,
fields and object; with -o yaml the change is a comment. That it waits, or is connected again, is said on standard error.`,
		Example: `  tributary watch vs -n shop -o yaml
  tributary watch endpoints --server istiod.example:15010`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeType,
		RunE: asks(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if t, ok := envoyType(args[0]); ok {
				return watchEnvoy(ctx, cmd, &flags, format.value, t)
			}
			schema, err := schemaNamed(args[0])
			if err != nil {
				return err
			}
			return watchObjects(ctx, cmd, &flags, format.value, schema, flags.selects)
		}),
	}
	flags.add(cmd, "")
	addServerConfig(cmd)
	format.add(cmd)
	return cmd
}

// watchObjects prints the objects of a kind that are meant, and each change of them, until it is interrupted.
func watchObjects(ctx context.Context, cmd *cobra.Command, flags *clientFlags, format string, schema *resource.Schema,
	meant func(*resource.Resource) bool,
) error {
	return flags.watch(cmd, func(server *client.XDS) error {
		return server.Watch(ctx, schema, func(e client.Event[*resource.Resource]) error {
			if !meant(e.Resource) {
				return nil
			}
			return printChange(cmd.OutOrStdout(), format, e.Change, e.Resource.Key().String(), fieldsOf(e), func(format string) ([]byte, error) {
				return marshalled(e.Resource, format)
			})
		})
	})
}

// watch has run watch a server until it is interrupted.
func (f *clientFlags) watch(cmd *cobra.Command, run func(server *client.XDS) error) error {
	server := f.client(cmd)
	server.Again = func(server string) { cmd.PrintErrf("%s connected again to %s\n", clock(), server) } // changes may have been missed
	server.Waiting = func(err error) { cmd.PrintErrf("%s waiting: %v\n", clock(), err) }
	if err := run(server); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil // as it was asked to
}

// clock is the time at which something is printed.
func clock() string { return time.Now().UTC().Format("15:04:05Z") }

// maxFields is how many of the fields that an update changes are named.
const maxFields = 5

// printChange prints a change of what, and the fields that an update changes. marshal writes the object in a format.
func printChange(w io.Writer, format string, change client.Change, what string, fields []string,
	marshal func(format string) ([]byte, error),
) error {
	if format == "json" || format == "yaml" {
		now := time.Now().UTC().Format(time.RFC3339)
		object, err := marshal(format)
		if err == nil && format == "yaml" {
			_, err = fmt.Fprintf(w, "---\n# %s at %s\n%s", change, now, object)
			return err
		}
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(struct {
			Time   string          `json:"time"`
			Change client.Change   `json:"change"`
			Fields []string        `json:"fields,omitempty"`
			Object json.RawMessage `json:"object"`
		}{now, change, fields, object})
	}
	if more := len(fields) - maxFields; more > 0 {
		fields = append(fields[:maxFields], fmt.Sprintf("and %d more", more))
	}
	line := fmt.Sprintf("%s %-7s  %s  %s", clock(), change, what, strings.Join(fields, ", "))
	_, err := fmt.Fprintln(w, strings.TrimRight(line, " "))
	return err
}

// fieldsOf are the fields that an update changed; none where that cannot be told.
func fieldsOf(e client.Event[*resource.Resource]) []string {
	if e.Was == nil {
		return nil
	}
	fields, err := output.ChangedFields(e.Was, e.Resource)
	if err != nil {
		return nil
	}
	return fields
}
