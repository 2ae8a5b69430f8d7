package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tributary/memstore"
	"tributary/resource"
)

func newDelete() *cobra.Command {
	var flags storeFlags
	var namespace string
	var dryRun bool
	cmd := &cobra.Command{
		Use:               "delete KIND NAME...",
		Short:             "Delete objects from a store, such as Consul's key-value store",
		Example:           `  tributary delete vs reviews -n shop --store consul-kv://127.0.0.1:8500/mesh`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: completeKind,
		RunE: does(func(cmd *cobra.Command, args []string) error {
			schema, err := schemaNamed(args[0])
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			store, err := flags.open(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			var failed error
			for _, name := range args[1:] {
				key := objectKey(schema, namespace, name)
				suffix := ""
				switch {
				case !dryRun:
					err = store.Delete(key, "")
				case store.Get(key) == nil:
					err = memstore.ErrNotFound
				default:
					suffix = " (dry run)"
				}
				switch {
				case errors.Is(err, memstore.ErrNotFound):
					failed = errors.Join(failed, fmt.Errorf("%s not found%s of %s", title(key), in(key), store))
				case err != nil:
					return errors.Join(failed, err)
				default:
					if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s deleted%s\n", title(key), suffix); err != nil {
						return err
					}
				}
			}
			return failed
		}),
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the objects")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done, and do nothing")
	flags.add(cmd, ", which has the store")
	return cmd
}

// objectKey is the key of the object that a person means.
func objectKey(schema *resource.Schema, namespace, name string) resource.Key {
	if schema.Bare {
		namespace = ""
	}
	return resource.Key{Kind: schema.Kind, Namespace: namespace, Name: name}
}
