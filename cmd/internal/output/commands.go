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
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // public
		return err
	}
	return eachCommand(root, func(cmd *cobra.Command) error {
		var page bytes.Buffer
		// The date is $SOURCE_DATE_EPOCH.
		header := doc.GenManHeader{Section: "1", Source: "tributary", Manual: "tributary"}
		if err := doc.GenMan(cmd, &header, &page); err != nil {
			return err
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		return os.WriteFile(filepath.Join(dir, name), page.Bytes(), 0o644) //nolint:gosec // public
	})
}

// Reference returns a page of the commands without those for shell completion, which --help explains.
func Reference(root *cobra.Command) ([]byte, error) {
	var page bytes.Buffer
	page.WriteString("# Commands\n\nMade by `make generate` from the output of `--help`.\n")
	err := eachCommand(root, func(cmd *cobra.Command) error {
		if cmd.Parent() == root && cmd.Name() == "completion" ||
			cmd.HasParent() && cmd.Parent().Name() == "completion" {
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
			fmt.Fprintf(&page, "\nExamples:\n\n```console\n%s```\n", shellLines(cmd.Example))
		}
		if flags := cmd.NonInheritedFlags(); flags.HasAvailableFlags() {
			fmt.Fprintf(&page, "\n```\n%s```\n", flags.FlagUsages())
		}
		return nil
	})
	return page.Bytes(), err
}

// shellLines returns the commands of an example after a prompt. The continuation lines of a command have none.
func shellLines(example string) string {
	var lines strings.Builder
	continued := false
	for line := range strings.SplitSeq(example, "\n") {
		line = strings.TrimPrefix(line, "  ")
		if !continued {
			lines.WriteString("$ ")
		}
		lines.WriteString(line + "\n")
		continued = strings.HasSuffix(line, "\\") || strings.HasSuffix(line, "|")
	}
	return lines.String()
}

// eachCommand calls visit with cmd and the visible commands under it.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command) error) error {
	cmd.InitDefaultHelpFlag()
	if err := visit(cmd); err != nil {
		return err
	}
	for _, child := range cmd.Commands() {
		if child.Hidden || child.IsAdditionalHelpTopicCommand() || child.Name() == "help" {
			continue
		}
		if err := eachCommand(child, visit); err != nil {
			return err
		}
	}
	return nil
}
