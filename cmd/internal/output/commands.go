package output

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// ManPages writes a manual page of each command into a directory.
func ManPages(root *cobra.Command, directory string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil { //nolint:gosec // public
		return err
	}
	// The date is $SOURCE_DATE_EPOCH.
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "tributary", Manual: "tributary"}, directory)
}

// Reference returns a page of the commands without those for shell completion, which --help explains.
func Reference(root *cobra.Command) []byte {
	var page bytes.Buffer
	page.WriteString("# Commands\n\nMade by `make generate` from the output of `--help`.\n")
	var describe func(cmd *cobra.Command)
	describe = func(command *cobra.Command) {
		command.InitDefaultHelpFlag()
		fmt.Fprintf(&page, "\n## %s\n\n%s\n", command.CommandPath(), command.Short)
		if command.Long != "" {
			fmt.Fprintf(&page, "\n%s\n", command.Long)
		}
		if command.Runnable() {
			fmt.Fprintf(&page, "\n```\n%s\n```\n", command.UseLine())
		}
		if command.Example != "" {
			fmt.Fprintf(&page, "\nExamples:\n\n```console\n%s```\n", shellLines(command.Example))
		}
		if flags := command.NonInheritedFlags(); flags.HasAvailableFlags() {
			fmt.Fprintf(&page, "\n```\n%s```\n", flags.FlagUsages())
		}
		for _, child := range command.Commands() {
			if child.IsAvailableCommand() && child.Name() != "completion" {
				describe(child)
			}
		}
	}
	describe(root)
	return page.Bytes()
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
