package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

//go:generate go run . docs reference ../../docs/commands.md

// newDocs is for those who package the program, and for the reference of its commands.
func newDocs() *cobra.Command {
	cmd := &cobra.Command{Use: "docs", Short: "Write what documents the commands", Hidden: true, Args: cobra.NoArgs}
	cmd.AddCommand(
		&cobra.Command{
			Use: "man DIR", Short: "Write manual pages into a directory", Args: cobra.ExactArgs(1),
			RunE: does(func(cmd *cobra.Command, args []string) error { return writeManPages(documented(cmd), args[0]) }),
		},
		&cobra.Command{
			Use: "reference FILE", Short: "Write the reference of all commands", Args: cobra.ExactArgs(1),
			RunE: does(func(cmd *cobra.Command, args []string) error {
				text, err := reference(documented(cmd))
				if err != nil {
					return err
				}
				return os.WriteFile(args[0], text, 0o644) //nolint:gosec // it is to be read by all
			}),
		},
	)
	return cmd
}

// documented returns the root of cmd as it is documented: without what tells when or where it was made.
func documented(cmd *cobra.Command) *cobra.Command {
	root := cmd.Root()
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	return root
}

func writeManPages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // they are to be read by all
		return err
	}
	return each(root, func(cmd *cobra.Command) error {
		var page bytes.Buffer
		header := doc.GenManHeader{Section: "1", Source: "tributary", Manual: "tributary"} // of the date in $SOURCE_DATE_EPOCH
		if err := doc.GenMan(cmd, &header, &page); err != nil {
			return err
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		return os.WriteFile(filepath.Join(dir, name), page.Bytes(), 0o644) //nolint:gosec // it is to be read by all
	})
}

// reference is one page of all commands. The ways of a shell to complete them are left to help.
func reference(root *cobra.Command) ([]byte, error) {
	var page bytes.Buffer
	page.WriteString("# Commands\n\nMade by `make generate` from what the program says with `--help`.\n")
	err := each(root, func(cmd *cobra.Command) error {
		if cmd.Parent() == root && cmd.Name() == "completion" || cmd.HasParent() && cmd.Parent().Name() == "completion" {
			return nil
		}
		fmt.Fprintf(&page, "\n## %s\n\n%s\n", cmd.CommandPath(), cmd.Short)
		if cmd.Long != "" {
			fmt.Fprintf(&page, "\n%s\n", cmd.Long)
		}
		if cmd.Runnable() {
			fmt.Fprintf(&page, "\n```\n%s\n```\n", cmd.UseLine())
		}
		if cmd.Example != "" {
			fmt.Fprintf(&page, "\nExamples:\n\n```console\n%s```\n", prompted(cmd.Example))
		}
		if flags := cmd.NonInheritedFlags(); flags.HasAvailableFlags() {
			fmt.Fprintf(&page, "\n```\n%s```\n", flags.FlagUsages())
		}
		return nil
	})
	return page.Bytes(), err
}

// prompted are the commands of an example as they are typed: behind a prompt, but for the lines by which one goes on.
func prompted(example string) string {
	var b strings.Builder
	goesOn := false
	for line := range strings.SplitSeq(example, "\n") {
		line = strings.TrimPrefix(line, "  ")
		if !goesOn {
			b.WriteString("$ ")
		}
		b.WriteString(line + "\n")
		goesOn = strings.HasSuffix(line, "\\") || strings.HasSuffix(line, "|")
	}
	return b.String()
}

// each calls f with cmd and all commands under it that are not hidden.
func each(cmd *cobra.Command, f func(*cobra.Command) error) error {
	cmd.InitDefaultHelpFlag()
	if err := f(cmd); err != nil {
		return err
	}
	for _, c := range cmd.Commands() {
		if c.Hidden || c.IsAdditionalHelpTopicCommand() || c.Name() == "help" {
			continue
		}
		if err := each(c, f); err != nil {
			return err
		}
	}
	return nil
}
