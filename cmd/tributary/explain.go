package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/output"
	"tributary/resource"
	"tributary/server/admin"
	"tributary/sources/derive"
)

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
			return "", nil, usage("want a kind and a name, or a host; got %s alone%s", host, exampleName(schema))
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

func exampleName(schema *resource.Schema) string {
	if schema == nil {
		return ""
	}
	return fmt.Sprintf("; for example: tributary explain %s shop/reviews", strings.ToLower(string(schema.Kind)))
}
