package output

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// ManPages writes a manual page of each command into a directory.
func ManPages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // they are to be read by all
		return err
	}
	return eachCommand(root, func(cmd *cobra.Command) error {
		var page bytes.Buffer
		header := doc.GenManHeader{Section: "1", Source: "tributary", Manual: "tributary"} // of the date in $SOURCE_DATE_EPOCH
		if err := doc.GenMan(cmd, &header, &page); err != nil {
			return err
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		return os.WriteFile(filepath.Join(dir, name), page.Bytes(), 0o644) //nolint:gosec // it is to be read by all
	})
}

// Reference is one page of all commands. The ways of a shell to complete them are left to help.
func Reference(root *cobra.Command) ([]byte, error) {
	var page bytes.Buffer
	page.WriteString("# Commands\n\nMade by `make generate` from what the program says with `--help`.\n")
	err := eachCommand(root, func(cmd *cobra.Command) error {
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

// eachCommand calls f with cmd and all commands under it that are not hidden.
func eachCommand(cmd *cobra.Command, f func(*cobra.Command) error) error {
	cmd.InitDefaultHelpFlag()
	if err := f(cmd); err != nil {
		return err
	}
	for _, c := range cmd.Commands() {
		if c.Hidden || c.IsAdditionalHelpTopicCommand() || c.Name() == "help" {
			continue
		}
		if err := eachCommand(c, f); err != nil {
			return err
		}
	}
	return nil
}
