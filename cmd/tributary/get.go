package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"tributary/cmd/internal/client"
	"tributary/resource"
)

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
	command.Flags().Var(&flags.time, "at", "show the objects that were served at a time, or at an age such as 1h, "+
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
	p := printer{format: f.format.value, path: f.format.path, noHeaders: f.noHeaders, version: f.version}
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
		return watchEnvoyResources(ctx, command, &f.clientFlags, f.format.value, envoyType)
	}
	return getEnvoyResources(ctx, command, &f.clientFlags, f.format.value, envoyType, strings.Join(names, ""))
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
