package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/cmd/internal/output"
	"tributary/config"
	"tributary/internal/words"
	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/references"
	"tributary/sources/consulkv"
)

type storeFlags struct {
	store  string
	config string
}

func (f *storeFlags) add(command *cobra.Command, file string) {
	command.Flags().StringVar(&f.store, "store", "",
		"store of the objects: consul-kv://host:port/prefix, or the name of a source of the "+
			"configuration (default: its only consul-kv source)")
	addConfig(command, &f.config, file)
}

func (f *storeFlags) open(ctx context.Context) (*consulkv.Store, error) {
	address, settings, err := f.find()
	if err != nil {
		return nil, err
	}
	store, err := consulkv.Open(address, settings)
	if err != nil {
		return nil, usage("--store: %w", err)
	}
	if err := store.Refresh(ctx); err != nil {
		store.Close()
		host, _, _ := strings.Cut(strings.TrimPrefix(address, consulkv.Scheme+"://"), "/")
		if means := words.ConnectionError(host, err.Error()); means != "" {
			return nil, fmt.Errorf("%s: %s", consulkv.Scheme+"://"+host[strings.LastIndexByte(host, '@')+1:], means)
		}
		return nil, err
	}
	return store, nil
}

func (f *storeFlags) find() (address string, settings consulkv.Settings, err error) {
	if strings.Contains(f.store, "://") {
		if !isConsulKV(f.store) {
			return "", settings, usage("--store: want %s://host:port/prefix, got %q", consulkv.Scheme, f.store)
		}
		return f.store, settings, nil
	}
	file := f.config
	if file == "" {
		if file, err = config.Find(config.DefaultPaths()); err != nil && f.store == "" {
			return "", settings, usage("which store? give --store %s://host:port/prefix, "+
				"or -c with a configuration that has one", consulkv.Scheme)
		} else if err != nil {
			return "", settings, usage("--store %s: %w; name that which has it with -c, or give %s://host:port/prefix",
				f.store, err, consulkv.Scheme)
		}
	}
	cfg, err := config.Load(file)
	if err != nil {
		return "", settings, &failure{exitConfig, err}
	}
	var names []string
	for _, source := range cfg.ConfigSources {
		if kv, ok := source.Settings.(*config.ConsulKV); ok && (f.store == "" || source.Name == f.store) {
			address, settings, names = source.Address, kv.Source(), append(names, source.Name)
		}
	}
	switch {
	case len(names) == 1:
		return address, settings, nil
	case f.store != "":
		return "", settings, usage("--store: the configuration has no %s source called %q", consulkv.Scheme, f.store)
	case len(names) == 0:
		return "", settings, usage("the configuration has no %s source; give --store %s://host:port/prefix",
			consulkv.Scheme, consulkv.Scheme)
	default:
		return "", settings, usage("the configuration has several stores; say which with --store: %s", strings.Join(names,
			", "))
	}
}

func isConsulKV(address string) bool {
	scheme, _, _ := strings.Cut(address, "://")
	return scheme == consulkv.Scheme || scheme == consulkv.SecureScheme
}

// title names an object in messages, as kubectl does: "virtualservice/reviews".
func title(key resource.Key) string { return strings.ToLower(string(key.Kind)) + "/" + key.Name }

func inNamespace(key resource.Key) string {
	if key.Namespace == "" {
		return ""
	}
	return " in namespace " + key.Namespace
}

// lostRace reports whether an error tells of a change from an outdated version, and returns the advice for the user.
func lostRace(key resource.Key, err error, todo string) (ok bool, lost error) {
	for _, reason := range []error{memstore.ErrConflict, memstore.ErrExists, memstore.ErrNotFound} {
		if errors.Is(err, reason) {
			return true, fmt.Errorf("%s%s was changed by another user: %w; it was not written: %s",
				title(key), inNamespace(key), err, todo)
		}
	}
	return false, err
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
					return fmt.Errorf("%s: %w", f, err)
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

func newEdit() *cobra.Command {
	var flags storeFlags
	var namespace string
	command := &cobra.Command{
		Use:   "edit KIND NAME",
		Short: "Change an object of a store in an editor",
		Long: `Edit opens an object in $VISUAL, $EDITOR or vi, and writes the saved object to the store, after checking it
as validate does. If it is invalid, the editor is opened again. If another user changed the object meanwhile, edit
writes no object, and keeps the edit in a file.`,
		Example:           `  EDITOR=nano tributary edit vs reviews -n shop --store consul-kv://127.0.0.1:8500/mesh`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeKind,
		RunE: runCommand(func(command *cobra.Command, args []string) error {
			schema, err := schemaNamed(args[0])
			if err != nil {
				return err
			}
			store, err := flags.open(command.Context()) // signals are the editor's
			if err != nil {
				return err
			}
			defer store.Close()
			e := &edit{cmd: command, store: store, key: keyOf(schema, namespace, args[1])}
			return e.run(command.Context())
		}),
	}
	command.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the object")
	flags.add(command, ", which has the store")
	return command
}

type edit struct {
	cmd     *cobra.Command
	store   *consulkv.Store
	key     resource.Key
	old     *resource.Resource
	version string
	file    string // content of the editor's file
}

const editHelp = `# Please edit the object below. Lines beginning with a '#' are ignored, and an empty file ends the edit.
# If the object is not right, this file is opened again.
#
`

func (e *edit) run(ctx context.Context) error {
	e.old, e.version = e.store.Get(e.key), e.store.Version(e.key)
	if e.old == nil {
		return fmt.Errorf("%s not found%s of %s", title(e.key), inNamespace(e.key), e.store)
	}
	text, err := resource.MarshalYAML(e.old)
	if err != nil {
		return err
	}
	text = check.WithVersion(text, e.version)
	original, refused := text, []byte(nil) // the last refused content
	for problems := ""; ; {
		saved, err := e.open(ctx, editHelp+problems, text)
		if err != nil {
			return err
		}
		switch {
		case len(saved) == 0:
			return e.end("Edit cancelled, saved file was empty.")
		case bytes.Equal(saved, original):
			return e.end("Edit cancelled, no changes made.")
		case bytes.Equal(saved, refused):
			return fmt.Errorf("edit cancelled, no valid changes were saved: %s\nthe saved text is in %s",
				strings.TrimRight(strings.ReplaceAll(problems, "# ", ""), "#\n"), e.file)
		}
		r, version, invalid := e.check(saved)
		if invalid == "" {
			return e.write(r, version)
		}
		text, refused, problems = saved, saved, invalid
	}
}

func (e *edit) open(ctx context.Context, help string, text []byte) ([]byte, error) {
	if e.file == "" {
		file, err := os.CreateTemp("", "tributary-edit-*.yaml")
		if err != nil {
			return nil, err
		}
		e.file = file.Name()
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(e.file, append([]byte(help), text...), 0o600); err != nil {
		return nil, err
	}
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	//nolint:gosec // the person's own editor, which may have arguments
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", e.file)
	cmd.Stdin, cmd.Stdout = e.cmd.InOrStdin(), output.Unescaped(e.cmd.OutOrStdout())
	cmd.Stderr = output.Unescaped(e.cmd.ErrOrStderr())
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("editor %q: %w; no object was written, and the file is %s", editor, err, e.file)
	}
	saved, err := os.ReadFile(e.file)
	if err != nil {
		return nil, err
	}
	for bytes.HasPrefix(saved, []byte("#")) {
		_, saved, _ = bytes.Cut(saved, []byte("\n"))
	}
	if len(bytes.TrimSpace(saved)) == 0 {
		return nil, nil
	}
	return saved, nil
}

// check returns the saved object, or its errors as comments. Lines count from the object on.
func (e *edit) check(saved []byte) (r *resource.Resource, version, problems string) {
	var l check.Linter
	objects, err := check.ParseManifest(&l, "line", saved, e.key.Namespace)
	var messages []string
	for _, f := range l.Findings {
		if f.Severity == check.Error {
			messages = append(messages, strings.Replace(f.String(), "line:", "line ", 1))
		}
	}
	switch {
	case err != nil:
		messages = append(messages, err.Error())
	case len(messages) > 0:
	case len(objects) != 1:
		messages = append(messages, fmt.Sprintf("want one object, got %d", len(objects)))
	case objects[0].Key() != e.key:
		messages = append(messages, fmt.Sprintf("the object was %s; kind, namespace and name cannot be edited", e.key))
	default:
		return objects[0].Resource, cmp.Or(objects[0].Version, e.version), ""
	}
	for _, f := range messages {
		problems += "# " + strings.ReplaceAll(f, "\n", "\n# ") + "\n"
	}
	return nil, "", problems + "#\n"
}

// write stores the edited object. If that fails, the edit stays in its file.
func (e *edit) write(object *resource.Resource, version string) error {
	if resource.Equal(e.old, object) {
		return e.end("Edit cancelled, no changes made.")
	}
	if _, err := e.store.Update(object, version); err != nil {
		_, err = lostRace(e.key, err, "edit it again")
		return fmt.Errorf("%w\nthe edit is kept in %s", err, e.file)
	}
	return e.end(title(e.key) + " edited")
}

// end prints the result, and removes the file.
func (e *edit) end(how string) error {
	if _, err := fmt.Fprintln(e.cmd.OutOrStdout(), how); err != nil {
		return err
	}
	return os.Remove(e.file)
}
