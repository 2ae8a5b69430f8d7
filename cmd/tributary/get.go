package main

import (
	"cmp"
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
	admin      adminServer // of commands with addAdmin

	version func(resource.Key) string // of the objects, where they have one; or nil
}

// ageTimeout bounds the wait of get for ages: they are not worth more.
const ageTimeout = 2 * time.Second

// addAdmin adds the flag of the admin server, which has the ages of objects without a time of creation.
func (f *clientFlags) addAdmin(cmd *cobra.Command) {
	f.admin.add(cmd, "address of the admin server, which knows when objects were first seen; by default it is "+
		"asked only if --server is not given")
}

// namesAdmin reports whether a flag or variable names the admin server.
func namesAdmin(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("admin") || os.Getenv(envAdmin) != ""
}

// date sets the times at which the server first saw the objects without a time of creation, if the admin server
// answers.
func (f *clientFlags) date(command *cobra.Command, schema *resource.Schema, resources []*resource.Resource) {
	explicit := namesAdmin(command)
	if !explicit && (command.Flags().Changed("server") || os.Getenv(envServer) != "" &&
		!command.Flags().Changed("config")) ||
		!slices.ContainsFunc(resources, func(r *resource.Resource) bool { return r.Own().IsZero() }) {
		return
	}
	var seen admin.Seen
	server := f.admin.client(f.secure.settings())
	server.Timeout = ageTimeout
	if _, err := server.Get(command.Context(), "/debug/seen", url.Values{"kind": {string(schema.Kind)}},
		&seen); err != nil {
		if explicit {
			command.PrintErrf("warning: ages: %v\n", err)
		}
		return
	}
	for i, r := range resources {
		resources[i] = r.WithSeen(seen[r.Key().FullName()])
	}
}

// add adds the flags, with a default namespace; the empty one stands for each.
func (f *clientFlags) add(command *cobra.Command, namespace string) {
	command.Flags().Var(xdsServer{&f.server}, "server",
		"host:port of a server of MCP over xDS, tributary or istiod, or of Envoy's types"+
			orElse(envServer, "listen.xds", config.DefaultXDS))
	command.Flags().DurationVar(&f.timeout, "timeout", answerTimeout, "how long to wait for the first answer")
	command.Flags().StringVarP(&f.namespace, "namespace", "n", namespace, "namespace of the objects")
	command.Flags().BoolVarP(&f.everywhere, "all-namespaces", "A", false, "objects of all namespaces")
	command.Flags().StringVar(&f.nodeID, "node-id", "", "id of the node to ask as (default: one that istiod takes)")
	command.Flags().StringToStringVar(&f.metadata,
		"metadata", nil, "metadata of the node to ask as, such as ISTIO_REVISION=canary")
	command.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	completeFlag(command, "namespace", f.completeNamespaces)
	f.secure.add(command)
	f.log.add(command)
}

func (f *clientFlags) client(cmd *cobra.Command) *client.XDS {
	return &client.XDS{
		Server: f.server, TLS: f.secure.settings(), TokenFile: f.secure.tokenFile(), Timeout: f.timeout,
		NodeID: f.nodeID, Metadata: f.metadata, Log: f.log.logger(cmd.ErrOrStderr()),
	}
}

// selects reports whether the flags select an object. Objects without a namespace are in all of them.
func (f *clientFlags) selects(r *resource.Resource) bool {
	return f.everywhere || f.namespace == "" || r.Key().Namespace == "" || r.Key().Namespace == f.namespace
}

func schemaNamed(name string) (*resource.Schema, error) {
	if schema, ok := resource.SchemaByName(name); ok {
		return schema, nil
	}
	return nil, usage("unknown kind %q%s; known: %s", name,
		words.Suggestion(name, append(resource.KindNames(), envoyTypeNames()...)), strings.Join(kinds(), ", "))
}

// envoyTypeNames are the names of the types that get and watch accept in addition to kinds.
func envoyTypeNames() []string {
	return words.Each(client.EnvoyTypes(), func(t client.EnvoyType) string { return t.Name })
}

// kinds returns all kinds as arguments name them, such as "serviceentries (se)".
func kinds() (names []string) {
	for _, s := range resource.Schemas() {
		name := s.Plural
		singular := strings.ToLower(string(s.Kind))
		short := slices.DeleteFunc(slices.Clone(s.ShortNames), func(n string) bool { return n == singular })
		if len(short) > 0 {
			name += " (" + strings.Join(short, ", ") + ")"
		}
		names = append(names, name)
	}
	return names
}

// getFlags are the flags of get.
type getFlags struct {
	clientFlags

	stored    storeFlags
	time      moment
	labelled  string
	sortBy    string
	noHeaders bool
	watched   bool
	format    *choice
}

func newGet() *cobra.Command {
	flags := getFlags{format: outputs("table", "wide", "name", "yaml", "json", jsonPathFormat)}
	command := &cobra.Command{
		Use:   "get {KIND[,KIND...] | all | TYPE} [[NAMESPACE/]NAME...]",
		Short: "Show the objects that a server has",
		Long: `Get asks a server of MCP over xDS, tributary or istiod, for the objects of a kind, of several, or of all.
Objects can also be given as KIND/[NAMESPACE/]NAME, the format of -o name. With -o yaml it prints documents for
kubectl apply. AGE is the time since creation if an object names one, else since the server first saw it, if its admin
server can be asked (--admin). It exits with 1 if a named object is missing.

With --store it reads the store of tributary apply, such as Consul's key-value store, instead of asking a server; -o
yaml then has the resourceVersion for apply.

With --at it shows the objects that the server served at a time, such as 1h (ago) or 2026-05-04T03:00:00Z, from the
history of its admin server.

It also asks any ADS server for Envoy's ` + strings.Join(envoyTypeNames(), ", ") + `: for endpoints it follows the
clusters, for routes the listeners. It waits until --timeout for resources that they refer to, and then names those
that are missing.

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
		RunE:              runInterruptible(flags.run),
	}
	flags.add(command, "default")
	flags.stored.add(command, " of the server, for the address in its listen; with --store, of the store")
	command.Flags().Lookup("store").Usage = "read a store instead of a server: consul-kv://host:port/prefix, " +
		"or the name of a source of the configuration"
	flags.addAdmin(command)
	command.Flags().StringVarP(&flags.labelled, "selector", "l", "", "only objects with such labels, as kubectl has it: "+
		"app=reviews,version in (v1,v2),!canary")
	command.Flags().StringVar(&flags.sortBy, "sort-by", "",
		"sort the objects of a kind by a field, such as .metadata.name")
	command.Flags().BoolVar(&flags.noHeaders, "no-headers", false, "leave out the titles of tables")
	command.Flags().Var(&flags.time, "at", "show the objects that were served at a time, or so long ago, such as 1h, "+
		"by the admin server (--admin)")
	command.Flags().BoolVarP(&flags.watched, "watch",
		"w", false, "print them, and then each change, as tributary watch does")
	for _, pair := range []string{"watch at", "watch store", "server at", "store at", "server store", "server config"} {
		command.MarkFlagsMutuallyExclusive(strings.Fields(pair)...)
	}
	flags.format.add(command)
	return command
}

func (f *getFlags) run(ctx context.Context, command *cobra.Command, args []string) error {
	if envoyType, ok := envoyType(args[0]); ok && f.stored.store == "" && f.time.IsZero() {
		return f.envoy(ctx, command, envoyType, args[1:])
	}
	selector, err := labels.Parse(f.labelled)
	if err != nil {
		return usage("--selector %s: want conditions such as app=reviews,version in (v1,v2),track!=canary,tier,!old",
			f.labelled)
	}
	requests, err := f.requests(args)
	if err != nil {
		return err
	}
	if f.watched {
		return f.watchRequest(ctx, command, requests, selector)
	}
	read, closeStore, err := f.reader(ctx, command, requests)
	if err != nil {
		return err
	}
	defer closeStore()
	var selections []selection
	var missing []error
	excluded, selected := 0, 0
	for _, request := range requests {
		objects, err := read(request.schema)
		if err != nil {
			return err
		}
		chosen, err := request.choose(&f.clientFlags, selector, objects)
		if err != nil {
			missing = append(missing, err)
		}
		if f.sortBy != "" {
			if err := sortByPath(chosen.objects, f.sortBy); err != nil {
				return usage("--sort-by: %w", err)
			}
		}
		if f.time.IsZero() && (f.format.value == "table" || f.format.value == "wide") {
			f.date(command, request.schema, chosen.objects)
		}
		selections = append(selections, chosen)
		excluded, selected = excluded+chosen.excluded, selected+len(chosen.objects)
	}
	p := printing{format: f.format.value, path: f.format.path, noHeaders: f.noHeaders, version: f.version}
	p.list = len(requests) != 1 || len(requests[0].names) != 1
	if selected > 0 || f.format.value == "json" && p.list {
		if err := p.print(command.OutOrStdout(), &f.clientFlags, selections); err != nil {
			return err
		}
	} else if len(missing) == 0 {
		f.reportNone(command, requests, excluded)
	}
	return errors.Join(missing...)
}

// envoy shows or watches Envoy's resources of a type.
func (f *getFlags) envoy(
	ctx context.Context, command *cobra.Command, envoyType client.EnvoyType, names []string,
) error {
	switch {
	case f.format.path != nil || f.sortBy != "":
		return usage("jsonpath and --sort-by are for kinds of Istio")
	case len(names) > 1 || f.labelled != "":
		return usage("of %s, want one NAME at most, and no labels, which they do not have", envoyType.Name)
	case f.watched && len(names) > 0:
		return usage("%s are watched all together: leave out NAME", envoyType.Name)
	case f.watched:
		return watchEnvoy(ctx, command, &f.clientFlags, f.format.value, envoyType)
	}
	return getEnvoy(ctx, command, &f.clientFlags, f.format.value, envoyType, strings.Join(names, ""))
}

func (f *getFlags) watchRequest(
	ctx context.Context, command *cobra.Command, requests []request, selector labels.Selector,
) error {
	if f.format.path != nil || f.sortBy != "" {
		return usage("--watch goes with neither jsonpath nor --sort-by")
	}
	if len(requests) != 1 {
		return usage("--watch is for one KIND at a time")
	}
	selects := func(r *resource.Resource) bool {
		chosen, _ := requests[0].choose(&f.clientFlags, selector, []*resource.Resource{r}) // other names are no error
		return len(chosen.objects) > 0
	}
	return watchObjects(ctx, command, &f.clientFlags, f.format.value, requests[0].schema, selects)
}

// objectReader reads the objects of a kind.
type objectReader func(*resource.Schema) ([]*resource.Resource, error)

// reader returns a reader of a store, a server, or the history of a server, and the function that closes it.
func (f *getFlags) reader(ctx context.Context, command *cobra.Command, requests []request) (
	read objectReader, closeStore func(), err error,
) {
	if !f.time.IsZero() {
		return f.history(ctx, command), func() {}, f.time.past("--at")
	}
	if f.stored.store != "" {
		store, err := f.stored.open(ctx)
		if err != nil {
			return nil, nil, err
		}
		for _, reject := range store.Rejects() {
			command.PrintErrf("warning: %v\n", reject.Err)
		}
		f.server, f.version = store.String(), store.Version
		read = func(schema *resource.Schema) ([]*resource.Resource, error) { return store.List(schema.Kind), nil }
		return read, func() { store.Close() }, nil
	}
	schemas := make([]*resource.Schema, len(requests))
	for i, request := range requests {
		schemas[i] = request.schema
	}
	answers, err := f.client(command).GetAll(ctx, schemas)
	if err != nil {
		return nil, nil, err
	}
	read = func(schema *resource.Schema) ([]*resource.Resource, error) {
		answer := answers[slices.Index(schemas, schema)]
		warn(command, answer.Rejects...)
		return answer.Resources, nil
	}
	return read, func() {}, nil
}

// history returns a reader of the objects at an earlier time.
func (f *getFlags) history(ctx context.Context, command *cobra.Command) objectReader {
	server := f.admin.secured(&f.secure, f.timeout)
	f.server = f.admin.address + " at " + f.time.text
	return func(schema *resource.Schema) ([]*resource.Resource, error) {
		resources, unknown, err := servedAt(ctx, server, &f.time, schema.Kind)
		for _, text := range unknown {
			command.PrintErrf("warning: %s\n", text)
		}
		return resources, err
	}
}

// request names objects of a kind.
type request struct {
	schema *resource.Schema
	names  []resource.Key // without a kind; none for each object that the flags select
}

// selection has the requested objects of a kind.
type selection struct {
	schema   *resource.Schema
	objects  []*resource.Resource
	excluded int // objects that the flags exclude by their namespace
}

const allKinds = "all"

// requests decodes KIND[,KIND…] [[NAMESPACE/]NAME…] or KIND/[NAMESPACE/]NAME….
func (f *clientFlags) requests(args []string) (requests []request, err error) {
	addNames := func(schema *resource.Schema, names ...resource.Key) {
		i := slices.IndexFunc(requests, func(r request) bool { return r.schema == schema })
		if i < 0 {
			requests = append(requests, request{schema, names})
		} else {
			requests[i].names = append(requests[i].names, names...)
		}
	}
	if kind, _, ok := strings.Cut(args[0], "/"); ok {
		if _, exists := resource.SchemaByName(kind); exists {
			for _, arg := range args {
				kind, object, ok := strings.Cut(arg, "/")
				if !ok {
					return nil, usage("want KIND/[NAMESPACE/]NAME, as before it, got %q", arg)
				}
				schema, schemaErr := schemaNamed(kind)
				key, err := f.named(object)
				if err = cmp.Or(schemaErr, err); err != nil {
					return nil, err
				}
				addNames(schema, key)
			}
			return requests, nil
		}
	}
	var names []resource.Key
	for _, object := range args[1:] {
		key, err := f.named(object)
		if err != nil {
			return nil, err
		}
		names = append(names, key)
	}
	if args[0] == allKinds && len(names) > 0 {
		return nil, usage("a NAME is of one kind, and not of %s", allKinds)
	}
	for kind := range strings.SplitSeq(args[0], ",") {
		if envoyType, ok := envoyType(kind); ok {
			return nil, usage("%s are of Envoy: ask for them alone", envoyType.Name)
		}
		if kind == "" {
			return nil, usage("want KIND[,KIND...], got %q", args[0])
		}
		if kind == allKinds {
			requests = nil
			for _, schema := range resource.Schemas() {
				addNames(schema)
			}
			return requests, nil
		}
		schema, err := schemaNamed(kind)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(requests, func(r request) bool { return r.schema == schema }) {
			addNames(schema, names...)
		}
	}
	return requests, nil
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

// choose returns the requested objects of the kind. The error names the missing ones.
func (r *request) choose(flags *clientFlags, selector labels.Selector, objects []*resource.Resource) (
	chosen selection, err error,
) {
	chosen.schema = r.schema
	if len(r.names) == 0 {
		for _, object := range objects {
			switch {
			case !selector.Matches(labels.Set(object.Labels())):
			case flags.selects(object):
				chosen.objects = append(chosen.objects, object)
			default:
				chosen.excluded++
			}
		}
		return chosen, nil
	}
	var missing []error
	for _, name := range r.names {
		var elsewhere []string
		before := len(chosen.objects)
		for _, object := range objects {
			switch key := object.Key(); {
			case key.Name != name.Name:
			case key.Namespace == "" || name.Namespace == "" || key.Namespace == name.Namespace:
				chosen.objects = append(chosen.objects, object)
			default:
				elsewhere = append(elsewhere, key.Namespace)
			}
		}
		if len(chosen.objects) > before {
			continue
		}
		hint := ""
		if len(elsewhere) > 0 {
			hint = "; there is one in namespace " + strings.Join(elsewhere, ", ")
		}
		missing = append(missing, fmt.Errorf("%s has no %s %s in namespace %s%s", flags.server, r.schema.Kind, name.Name,
			name.Namespace, hint))
	}
	return chosen, errors.Join(missing...)
}

// reportNone prints that no object was selected.
func (f *getFlags) reportNone(command *cobra.Command, requests []request, excluded int) {
	subject, place, hint := "objects", "in namespace "+f.namespace, ""
	if len(requests) == 1 {
		subject = requests[0].schema.Plural
	}
	if f.labelled != "" {
		subject += " with labels " + f.labelled
	}
	if f.everywhere || f.namespace == "" {
		place = "at all"
	} else if excluded > 0 {
		verb := "are"
		if excluded == 1 {
			verb = "is"
		}
		hint = fmt.Sprintf("; there %s %d in other namespaces (-A)", verb, excluded)
	}
	command.PrintErrf("no %s %s%s\n", subject, place, hint)
}
