package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"tributary/adsc"
	"tributary/cmd/internal/client"
	"tributary/config"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/admin"
)

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

// ageFlags select the source of ages for objects without a time of creation.
type ageFlags struct{ admin adminServer }

// ageTimeout is how long get waits for ages: they are not worth more.
const ageTimeout = 2 * time.Second

func (f *ageFlags) add(cmd *cobra.Command) {
	f.admin.add(cmd, "address of the admin server, which knows when objects were first seen; by default it is asked only if --server is not "+
		"given")
}

// meant reports whether a flag or variable names the admin server.
func (f *ageFlags) meant(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("admin") || os.Getenv(envAdmin) != ""
}

// date has those of rs that have no time of creation tell when the server first saw them, as far as that can be found
// out.
func (f *ageFlags) date(cmd *cobra.Command, secure *adsc.TLS, schema *resource.Schema, rs []*resource.Resource) {
	asked := f.meant(cmd)
	if !asked && (cmd.Flags().Changed("server") || os.Getenv(envServer) != "" && !cmd.Flags().Changed("config")) ||
		!slices.ContainsFunc(rs, func(r *resource.Resource) bool { return r.Own().IsZero() }) {
		return
	}
	var seen admin.Seen
	server := f.admin.client(secure)
	server.Timeout = ageTimeout
	if _, err := server.Get(cmd.Context(), "/debug/seen", url.Values{"kind": {string(schema.Kind)}}, &seen); err != nil {
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
	cmd.Flags().Var(newXDSServer(&f.server), "server", "host:port of a server of MCP over xDS, tributary or istiod, or of Envoy's types"+
		orElse(envServer, "listen.xds", config.DefaultXDS))
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for the first answer")
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", namespace, "namespace of the objects")
	cmd.Flags().BoolVarP(&f.everywhere, "all-namespaces", "A", false, "objects of all namespaces")
	cmd.Flags().StringVar(&f.nodeID, "node-id", "", "id of the node to ask as (default: one that istiod takes)")
	cmd.Flags().StringToStringVar(&f.metadata, "metadata", nil, "metadata of the node to ask as, such as ISTIO_REVISION=canary")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	completeFlag(cmd, "namespace", f.completeNamespaces)
	f.secure.add(cmd)
	f.log.add(cmd)
}

func (f *clientFlags) client(cmd *cobra.Command) *client.XDS {
	return &client.XDS{
		Server: f.server, TLS: f.secure.settings(), TokenFile: f.secure.tokenFile(), Timeout: f.timeout, NodeID: f.nodeID, Metadata: f.metadata,
		Log: f.log.logger(cmd.ErrOrStderr()),
	}
}

// selects reports whether the flags ask for r. Objects without a namespace are in all of them.
func (f *clientFlags) selects(r *resource.Resource) bool {
	return f.everywhere || f.namespace == "" || r.Key().Namespace == "" || r.Key().Namespace == f.namespace
}

func schemaNamed(name string) (*resource.Schema, error) {
	if schema, ok := resource.SchemaByName(name); ok {
		return schema, nil
	}
	return nil, usage("unknown kind %q%s; known: %s", name,
		words.Suggestion(name, kindNames()), strings.Join(kinds(), ", "))
}

// envoyTypeNames are the names of the types that get and watch accept in addition to kinds.
func envoyTypeNames() []string {
	return words.Each(client.EnvoyTypes(), func(t client.EnvoyType) string { return t.Name })
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
	return append(names, envoyTypeNames()...)
}

func newGet() *cobra.Command {
	var flags clientFlags
	var stored storeFlags
	var ages ageFlags
	var at moment
	var labelled, sortBy string
	var noHeaders, watched bool
	format := outputs("table", "wide", "name", "yaml", "json", jsonPathFormat)
	cmd := &cobra.Command{
		Use:   "get {KIND[,KIND...] | all | TYPE} [[NAMESPACE/]NAME...]",
		Short: "Show the objects that a server has",
		Long: `Get asks a server of MCP over xDS, tributary or istiod, for the objects of a kind, of several, or of all. Objects can also
be given as KIND/[NAMESPACE/]NAME, which is what -o name prints. With -o yaml it prints what kubectl apply takes. AGE is since its
creation if an object names a time, else since the server first saw it, if its admin server can be asked (--admin). It exits with 1
if an object that is named is not there.

With --store it reads a store to which tributary apply writes, such as Consul's key-value store, instead of asking a server;
-o yaml then has the resourceVersion that apply takes.

With --at it shows what the server served at a time, such as 1h (ago) or 2026-05-04T03:00:00Z, as its admin server remembers it.

It also asks any ADS server for Envoy's ` + strings.Join(envoyTypeNames(), ", ") + `: for endpoints it follows the clusters, for
routes the listeners. What they refer to and the server does not send is waited for until --timeout, and then named.

Kinds: ` + strings.Join(kinds(), ", ") + ".",
		Example: `  tributary get se -A
  tributary get vs,dr -A -l app=reviews -o wide
  tributary get se shop/reviews shop/ratings
  tributary get all -n shop -o name
  tributary get se -A -o 'jsonpath={.items[*].spec.hosts[0]}' --sort-by .metadata.name
  tributary get vs reviews -n shop -o yaml --server istiod.example:15012 --tls-ca ca.pem --token-file token
  tributary get se shop/reviews -o yaml --at 1h
  tributary get vs -A --store consul-kv://127.0.0.1:8500/mesh
  tributary get endpoints --server istiod.example:15010 --node-id sidecar~10.0.0.7~web.shop~shop.svc.cluster.local`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: flags.completeObjects,
		RunE: asks(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if t, ok := envoyType(args[0]); ok && stored.store == "" && at.IsZero() {
				if format.path != nil || sortBy != "" {
					return usage("jsonpath and --sort-by are for kinds of Istio")
				}
				if len(args) > 2 || labelled != "" {
					return usage("of %s, want one NAME at most, and no labels, which they do not have", t.Name)
				}
				if watched && len(args) > 1 {
					return usage("%s are watched all together: leave out NAME", t.Name)
				}
				if watched {
					return watchEnvoy(ctx, cmd, &flags, format.value, t)
				}
				return getEnvoy(ctx, cmd, &flags, format.value, t, strings.Join(args[1:], ""))
			}
			selector, err := labels.Parse(labelled)
			if err != nil {
				return usage("--selector %s: want conditions such as app=reviews,version in (v1,v2),track!=canary,tier,!old", labelled)
			}
			all, err := whatIsWanted(args, &flags)
			if err != nil {
				return err
			}
			if watched {
				if format.path != nil || sortBy != "" {
					return usage("--watch goes with neither jsonpath nor --sort-by")
				}
				if len(all) != 1 {
					return usage("--watch is for one KIND at a time")
				}
				return watchObjects(ctx, cmd, &flags, format.value, all[0].schema, func(r *resource.Resource) bool {
					f, _ := all[0].pick(&flags, selector, []*resource.Resource{r}) // that objects of other names are not r is no error
					return len(f.objects) > 0
				})
			}
			var read func(*resource.Schema) ([]*resource.Resource, error)
			if at.IsZero() {
				of, done, err := flags.reader(ctx, cmd, &stored, all)
				if err != nil {
					return err
				}
				defer done()
				read = of
			} else {
				if err := at.past("--at"); err != nil {
					return err
				}
				read = flags.before(ctx, cmd, &ages, &at)
			}
			p := printing{format: format.value, path: format.path, noHeaders: noHeaders, version: flags.version}
			p.list = len(all) != 1 || len(all[0].names) != 1
			var there []found
			var missing []error
			others, some := 0, false
			for _, w := range all {
				objects, err := read(w.schema)
				if err != nil {
					return err
				}
				f, err := w.pick(&flags, selector, objects)
				if err != nil {
					missing = append(missing, err)
				}
				if sortBy != "" {
					if err := sortByPath(f.objects, sortBy); err != nil {
						return usage("--sort-by: %w", err)
					}
				}
				if at.IsZero() && (format.value == "table" || format.value == "wide") {
					ages.date(cmd, flags.secure.settings(), w.schema, f.objects)
				}
				there, others, some = append(there, f), others+f.others, some || len(f.objects) > 0
			}
			if some || format.value == "json" && p.list {
				if err := p.print(cmd.OutOrStdout(), &flags, there); err != nil {
					return err
				}
			} else if len(missing) == 0 {
				what := "objects"
				if len(all) == 1 {
					what = all[0].schema.Plural
				}
				if labelled != "" {
					what += " with labels " + labelled
				}
				sayNothing(cmd, &flags, what, others)
			}
			return errors.Join(missing...)
		}),
	}
	flags.add(cmd, "default")
	stored.add(cmd, " of the server, for the address in its listen; with --store, of the store")
	cmd.Flags().Lookup("store").Usage = "read a store instead of a server: consul-kv://host:port/prefix, or the name of a source of the " +
		"configuration"
	ages.add(cmd)
	cmd.Flags().StringVarP(&labelled, "selector", "l", "", "only objects with such labels, as kubectl has it: app=reviews,version in "+
		"(v1,v2),!canary")
	cmd.Flags().StringVar(&sortBy, "sort-by", "", "sort the objects of a kind by a field, such as .metadata.name")
	cmd.Flags().BoolVar(&noHeaders, "no-headers", false, "leave out the titles of tables")
	cmd.Flags().Var(&at, "at", "show the objects that were served at a time, or so long ago, such as 1h, by the admin server (--admin)")
	cmd.Flags().BoolVarP(&watched, "watch", "w", false, "print them, and then each change, as tributary watch does")
	for _, pair := range []string{"watch at", "watch store", "server at", "store at", "server store", "server config"} {
		cmd.MarkFlagsMutuallyExclusive(strings.Fields(pair)...)
	}
	format.add(cmd)
	return cmd
}

// reader returns a reader of objects from a store or a server, and the function that closes it.
func (f *clientFlags) reader(ctx context.Context, cmd *cobra.Command, stored *storeFlags,
	all []wanted,
) (read func(*resource.Schema) ([]*resource.Resource, error), done func(), err error) {
	if stored.store != "" {
		store, err := stored.open(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, reject := range store.Rejects() {
			cmd.PrintErrf("warning: %v\n", reject.Err)
		}
		f.server, f.version = store.String(), store.Version
		read = func(schema *resource.Schema) ([]*resource.Resource, error) { return store.List(schema.Kind, ""), nil }
		return read, func() { store.Close() }, nil
	}
	schemas := make([]*resource.Schema, len(all))
	for i, w := range all {
		schemas[i] = w.schema
	}
	answers, err := f.client(cmd).GetAll(ctx, schemas)
	if err != nil {
		return nil, nil, err
	}
	read = func(schema *resource.Schema) ([]*resource.Resource, error) {
		answer := answers[slices.Index(schemas, schema)]
		warn(cmd, answer.Rejects...)
		return answer.Resources, nil
	}
	return read, func() {}, nil
}

func (f *clientFlags) before(ctx context.Context, cmd *cobra.Command, ages *ageFlags,
	at *moment,
) func(*resource.Schema) ([]*resource.Resource, error) {
	server := f.admin(ages)
	f.server = ages.admin.address + " at " + at.text
	return func(schema *resource.Schema) ([]*resource.Resource, error) {
		rs, unknown, err := servedAt(ctx, server, at, schema.Kind)
		for _, text := range unknown {
			cmd.PrintErrf("warning: %s\n", text)
		}
		return rs, err
	}
}

// wanted is the request of get: objects of a kind.
type wanted struct {
	schema *resource.Schema
	names  []resource.Key // without a kind; none for all that the flags ask for
}

type found struct {
	schema  *resource.Schema
	objects []*resource.Resource
	others  int // that the flags leave out by their namespace
}

const allKinds = "all"

// whatIsWanted reads KIND[,KIND…] [[NAMESPACE/]NAME…] or KIND/[NAMESPACE/]NAME….
func whatIsWanted(args []string, flags *clientFlags) ([]wanted, error) {
	if kind, _, ok := strings.Cut(args[0], "/"); ok {
		if _, known := resource.SchemaByName(kind); known {
			return eachWanted(args, flags)
		}
	}
	var names []resource.Key
	for _, object := range args[1:] {
		key, err := flags.named(object)
		if err != nil {
			return nil, err
		}
		names = append(names, key)
	}
	if args[0] == allKinds && len(names) > 0 {
		return nil, usage("a NAME is of one kind, and not of %s", allKinds)
	}
	var all []wanted
	for kind := range strings.SplitSeq(args[0], ",") {
		if t, ok := envoyType(kind); ok {
			return nil, usage("%s are of Envoy: ask for them alone", t.Name)
		}
		if kind == "" {
			return nil, usage("want KIND[,KIND...], got %q", args[0])
		}
		if kind == allKinds {
			all = nil
			for _, schema := range resource.Schemas() {
				all = append(all, wanted{schema: schema})
			}
			return all, nil
		}
		schema, err := schemaNamed(kind)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(w wanted) bool { return w.schema == schema }) {
			all = append(all, wanted{schema, names})
		}
	}
	return all, nil
}

func eachWanted(args []string, flags *clientFlags) (all []wanted, err error) {
	for _, arg := range args {
		kind, object, ok := strings.Cut(arg, "/")
		if !ok {
			return nil, usage("want KIND/[NAMESPACE/]NAME, as before it, got %q", arg)
		}
		schema, err := schemaNamed(kind)
		if err != nil {
			return nil, err
		}
		key, err := flags.named(object)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(w wanted) bool { return w.schema == schema })
		if i < 0 {
			i, all = len(all), append(all, wanted{schema: schema})
		}
		all[i].names = append(all[i].names, key)
	}
	return all, nil
}

// named reads [NAMESPACE/]NAME.
func (f *clientFlags) named(object string) (resource.Key, error) {
	if f.everywhere && !strings.Contains(object, "/") {
		return resource.Key{}, usage("a NAME is of one namespace: give it with -n, not -A")
	}
	return namedIn(f.namespace, object)
}

// namedIn reads [NAMESPACE/]NAME, where namespace is meant if there is none.
func namedIn(namespace, object string) (resource.Key, error) {
	before, name, ok := strings.Cut(object, "/")
	switch {
	case !ok:
		return resource.Key{Namespace: namespace, Name: object}, nil
	case before == "" || name == "":
		return resource.Key{}, usage("want NAMESPACE/NAME, got %q", object)
	}
	return resource.Key{Namespace: before, Name: name}, nil
}

// pick chooses of all objects of the kind those that are wanted. The error names those that are not there.
func (w *wanted) pick(flags *clientFlags, selector labels.Selector, all []*resource.Resource) (f found, err error) {
	f.schema = w.schema
	if len(w.names) == 0 {
		for _, r := range all {
			switch {
			case !selector.Matches(labels.Set(r.Labels())):
			case flags.selects(r):
				f.objects = append(f.objects, r)
			default:
				f.others++
			}
		}
		return f, nil
	}
	var missing []error
	for _, name := range w.names {
		var elsewhere []string
		before := len(f.objects)
		for _, r := range all {
			switch {
			case r.Key().Name != name.Name:
			case r.Key().Namespace == "" || name.Namespace == "" || r.Key().Namespace == name.Namespace:
				f.objects = append(f.objects, r)
			default:
				elsewhere = append(elsewhere, r.Key().Namespace)
			}
		}
		if len(f.objects) > before {
			continue
		}
		hint := ""
		if len(elsewhere) > 0 {
			hint = "; there is one in namespace " + strings.Join(elsewhere, ", ")
		}
		missing = append(missing, fmt.Errorf("%s has no %s %s in namespace %s%s", flags.server, w.schema.Kind, name.Name, name.Namespace, hint))
	}
	return f, errors.Join(missing...)
}

func sayNothing(cmd *cobra.Command, flags *clientFlags, what string, others int) {
	where, hint := "in namespace "+flags.namespace, ""
	if flags.everywhere || flags.namespace == "" {
		where = "at all"
	} else if others > 0 {
		are := "are"
		if others == 1 {
			are = "is"
		}
		hint = fmt.Sprintf("; there %s %d in other namespaces (-A)", are, others)
	}
	cmd.PrintErrf("no %s %s%s\n", what, where, hint)
}
