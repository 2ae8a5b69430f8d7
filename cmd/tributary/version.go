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
	b := build{
		Version: cmp.Or(version, "(devel)"), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Istio: resource.ValidationVersion,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(version, info.Main.Version, b.Version)
	modified := ""
	for _, buildSetting := range info.Settings {
		switch {
		case buildSetting.Key == "vcs.revision":
			b.Revision = buildSetting.Value
		case buildSetting.Key == "vcs.modified" && buildSetting.Value == "true":
			modified = " (modified)"
		}
	}
	if b.Revision != "" {
		b.Revision += modified
	}
	return b
}

func (b build) String() string {
	s := "tributary " + b.Version
	if b.Revision != "" {
		s += ", revision " + b.Revision
	}
	return fmt.Sprintf("%s, %s, %s, validation of Istio %s", s, b.Go, b.Platform, b.Istio)
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
	cmd := &cobra.Command{Use: "docs", Short: "Write the documentation of the commands", Hidden: true, Args: cobra.NoArgs}
	cmd.AddCommand(
		&cobra.Command{
			Use: "man DIR", Short: "Write manual pages into a directory", Args: cobra.ExactArgs(1),
			RunE: runCommand(func(cmd *cobra.Command, args []string) error { return output.ManPages(documented(cmd), args[0]) }),
		},
		&cobra.Command{
			Use: "reference FILE", Short: "Write the reference of all commands", Args: cobra.ExactArgs(1),
			RunE: runCommand(func(cmd *cobra.Command, args []string) error {
				return os.WriteFile(args[0], output.Reference(documented(cmd)), 0o644) //nolint:gosec // it is to be read by all
			}),
		},
	)
	return cmd
}

// documented returns the root of cmd for documentation: without times and paths of the build.
func documented(cmd *cobra.Command) *cobra.Command {
	root := cmd.Root()
	root.DisableAutoGenTag = true
	root.InitDefaultCompletionCmd()
	return root
}
