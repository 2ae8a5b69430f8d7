package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"tributary/resource"
)

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
