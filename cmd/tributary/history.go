package main

import (
	"cmp"
	"context"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/client"
	"tributary/cmd/internal/output"
	"tributary/internal/history"
	"tributary/resource"
)

func newHistory() *cobra.Command {
	var flags adminFlags
	var from moment
	var namespace, source string
	var limit int
	var details bool
	format := outputs("text", "json")
	command := &cobra.Command{
		Use:   "history [KIND [[NAMESPACE/]NAME]]",
		Short: "Show changes, with their times and sources",
		Long: `History shows the changes of served objects, with time, source and place, and of a named object also the
changed fields. Changes while the server was not running have the time at which they were seen, and a *.

The server keeps it in its state directory, up to a size (history.bytes of its configuration). See also get --at and
diff --at.`,
		Example: `  tributary history --since 1h
  tributary history se shop/reviews
  tributary history --source dc1 --since 2026-05-04T03:00:00Z --diff
  tributary history vs -n shop -o json`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: flags.completeObjects,
		RunE: runInterruptible(func(ctx context.Context, command *cobra.Command, args []string) error {
			if limit < 1 {
				return usage("--limit %d: want a number above 0", limit)
			}
			if err := from.past("--since"); err != nil {
				return err
			}
			query := url.Values{"namespace": {namespace}, "source": {source}, "limit": {strconv.Itoa(limit)}}
			named := len(args) == 2
			if err := addObject(query, args); err != nil {
				return err
			}
			if !from.IsZero() {
				query.Set("since", from.query())
			}
			if details || named || format.value == "json" {
				query.Set("details", "true")
			}
			if format.value != "json" {
				query.Set("encoded", "true")
			}
			var answer history.Answer
			return flags.show(ctx, command, format, "/debug/history", query, &answer, func(w io.Writer) error {
				if err := output.History(w, &answer, details || named, output.ScreenOf(w)); err != nil {
					return err
				}
				output.HistoryNote(command.ErrOrStderr(), &answer, from.Time)
				if source != "" && len(answer.Entries) == 0 {
					flags.noSource(command, source)
				}
				return nil
			})
		}),
	}
	flags.add(command)
	command.Flags().Var(&from, "since", "only changes since a time, or of the last period, such as 1h")
	command.Flags().StringVarP(&namespace, "namespace", "n", "", "only objects of this namespace")
	command.Flags().StringVar(&source, "source", "", "only changes of this source")
	command.Flags().IntVar(&limit, "limit", 1000, "how many of the newest changes")
	command.Flags().BoolVar(&details, "diff", false, "show the changed fields (default for a named object)")
	format.add(command)
	completeFlag(command, "source", flags.completeSources)
	completeFlag(command, "namespace", flags.completeNamespaces)
	return command
}

// noSource prints the names of the present sources if name is none of them, and the server answers.
func (f *adminFlags) noSource(cmd *cobra.Command, name string) {
	if names, _ := f.completeSources(cmd, nil, ""); len(names) > 0 && !slices.Contains(names, name) {
		cmd.PrintErrf("there is no source %s now, but %s\n", name, strings.Join(names, ", "))
	}
}

// addObject adds the object, or the kind, of the arguments to a query.
func addObject(query url.Values, args []string) error {
	if len(args) == 0 {
		return nil
	}
	kind, object := args[0], strings.Join(args[1:], "")
	if before, after, ok := strings.Cut(kind, "/"); ok && object == "" {
		kind, object = before, after
	}
	schema, err := schemaNamed(kind)
	if err != nil {
		return err
	}
	namespace := query.Get("namespace")
	if object != "" && !schema.Bare {
		namespace = cmp.Or(namespace, "default")
	}
	key, err := namedIn(namespace, object)
	if err == nil {
		query.Set("kind", string(schema.Kind))
		query.Set("namespace", key.Namespace)
		query.Set("name", key.Name)
	}
	return err
}

// servedAt asks an admin server for the objects of a kind, or of all, that were served at a time. The texts name
// objects with an unknown state at that time.
func servedAt(
	ctx context.Context, server *client.Admin, moment *moment, kind resource.Kind,
) (objects []*resource.Resource, unknown []string, err error) {
	query := url.Values{"kind": {string(kind)}, "encoded": {"true"}}
	if !moment.IsZero() {
		query.Set("time", moment.query())
	}
	var state history.State
	if _, err := server.Get(ctx, "/debug/history/at", query, &state); err != nil {
		return nil, nil, err
	}
	for _, object := range state.Objects {
		objects = append(objects, object.Resource())
	}
	for _, name := range state.Unknown {
		unknown = append(unknown, name+": its state is unknown: it changed while no server was running")
	}
	return objects, unknown, nil
}
