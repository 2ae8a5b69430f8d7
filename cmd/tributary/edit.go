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

const editHelp = "" +
	"# Please edit the object below. Lines beginning with a '#' are ignored, and an empty file ends the edit.\n" +
	"# If the object is not right, this file is opened again.\n" +
	"#\n"

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
