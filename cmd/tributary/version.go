package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"tributary/resource"

	"tributary/cmd/internal/output"
)

// version is set by the linker (-X main.version=…) for a release; otherwise the toolchain knows one.
var version string

// build describes the build of this binary.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Istio    string `json:"istio"` // version of the built-in validation
}

func thisBuild() build {
	result := build{
		Version: cmp.Or(version, "(devel)"), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Istio: resource.ValidationVersion,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return result
	}
	result.Version = cmp.Or(version, info.Main.Version, result.Version)
	modified := ""
	for _, buildSetting := range info.Settings {
		switch {
		case buildSetting.Key == "vcs.revision":
			result.Revision = buildSetting.Value
		case buildSetting.Key == "vcs.modified" && buildSetting.Value == "true":
			modified = " (modified)"
		}
	}
	if result.Revision != "" {
		result.Revision += modified
	}
	return result
}

func (b build) String() string {
	text := "tributary " + b.Version
	if b.Revision != "" {
		text += ", revision " + b.Revision
	}
	return fmt.Sprintf("%s, %s, %s, validation of Istio %s", text, b.Go, b.Platform, b.Istio)
}

func newVersion() *cobra.Command {
	format := outputs("text", "json")
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: runCommand(func(command *cobra.Command, _ []string) error {
			if format.value == "json" {
				return printJSON(command.OutOrStdout(), thisBuild())
			}
			_, err := fmt.Fprintln(command.OutOrStdout(), thisBuild())
			return err
		}),
	}
	format.add(command)
	return command
}

//go:generate go run . docs reference ../../docs/commands.md

// newDocs writes documentation for packages, and for the reference of the commands.
func newDocs() *cobra.Command {
	command := &cobra.Command{
		Use: "docs", Short: "Write the documentation of the commands", Hidden: true,
		Args: cobra.NoArgs,
	}
	command.AddCommand(
		&cobra.Command{
			Use: "man DIR", Short: "Write manual pages into a directory", Args: cobra.ExactArgs(1),
			RunE: runCommand(func(command *cobra.Command, args []string) error {
				return output.ManPages(documented(command), args[0])
			}),
		},
		&cobra.Command{
			Use: "reference FILE", Short: "Write the reference of all commands", Args: cobra.ExactArgs(1),
			RunE: runCommand(func(command *cobra.Command, args []string) error {
				return os.WriteFile(args[0], output.Reference(documented(command)), 0o644) //nolint:gosec // it is to be read by all
			}),
		},
	)
	return command
}

// documented returns the root of cmd for documentation: without times and paths of the build.
func documented(cmd *cobra.Command) *cobra.Command {
	root := cmd.Root()
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	return root
}
