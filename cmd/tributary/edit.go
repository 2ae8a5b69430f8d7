package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/cmd/internal/output"
	"tributary/resource"
	"tributary/sources/consulkv"
)

func newEdit() *cobra.Command {
	var flags storeFlags
	var namespace string
	cmd := &cobra.Command{
		Use:   "edit KIND NAME",
		Short: "Change an object of a store in an editor",
		Long: `Edit opens an object in $VISUAL, $EDITOR or vi, and writes what was saved to the store, after checking it as validate
does. If it is not right, the editor is opened again. If somebody else changed the object meanwhile, nothing is written, and
the edit is kept in a file.`,
		Example:           `  EDITOR=nano tributary edit vs reviews -n shop --store consul-kv://127.0.0.1:8500/mesh`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: completeKind,
		RunE: does(func(cmd *cobra.Command, args []string) error {
			schema, err := schemaNamed(args[0])
			if err != nil {
				return err
			}
			store, err := flags.open(cmd.Context()) // signals are the editor's
			if err != nil {
				return err
			}
			defer store.Close()
			e := &edit{cmd: cmd, store: store, key: objectKey(schema, namespace, args[1])}
			return e.run(cmd.Context())
		}),
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of the object")
	flags.add(cmd, ", which has the store")
	return cmd
}

// edit is the change of one object in an editor.
type edit struct {
	cmd     *cobra.Command
	store   *consulkv.Store
	key     resource.Key
	old     *resource.Resource
	version string
	file    string // what the editor is given
}

const editHelp = `# Please edit the object below. Lines beginning with a '#' are ignored, and an empty file ends the edit.
# If the object is not right, this file is opened again.
#
`

func (e *edit) run(ctx context.Context) error {
	e.old, e.version = e.store.Get(e.key), e.store.Version(e.key)
	if e.old == nil {
		return fmt.Errorf("%s not found%s of %s", title(e.key), in(e.key), e.store)
	}
	text, err := resource.MarshalYAML(e.old)
	if err != nil {
		return err
	}
	text = check.WithVersion(text, e.version)
	original, refused := text, []byte(nil) // what was refused last
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
			return fmt.Errorf("edit cancelled, no valid changes were saved: %s\nWhat was saved is in %s",
				strings.TrimSpace(strings.ReplaceAll(problems, "# ", "")), e.file)
		}
		r, version, found := e.check(saved)
		if found == "" {
			return e.write(r, version)
		}
		text, refused, problems = saved, saved, found
	}
}

// open has the editor change text, and returns what was saved, without comments at the beginning.
func (e *edit) open(ctx context.Context, help string, text []byte) ([]byte, error) {
	if e.file == "" {
		f, err := os.CreateTemp("", "tributary-edit-*.yaml")
		if err != nil {
			return nil, err
		}
		e.file = f.Name()
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(e.file, append([]byte(help), text...), 0o600); err != nil {
		return nil, err
	}
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	//nolint:gosec // the person's own editor, which may have arguments
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", e.file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = e.cmd.InOrStdin(), output.Unescaped(e.cmd.OutOrStdout()), output.Unescaped(e.cmd.ErrOrStderr())
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("editor %q: %w; nothing was written, and the file is %s", editor, err, e.file)
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

// check returns the object that was saved, or what is wrong with it, as comments. Lines count from the object on.
func (e *edit) check(saved []byte) (r *resource.Resource, version, problems string) {
	var l check.Linter
	objects, err := check.ParseManifest(&l, "line", saved, e.key.Namespace)
	var found []string
	for _, f := range l.Findings {
		if f.Severity == check.Error {
			found = append(found, f.String())
		}
	}
	switch {
	case err != nil:
		found = append(found, err.Error())
	case len(found) > 0:
	case len(objects) != 1:
		found = append(found, fmt.Sprintf("want one object, got %d", len(objects)))
	case objects[0].Key() != e.key:
		found = append(found, fmt.Sprintf("the object was %s; kind, namespace and name cannot be edited", e.key))
	default:
		return objects[0].Resource, cmp.Or(objects[0].Version, e.version), ""
	}
	for _, f := range found {
		problems += "# " + strings.ReplaceAll(f, "\n", "\n# ") + "\n"
	}
	return nil, "", problems + "#\n"
}

// write stores r. If that fails, the edit stays in its file.
func (e *edit) write(r *resource.Resource, version string) error {
	if resource.Equal(e.old, r) {
		return e.end("Edit cancelled, no changes made.")
	}
	if _, err := e.store.Update(r, version); err != nil {
		_, err = lostRace(e.key, err, "edit it again")
		return fmt.Errorf("%w\nthe edit is kept in %s", err, e.file)
	}
	return e.end(title(e.key) + " edited")
}

// end says how it ended, and removes the file, which nobody needs any more.
func (e *edit) end(how string) error {
	if _, err := fmt.Fprintln(e.cmd.OutOrStdout(), how); err != nil {
		return err
	}
	return os.Remove(e.file)
}
