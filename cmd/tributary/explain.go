package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/client"
	"tributary/cmd/internal/output"
	"tributary/internal/history"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/sources/derive"
)

type adminFlags struct {
	server  adminServer
	config  string // of the server
	timeout time.Duration
	secure  secureFlags
}

// answerTimeout is the default limit of the wait for an answer.
const answerTimeout = 10 * time.Second

func (f *adminFlags) add(command *cobra.Command) {
	f.server.add(command, "address of tributary's admin server")
	addConfig(command, &f.config, " of the server, for the address in its listen.admin")
	command.Flags().DurationVar(&f.timeout, "timeout", answerTimeout, "how long to wait for the answer")
	f.secure.add(command)
}

func (f *adminFlags) client() *client.Admin {
	return f.server.secured(&f.secure, f.timeout)
}

// show prints the page at path, which it decodes into v: unchanged with -o json, else by text.
func (f *adminFlags) show(
	ctx context.Context, command *cobra.Command, format *choice, path string, query url.Values, v any,
	text func(io.Writer) error,
) error {
	page, err := f.client().Get(ctx, path, query, v)
	if err != nil {
		return err
	}
	if format.value == "json" {
		_, err = command.OutOrStdout().Write(page)
		return err
	}
	return text(command.OutOrStdout())
}

// post calls the action at a path in the name of the user, and prints the answer.
func (f *adminFlags) post(ctx context.Context, command *cobra.Command, path string, query url.Values) error {
	query.Set("by", whoAmI())
	answer, err := f.client().Post(ctx, path, query)
	if err != nil {
		return err
	}
	f.nameServer(command)
	_, err = io.WriteString(command.OutOrStdout(), answer)
	return err
}

// nameServer prints the called server, unless a flag names it.
func (f *adminFlags) nameServer(cmd *cobra.Command) {
	if f.server.from != "" {
		cmd.PrintErrf("server: %s\n", f.client().Name())
	}
}

// completing returns a client for completions.
func (f *adminFlags) completing(cmd *cobra.Command) *client.Admin {
	findAdmin(cmd)
	f.timeout = completionTimeout
	return f.client()
}

func newExplain() *cobra.Command {
	var flags adminFlags
	var namespace string
	format := outputs("text", "json")
	command := &cobra.Command{
		Use:   "explain {KIND [NAMESPACE/]NAME | KIND/[NAMESPACE/]NAME | HOST | ADDRESS | NAME}",
		Short: "Explain an object or a host",
		Long: `Explain shows the source of an object and its place there, the other sources that have it and the reason for
the choice, its quarantined and held versions, the objects that compete with it and the effect in istiod, and the
clients that were sent it, with times; of Envoy and gRPC clients, which receive generated xDS, whether they
acknowledged or rejected it. It shows rules and policies as they are served. Of a host it explains each object that
references it, with or without a port; of an IP address, the objects that have it; of any other name, the objects with
this name and those with this name in a registry, such as an interface of Dubbo. It lists instances in registries that
are not served, with the reason. Without such an object it exits with 1, and names similar objects, and the time at
which the object went if the history has it.`,
		Example: `  tributary explain se shop/reviews
  tributary explain virtualservice reviews -n shop -o json
  tributary explain reviews.shop.svc.cluster.local --admin mesh-1.example:16014
  tributary explain httproute shop/reviews
  tributary explain 10.2.0.3
  tributary explain reviews
  tributary explain com.acme.Demo`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: flags.completeObjects,
		RunE: runInterruptible(func(ctx context.Context, command *cobra.Command, args []string) error {
			subject, query, err := question(args, namespace)
			if err != nil {
				return err
			}
			var answer admin.Explanation
			err = flags.show(ctx, command, format, "/debug/explain", query, &answer, func(w io.Writer) error {
				return output.Explain(w, subject, &answer, time.Now())
			})
			if answer.NotReady {
				command.PrintErrln("warning: the server is not ready: clients get no objects yet")
			}
			if err == nil && len(answer.Objects) == 0 {
				return &failure{code: exitFailed}
			}
			return err
		}),
	}
	flags.add(command)
	command.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the object")
	format.add(command)
	completeFlag(command, "namespace", flags.completeNamespaces)
	return command
}

// question converts the arguments of explain to the subject, for people and for the admin server.
func question(args []string, namespace string) (subject string, query url.Values, err error) {
	if len(args) == 1 {
		if kind, object, ok := strings.Cut(args[0], "/"); ok && object != "" {
			_, derives := derive.KindNamed(kind)
			if _, exists := resource.SchemaByName(kind); exists || derives { // as get -o name prints it
				return question([]string{kind, object}, namespace)
			}
		}
		host := args[0]
		if schema, ok := resource.SchemaByName(host); ok || strings.Contains(host, "/") {
			return "", nil, usage("want a kind and a name, or a host; got %s alone%s", host, forExample(schema))
		}
		if name, port, err := net.SplitHostPort(host); err == nil && name != "" && port != "" {
			host = name // objects reference hosts
		}
		return host, url.Values{"host": {host}}, nil
	}
	schema := new(resource.Schema)
	if parent, ok := derive.KindNamed(args[0]); ok && parent.Kind != string(resource.Gateway) {
		schema.Kind = resource.Kind(parent.Kind)
	} else if schema, err = schemaNamed(args[0]); err != nil {
		return "", nil, err
	}
	name := args[1]
	if schema.Bare {
		name = strings.TrimPrefix(name, "/") // as the key is printed
	}
	key, err := namedIn(namespace, name)
	key = keyOf(schema, key.Namespace, key.Name)
	return key.String(), url.Values{"kind": {string(key.Kind)}, "namespace": {key.Namespace}, "name": {key.Name}}, err
}

// keyOf returns the key of an object. A kind without namespaces ignores the namespace.
func keyOf(schema *resource.Schema, namespace, name string) resource.Key {
	if schema.Bare {
		namespace = ""
	}
	return resource.Key{Kind: schema.Kind, Namespace: namespace, Name: name}
}

func forExample(schema *resource.Schema) string {
	if schema == nil {
		return ""
	}
	return fmt.Sprintf("; for example: tributary explain %s shop/reviews", strings.ToLower(string(schema.Kind)))
}

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
			if err := about(query, args); err != nil {
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
	command.Flags().Var(&from, "since", "only changes since a time, or within so long, such as 1h")
	command.Flags().StringVarP(&namespace, "namespace", "n", "", "only objects of this namespace")
	command.Flags().StringVar(&source, "source", "", "only changes of this source")
	command.Flags().IntVar(&limit, "limit", 1000, "only the newest so many changes")
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
