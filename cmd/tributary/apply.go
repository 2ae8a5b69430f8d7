package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/internal/words"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/references"
	"tributary/sources/consulkv"
)

func newApply() *cobra.Command {
	var flags storeFlags
	var files []string
	var namespace string
	var dryRun, force bool
	var running adminFlags
	command := &cobra.Command{
		Use:   "apply -f {FILE | DIR | -}",
		Short: "Write objects to a store, such as Consul's key-value store",
		Long: `Apply checks objects as validate does, together with the objects that the server serves now, and, if all are
right, creates or changes them in the store. A reference that leads nowhere is an error: --force writes it
nevertheless. Without a running server it names the references that it did not check. Concurrent changes of other
users are not overwritten: then apply reports them, and fails. An object with metadata.resourceVersion is only written
if the store still has that version.`,
		Example: `  tributary apply -f rules/ --store consul-kv://127.0.0.1:8500/mesh
  tributary get vs reviews -n shop -o yaml --store consul-kv://127.0.0.1:8500/mesh | sed 's/subset: v1/subset: v2/' |
    tributary apply -f - --store consul-kv://127.0.0.1:8500/mesh`,
		Args: cobra.NoArgs,
		RunE: runInterruptible(func(ctx context.Context, command *cobra.Command, _ []string) error {
			var linter check.Linter
			var objects []check.ManifestObject
			for _, f := range files {
				manifest, err := check.ReadManifest(ctx, &linter, f, namespace, command.InOrStdin())
				if err != nil {
					return err
				}
				objects = append(objects, manifest...)
			}
			if err := checkTogether(ctx, command, &linter, &running); err != nil {
				return err
			}
			if err := printProblems(command, &linter, force); err != nil {
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
			return apply(command, store, objects, dryRun)
		}),
	}
	flagSet := command.Flags()
	flagSet.StringArrayVarP(&files, "filename", "f", nil,
		"file or directory with the objects, or - for standard input; may be repeated")
	flagSet.StringVarP(&namespace, "namespace", "n", "default", "namespace of objects that name none")
	flagSet.BoolVar(&dryRun, "dry-run", false, "print the changes without making them")
	flagSet.BoolVar(&force, "force", false, "write objects with references that lead nowhere")
	running.addReference(command)
	_ = command.MarkFlagRequired("filename") // the flag exists, so this cannot fail
	flags.add(command, ", which has the store")
	return command
}

// apply writes objects one after the other. A conflict of one does not keep the others from being written.
func apply(command *cobra.Command, store *consulkv.Store, objects []check.ManifestObject, dryRun bool) error {
	suffix, refused := "", 0
	if dryRun {
		suffix = " (dry run)"
	}
	for i, object := range objects {
		outcome, err := applyOne(store, object, dryRun)
		if ok, lost := lostRace(object.Key(), err, "look at it and apply again"); ok {
			command.PrintErrf("error: %v\n", lost)
			refused++
			continue
		}
		if err != nil {
			return fmt.Errorf("%w; %d of %d objects were done before", err, i, len(objects))
		}
		if _, err := fmt.Fprintf(command.OutOrStdout(), "%s %s%s\n", title(object.Key()), outcome, suffix); err != nil {
			return err
		}
	}
	if refused > 0 {
		return fmt.Errorf("%d of %d objects were not written", refused, len(objects))
	}
	return nil
}

func applyOne(store *consulkv.Store, manifestObject check.ManifestObject, dryRun bool) (outcome string, err error) {
	stored, version := store.Get(manifestObject.Key()), store.Version(manifestObject.Key())
	switch {
	case manifestObject.Version != "" && stored == nil:
		return "", fmt.Errorf("version %s was deleted: %w", manifestObject.Version, memstore.ErrNotFound)
	case manifestObject.Version != "" && manifestObject.Version != version:
		return "", fmt.Errorf("%w: it is %s, not %s", memstore.ErrConflict, version, manifestObject.Version)
	case stored == nil:
		if !dryRun {
			_, err = store.Create(manifestObject.Resource)
		}
		return "created", err
	case resource.Equal(stored, manifestObject.WithCreated(stored.Created())):
		return "unchanged", nil
	default:
		if !dryRun {
			_, err = store.Update(manifestObject.Resource, version)
		}
		return "configured", err
	}
}

// printProblems prints problems, and fails if any of them is an error. With force, references that lead nowhere are no
// errors.
func printProblems(cmd *cobra.Command, l *check.Linter, force bool) error {
	errs := 0
	for _, f := range l.Findings {
		cmd.PrintErrln(f)
		if f.Severity == check.Error && (!force || f.Rule != check.Rule(references.NotFound)) {
			errs++
		}
	}
	if errs > 0 {
		return &failure{exitFindings, fmt.Errorf("%s; no object was written", words.Count(errs, "error", "errors"))}
	}
	return nil
}
