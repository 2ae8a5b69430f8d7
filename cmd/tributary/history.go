package main

import (
	"context"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tributary/cmd/internal/output"

	"github.com/spf13/cobra"

	"tributary/internal/history"
)

func newHistory() *cobra.Command {
	var flags adminFlags
	var since moment
	var namespace, source string
	var limit int
	var details bool
	format := outputs("text", "json")
	cmd := &cobra.Command{
		Use:   "history [KIND [[NAMESPACE/]NAME]]",
		Short: "Show what changed, when, and by which source",
		Long: `History shows what changed of what is served: when, which source did it and where, and of an object that is named also from what
to what. What changed while the server was not running stands with the time at which it was seen, and a *.

The server keeps it in its state directory, up to a size (history.bytes of its configuration). See also get --at and diff --at.`,
		Example: `  tributary history --since 1h
  tributary history se shop/reviews
  tributary history --source dc1 --since 2026-05-04T03:00:00Z --diff
  tributary history vs -n shop -o json`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: flags.completeObjects,
		RunE: asks(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return usage("--limit %d: want a number above 0", limit)
			}
			if err := since.past("--since"); err != nil {
				return err
			}
			query := url.Values{"namespace": {namespace}, "source": {source}, "limit": {strconv.Itoa(limit)}}
			named := len(args) == 2
			if err := about(query, args); err != nil {
				return err
			}
			if !since.IsZero() {
				query.Set("since", since.query())
			}
			if details || named || format.value == "json" {
				query.Set("details", "true")
			}
			if format.value != "json" {
				query.Set("encoded", "true")
			}
			var answer history.Answer
			return flags.show(ctx, cmd, format, "/debug/history", query, &answer, func(w io.Writer) error {
				if err := output.History(w, &answer, details || named, output.ScreenOf(w)); err != nil {
					return err
				}
				output.HistoryNote(cmd.ErrOrStderr(), &answer, since.Time)
				if source != "" && len(answer.Entries) == 0 {
					flags.noSource(cmd, source)
				}
				return nil
			})
		}),
	}
	flags.add(cmd)
	cmd.Flags().Var(&since, "since", "only what changed since a time, or within so long, such as 1h")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only objects of this namespace")
	cmd.Flags().StringVar(&source, "source", "", "only what this source did")
	cmd.Flags().IntVar(&limit, "limit", 1000, "only the newest so many changes")
	cmd.Flags().BoolVar(&details, "diff", false, "show from what to what; that is done for an object that is named")
	format.add(cmd)
	completeFlag(cmd, "source", flags.completeSources)
	completeFlag(cmd, "namespace", flags.completeNamespaces)
	return cmd
}

// noSource says that there is no source of that name, which may be one of before, if that can be found out.
func (f *adminFlags) noSource(cmd *cobra.Command, name string) {
	if names, _ := f.completeSources(cmd, nil, ""); len(names) > 0 && !slices.Contains(names, name) {
		cmd.PrintErrf("there is no source %s now, but %s\n", name, strings.Join(names, ", "))
	}
}

func about(query url.Values, args []string) error {
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
	query.Set("kind", string(schema.Kind))
	namespace, name, ok := strings.Cut(object, "/")
	switch {
	case !ok && object != "" && !schema.Bare && query.Get("namespace") == "":
		query.Set("namespace", "default")
		query.Set("name", object)
	case !ok:
		query.Set("name", object)
	case namespace == "" || name == "":
		return usage("want NAMESPACE/NAME, got %q", object)
	default:
		query.Set("namespace", namespace)
		query.Set("name", name)
	}
	return nil
}
