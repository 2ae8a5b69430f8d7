package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"tributary/resource"
)

// wanted is what get is asked for: objects of a kind.
type wanted struct {
	schema *resource.Schema
	names  []resource.Key // without a kind; none for all that the flags ask for
}

// found is what there is of it.
type found struct {
	schema  *resource.Schema
	objects []*resource.Resource
	others  int // that the flags leave out by their namespace
}

// allKinds is what is said for all of them.
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

// eachWanted reads KIND/[NAMESPACE/]NAME….
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
	namespace, name, ok := strings.Cut(object, "/")
	switch {
	case !ok && f.everywhere:
		return resource.Key{}, usage("a NAME is of one namespace: give it with -n, not -A")
	case !ok:
		return resource.Key{Namespace: f.namespace, Name: object}, nil
	case namespace == "" || name == "":
		return resource.Key{}, usage("want NAMESPACE/NAME, got %q", object)
	}
	return resource.Key{Namespace: namespace, Name: name}, nil
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

// sayNothing says that there is nothing of a kind.
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
