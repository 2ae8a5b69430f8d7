package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/consulkv"
)

func newApply() *cobra.Command {
	var flags storeFlags
	var files []string
	var namespace string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "apply -f {FILE | DIR | -}",
		Short: "Write objects to a store, such as Consul's key-value store",
		Long: `Apply checks objects as validate does and, if all are right, creates or changes them in the store. What somebody else
changes at the same time is not overwritten: then apply says so, and fails. An object with metadata.resourceVersion is only
written if the store still has that version.`,
		Example: `  tributary apply -f rules/ --store consul-kv://127.0.0.1:8500/mesh
  tributary get vs reviews -n shop -o yaml --store consul-kv://127.0.0.1:8500/mesh | sed 's/subset: v1/subset: v2/' |
    tributary apply -f - --store consul-kv://127.0.0.1:8500/mesh`,
		Args: cobra.NoArgs,
		RunE: does(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			var l check.Linter
			var objects []check.ManifestObject
			for _, f := range files {
				more, err := check.ReadManifest(ctx, &l, f, namespace, cmd.InOrStdin())
				if err != nil {
					return fmt.Errorf("%s: %w", f, err)
				}
				objects = append(objects, more...)
			}
			if err := printProblems(cmd, &l); err != nil {
				return err
			}
			if len(objects) == 0 {
				return fmt.Errorf("no objects in %v", files)
			}
			store, err := flags.open(ctx)
			if err != nil {
				return err
			}
			defer store.Close()
			return apply(cmd, store, objects, dryRun)
		}),
	}
	f := cmd.Flags()
	f.StringArrayVarP(&files, "filename", "f", nil, "file or directory with the objects, or - for standard input; may be repeated")
	f.StringVarP(&namespace, "namespace", "n", "default", "namespace of objects that name none")
	f.BoolVar(&dryRun, "dry-run", false, "say what would be done, and do nothing")
	_ = cmd.MarkFlagRequired("filename") // the flag exists, so this cannot fail
	flags.add(cmd, ", which has the store")
	return cmd
}

// apply writes objects one after the other. One that somebody else has changed does not keep the others from being written.
func apply(cmd *cobra.Command, store *consulkv.Store, objects []check.ManifestObject, dryRun bool) error {
	suffix, refused := "", 0
	if dryRun {
		suffix = " (dry run)"
	}
	for i, o := range objects {
		done, err := applyOne(store, o, dryRun)
		if ok, lost := lostRace(o.Key(), err, "look at it and apply again"); ok {
			cmd.PrintErrf("error: %v\n", lost)
			refused++
			continue
		}
		if err != nil {
			return fmt.Errorf("%w; %d of %d objects were looked after before", err, i, len(objects))
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s%s\n", title(o.Key()), done, suffix); err != nil {
			return err
		}
	}
	if refused > 0 {
		return fmt.Errorf("%d of %d objects were not written", refused, len(objects))
	}
	return nil
}

// applyOne creates or changes an object, and says what it did.
func applyOne(store *consulkv.Store, o check.ManifestObject, dryRun bool) (done string, err error) {
	old, version := store.Get(o.Key()), store.Version(o.Key())
	switch {
	case o.Version != "" && old == nil:
		return "", fmt.Errorf("version %s was deleted: %w", o.Version, memstore.ErrNotFound)
	case o.Version != "" && o.Version != version:
		return "", fmt.Errorf("%w: it is %s, not %s", memstore.ErrConflict, version, o.Version)
	case old == nil:
		if !dryRun {
			_, err = store.Create(o.Resource)
		}
		return "created", err
	case resource.Equal(old, o.WithCreated(old.Created())):
		return "unchanged", nil
	default:
		if !dryRun {
			_, err = store.Update(o.Resource, version)
		}
		return "configured", err
	}
}
