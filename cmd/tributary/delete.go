package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"tributary/memstore"
)

func newDelete() *cobra.Command {
	var flags storeFlags
	var namespace string
	var dryRun bool
	command := &cobra.Command{
		Use:               "delete KIND NAME...",
		Short:             "Delete objects from a store, such as Consul's key-value store",
		Example:           `  tributary delete vs reviews -n shop --store consul-kv://127.0.0.1:8500/mesh`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: completeKind,
		RunE: runInterruptible(func(ctx context.Context, command *cobra.Command, args []string) error {
			schema, err := schemaNamed(args[0])
			if err != nil {
				return err
			}
			store, err := flags.open(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			var failed error
			for _, name := range args[1:] {
				key := keyOf(schema, namespace, name)
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
					failed = errors.Join(failed, fmt.Errorf("%s not found%s of %s", title(key), inNamespace(key), store))
				case err != nil:
					return errors.Join(failed, err)
				default:
					if _, err := fmt.Fprintf(command.OutOrStdout(), "%s deleted%s\n", title(key), suffix); err != nil {
						return err
					}
				}
			}
			return failed
		}),
	}
	command.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the objects")
	command.Flags().BoolVar(&dryRun, "dry-run", false, "print the changes without making them")
	flags.add(command, ", which has the store")
	return command
}
