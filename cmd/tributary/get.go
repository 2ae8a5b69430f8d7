package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/adsc"
	"tributary/cmd/internal/adminclient"
	"tributary/cmd/internal/manifest"
	"tributary/cmd/internal/table"
	"tributary/cmd/internal/xdsclient"
	"tributary/config"
	"tributary/resource"
	"tributary/server/admin"
)

// clientFlags are those of the commands that ask a server.
type clientFlags struct {
	server     string
	timeout    time.Duration
	namespace  string
	everywhere bool
	nodeID     string
	metadata   map[string]string
	secure     secureFlags
	log        logFlags

	version func(resource.Key) string // of the objects, where they have one; or nil
}

// ageFlags say who knows how old objects are that have no time of creation.
type ageFlags struct{ admin string }

// ageTimeout is how long get waits for ages: they are not worth more.
const ageTimeout = 2 * time.Second

func (f *ageFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.admin, "admin", defaultAdmin(), "address of the server's admin server, host:port, https://host:port or unix:///PATH, which knows when objects were first seen; by default it is asked only if --server is not given")
}

// date has those of rs that have no time of creation tell when the server first saw them, as far as that can be found out.
func (f *ageFlags) date(cmd *cobra.Command, secure *adsc.TLS, schema *resource.Schema, rs []*resource.Resource) {
	asked := cmd.Flags().Changed("admin") || os.Getenv(envAdmin) != ""
	if !asked && (cmd.Flags().Changed("server") || os.Getenv(envServer) != "") || !slices.ContainsFunc(rs, func(r *resource.Resource) bool { return r.Own().IsZero() }) {
		return
	}
	var seen admin.Seen
	client := &adminclient.Client{Address: f.admin, TLS: secure, Timeout: ageTimeout}
	if _, err := client.Get(cmd.Context(), "/debug/seen", url.Values{"kind": {string(schema.Kind)}}, &seen); err != nil {
		if asked {
			cmd.PrintErrf("warning: ages: %v\n", err)
		}
		return
	}
	for i, r := range rs {
		rs[i] = r.WithSeen(seen[r.Key().FullName()])
	}
}

// add adds the flags, with the namespace that is meant if none is given; the empty one stands for all.
func (f *clientFlags) add(cmd *cobra.Command, namespace string) {
	cmd.Flags().Var(newXDSServer(&f.server), "server", "host:port of a server of MCP over xDS, tributary or istiod, or of Envoy's types (default: $"+envServer+", else "+config.DefaultXDS+")")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for the first answer")
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", namespace, "namespace of the objects")
	cmd.Flags().BoolVarP(&f.everywhere, "all-namespaces", "A", false, "objects of all namespaces")
	cmd.Flags().StringVar(&f.nodeID, "node-id", "", "id of the node to ask as (default: one that istiod takes)")
	cmd.Flags().StringToStringVar(&f.metadata, "metadata", nil, "metadata of the node to ask as, such as ISTIO_REVISION=canary")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	f.secure.add(cmd)
	f.log.add(cmd)
}

func (f *clientFlags) client(cmd *cobra.Command) *xdsclient.Client {
	return &xdsclient.Client{
		Server: f.server, TLS: f.secure.settings(), Timeout: f.timeout, NodeID: f.nodeID, Metadata: f.metadata, Log: f.log.logger(cmd.ErrOrStderr()),
	}
}

// selects reports whether the flags ask for r. Objects without a namespace are in all of them.
func (f *clientFlags) selects(r *resource.Resource) bool {
	return f.everywhere || f.namespace == "" || r.Key().Namespace == "" || r.Key().Namespace == f.namespace
}

// narrow has the flags ask for one object, by NAME or NAMESPACE/NAME. It returns its name.
func (f *clientFlags) narrow(object string) (name string, err error) {
	namespace, name, ok := strings.Cut(object, "/")
	switch {
	case !ok && f.everywhere:
		return "", usage("a NAME is of one namespace: give it with -n, not -A")
	case !ok:
		return object, nil
	case namespace == "" || name == "":
		return "", usage("want NAMESPACE/NAME, got %q", object)
	}
	f.namespace, f.everywhere = namespace, false
	return name, nil
}

// schemaNamed returns the schema that a person means by name.
func schemaNamed(name string) (*resource.Schema, error) {
	if schema, ok := resource.SchemaByName(name); ok {
		return schema, nil
	}
	return nil, usage("unknown kind %q%s; known: %s", name, meant(name, kindNames()), strings.Join(kinds(), ", "))
}

// envoyTypeNames are the names of the types that get and watch know besides kinds.
func envoyTypeNames() string {
	var names []string
	for _, t := range xdsclient.EnvoyTypes() {
		names = append(names, t.Name)
	}
	return strings.Join(names, ", ")
}

// kinds are all kinds as they can be given, such as "serviceentries (se)".
func kinds() []string {
	var all []string
	for _, s := range resource.Schemas() {
		name := s.Plural
		singular := strings.ToLower(string(s.Kind))
		if short := slices.DeleteFunc(slices.Clone(s.ShortNames), func(n string) bool { return n == singular }); len(short) > 0 {
			name += " (" + strings.Join(short, ", ") + ")"
		}
		all = append(all, name)
	}
	return all
}

// kindNames are all names of all kinds, and of Envoy's types.
func kindNames() (names []string) {
	for _, s := range resource.Schemas() {
		names = append(append(names, strings.ToLower(string(s.Kind)), s.Plural), s.ShortNames...)
	}
	for _, t := range xdsclient.EnvoyTypes() {
		names = append(names, t.Name)
	}
	return names
}

// completeKind offers the kinds to a shell.
func completeKind(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, s := range resource.Schemas() {
		names = append(names, cobra.CompletionWithDesc(s.Plural, string(s.Kind)))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeType offers what get and watch take.
func completeType(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, directive := completeKind(cmd, args, typed)
	if len(args) > 0 {
		return names, directive
	}
	for _, t := range xdsclient.EnvoyTypes() {
		names = append(names, cobra.CompletionWithDesc(t.Name, "of Envoy"))
	}
	return names, directive
}

func newGet() *cobra.Command {
	var flags clientFlags
	var stored storeFlags
	var ages ageFlags
	output := outputs("table", "yaml", "json")
	cmd := &cobra.Command{
		Use:   "get {KIND | TYPE} [[NAMESPACE/]NAME]",
		Short: "Show the objects that a server has",
		Long: `Get asks a server of MCP over xDS, tributary or istiod, for the objects of a kind. With -o yaml it prints what
kubectl apply takes. AGE is since its creation if an object names a time, else since the server first saw it, if its admin
server can be asked (--admin).

With --store it reads a store to which tributary apply writes, such as Consul's key-value store, instead of asking a server;
-o yaml then has the resourceVersion that apply takes.

It also asks any ADS server for Envoy's ` + envoyTypeNames() + `: for endpoints it follows the clusters, for
routes the listeners. What they refer to and the server does not send is waited for until --timeout, and then named.

Kinds: ` + strings.Join(kinds(), ", ") + ".",
		Example: `  tributary get se -A
  tributary get se shop/reviews
  tributary get virtualservice reviews -n shop -o yaml --server istiod.example:15010
  tributary get vs -A --store consul-kv://127.0.0.1:8500/mesh
  tributary get endpoints --server istiod.example:15010 --node-id sidecar~10.0.0.7~web.shop~shop.svc.cluster.local`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completeType,
		RunE: does(func(cmd *cobra.Command, args []string) error {
			if t, ok := envoyType(args[0]); ok && stored == (storeFlags{}) {
				return getEnvoy(cmd, &flags, output.value, t, strings.Join(args[1:], ""))
			}
			schema, err := schemaNamed(args[0])
			if err != nil {
				return err
			}
			if len(args) == 2 {
				if args[1], err = flags.narrow(args[1]); err != nil {
					return err
				}
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			if stored != (storeFlags{}) {
				return getStored(ctx, cmd, &flags, &stored, output.value, schema, args[1:])
			}
			answer, err := flags.client(cmd).Get(ctx, schema)
			if err != nil {
				return err
			}
			for _, err := range answer.Rejects {
				cmd.PrintErrf("warning: %v\n", err)
			}
			if output.value == "table" {
				ages.date(cmd, flags.secure.settings(), schema, answer.Resources)
			}
			if len(args) == 2 {
				return printOne(cmd.OutOrStdout(), output.value, schema, &flags, args[1], answer.Resources)
			}
			return printList(cmd, output.value, schema, &flags, answer.Resources)
		}),
	}
	flags.add(cmd, "default")
	stored.add(cmd)
	ages.add(cmd)
	cmd.MarkFlagsMutuallyExclusive("server", "store")
	cmd.MarkFlagsMutuallyExclusive("server", "config")
	output.add(cmd)
	return cmd
}

// getStored is get for a store.
func getStored(ctx context.Context, cmd *cobra.Command, flags *clientFlags, stored *storeFlags, format string, schema *resource.Schema, names []string) error {
	store, err := stored.open(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	for _, reject := range store.Rejects() {
		cmd.PrintErrf("warning: %v\n", reject.Err)
	}
	flags.server, flags.version = store.String(), store.Version
	all := store.List(schema.Kind, "")
	if len(names) > 0 {
		return printOne(cmd.OutOrStdout(), format, schema, flags, names[0], all)
	}
	return printList(cmd, format, schema, flags, all)
}

// printOne prints the object called name.
func printOne(w io.Writer, format string, schema *resource.Schema, flags *clientFlags, name string, all []*resource.Resource) error {
	var elsewhere []string
	for _, r := range all {
		switch {
		case r.Key().Name != name:
		case flags.selects(r):
			if format == "table" {
				return table.Write(w, schema.Kind, []*resource.Resource{r}, false, time.Now())
			}
			return printDocument(w, format, r, flags.version)
		default:
			elsewhere = append(elsewhere, r.Key().Namespace)
		}
	}
	hint := ""
	if len(elsewhere) > 0 {
		hint = fmt.Sprintf("; there is one in namespace %s", strings.Join(elsewhere, ", "))
	}
	return fmt.Errorf("%s has no %s %s in namespace %s%s", flags.server, schema.Kind, name, flags.namespace, hint)
}

// printList prints the objects that the flags ask for.
func printList(cmd *cobra.Command, format string, schema *resource.Schema, flags *clientFlags, all []*resource.Resource) error {
	selected := slices.DeleteFunc(slices.Clone(all), func(r *resource.Resource) bool { return !flags.selects(r) })
	w := cmd.OutOrStdout()
	switch {
	case format == "json":
		return printJSONList(w, selected, flags.version)
	case len(selected) == 0:
		where, hint := "in namespace "+flags.namespace, ""
		if flags.everywhere || flags.namespace == "" {
			where = "at all"
		} else if len(all) > 0 {
			hint = fmt.Sprintf("; there are %d in other namespaces (-A)", len(all))
		}
		cmd.PrintErrf("no %s %s%s\n", schema.Plural, where, hint)
		return nil
	case format == "yaml":
		for i, r := range selected {
			if i > 0 {
				if _, err := io.WriteString(w, "---\n"); err != nil {
					return err
				}
			}
			if err := printDocument(w, format, r, flags.version); err != nil {
				return err
			}
		}
		return nil
	}
	return table.Write(w, schema.Kind, selected, flags.everywhere, time.Now())
}

// printDocument prints one object as YAML or JSON, with its version if version tells one.
func printDocument(w io.Writer, format string, r *resource.Resource, version func(resource.Key) string) error {
	marshal := resource.MarshalYAML
	if format == "json" {
		marshal = resource.MarshalJSON
	}
	text, err := marshal(r)
	if err != nil {
		return err
	}
	if version != nil {
		text = manifest.WithVersion(text, version(r.Key()))
	}
	if format == "json" {
		if text, err = indented(text); err != nil {
			return err
		}
	}
	_, err = w.Write(text)
	return err
}

// printJSONList prints objects as a list that kubectl apply takes.
func printJSONList(w io.Writer, rs []*resource.Resource, version func(resource.Key) string) error {
	list := struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}{"v1", "List", []json.RawMessage{}}
	for _, r := range rs {
		text, err := resource.MarshalJSON(r)
		if err != nil {
			return err
		}
		if version != nil {
			text = manifest.WithVersion(text, version(r.Key()))
		}
		list.Items = append(list.Items, text)
	}
	return printJSON(w, list)
}

func indented(text []byte) ([]byte, error) {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}
