package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/lint"
	"tributary/config"
)

func newValidate() *cobra.Command {
	output := outputs("text", "json")
	cmd := &cobra.Command{
		Use:   "validate PATH...",
		Short: "Check files as the server would, without serving them",
		Long: `Validate checks files and directories of mesh configuration, with Istio's own validation, and tributary's configuration
files together with the files that they name as sources. It exits with 3 if something would not be served.`,
		Example: `  tributary validate rules/ /etc/tributary/tributary.yaml`,
		Args:    cobra.MinimumNArgs(1),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			var l lint.Linter
			for _, path := range args {
				if err := validate(cmd.Context(), &l, path); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
			return printFindings(cmd, output.value, &l)
		}),
	}
	output.add(cmd)
	return cmd
}

// validate looks at path: a configuration file of ours and the files that it names, or files of configuration objects.
func validate(ctx context.Context, l *lint.Linter, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return errors.Unwrap(err) // the path is named by the caller
	}
	if !info.Mode().IsRegular() {
		return l.Path(ctx, path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return errors.Unwrap(err)
	}
	if !config.Recognize(data) {
		return l.Path(ctx, path)
	}
	cfg, err := config.Parse(path, data)
	if bad, ok := errors.AsType[*config.Error](err); ok {
		for _, p := range bad.Problems {
			l.Findings = append(l.Findings, lint.Finding{Place: p.Place(), Severity: lint.Error, Message: p.Text()})
		}
		return nil
	}
	if err != nil {
		return err
	}
	for _, s := range cfg.ConfigSources {
		files, ok := s.Settings.(*config.File)
		if !ok {
			continue // what is elsewhere is checked when it is read
		}
		if err := l.Address(ctx, s.Address, files.Source()); err != nil {
			return fmt.Errorf("source %s: %w", s.Name, err)
		}
	}
	return nil
}

func printFindings(cmd *cobra.Command, format string, l *lint.Linter) error {
	if format == "json" {
		if err := printJSON(cmd.OutOrStdout(), append([]lint.Finding{}, l.Findings...)); err != nil {
			return err
		}
	} else {
		for _, f := range l.Findings {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), f); err != nil {
				return err
			}
		}
	}
	errs := 0
	for _, f := range l.Findings {
		if f.Severity == lint.Error {
			errs++
		}
	}
	cmd.PrintErrf("%d objects valid, %d errors, %d warnings\n", l.Objects, errs, len(l.Findings)-errs)
	if errs > 0 {
		return &failure{code: exitFindings}
	}
	return nil
}
