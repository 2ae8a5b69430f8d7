package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/xdsclient"
	"tributary/resource"
)

func newWatch() *cobra.Command {
	var flags clientFlags
	output := outputs("text", "yaml", "json")
	cmd := &cobra.Command{
		Use:   "watch {KIND | TYPE}",
		Short: "Show the objects that a server has, and each change of them",
		Long: `Watch asks a server of MCP over xDS, tributary or istiod, for the objects of a kind, prints each as added, and then
prints what is added, updated and deleted until it is interrupted. It reconnects when the server goes away. Without -n it
shows the objects of all namespaces.

It also watches Envoy's ` + envoyTypeNames() + ` of any ADS server.

With -o json each line is an object with the keys change and object; with -o yaml the change is a comment.`,
		Example: `  tributary watch vs -n shop -o yaml
  tributary watch endpoints --server istiod.example:15010`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeType,
		RunE: does(func(cmd *cobra.Command, args []string) error {
			if t, ok := envoyType(args[0]); ok {
				return watchEnvoy(cmd, &flags, output.value, t)
			}
			schema, err := schemaNamed(args[0])
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			err = flags.client(cmd).Watch(ctx, schema, func(e xdsclient.Event) error {
				if !flags.selects(e.Resource) {
					return nil
				}
				return printEvent(cmd.OutOrStdout(), output.value, e)
			})
			if errors.Is(err, context.Canceled) {
				return nil // as it was asked to
			}
			return err
		}),
	}
	flags.add(cmd, "")
	output.add(cmd)
	return cmd
}

func printEvent(w io.Writer, format string, e xdsclient.Event) error {
	var err error
	switch format {
	case "json":
		var object []byte
		if object, err = resource.MarshalJSON(e.Resource); err == nil {
			_, err = fmt.Fprintf(w, "{\"change\":%q,\"object\":%s}\n", e.Change, object)
		}
	case "yaml":
		var document []byte
		if document, err = resource.MarshalYAML(e.Resource); err == nil {
			_, err = fmt.Fprintf(w, "---\n# %s\n%s", e.Change, document)
		}
	default:
		_, err = fmt.Fprintf(w, "%-7s  %s\n", e.Change, e.Resource.Key())
	}
	return err
}
