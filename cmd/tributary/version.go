package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"tributary/resource"
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
