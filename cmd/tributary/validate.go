package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/config"
	"tributary/internal/relay"
	"tributary/internal/words"
	"tributary/server/envoy"
	"tributary/sources/derive"
)

type validateFlags struct {
	offline bool
	strict  bool
	verbose bool
	connect bool
	derive  bool
	client  string
	binary  string
	config  string
	output  *choice
	running adminFlags
	server  bool
}

func newValidate() *cobra.Command {
	flags := validateFlags{output: outputs("text", "json", "sarif")}
	command := &cobra.Command{
		Use:   "validate {PATH... | -c FILE}",
		Short: "Check files as the server would, without serving them",
		Long: `Validate checks files and directories of mesh configuration, with Istio's own validation, and
tributary's configuration files together with the files that they name as sources, each with the settings of its
source, and those of certificates, tokens and keys. It also checks the objects of all inputs together: duplicate
objects; objects of different names that compete, such as two VirtualServices of one host or two PeerAuthentications
of a namespace, with the effect in istiod; references that lead nowhere (a subset, host or Gateway that no object
defines), routes that no request reaches, and further findings of istioctl analyze about these kinds, with its codes.
Services of a Kubernetes cluster (NAME.NAMESPACE.svc) are not missed. Nor are objects of sources that were not read,
and the summary says so: registries may have missing hosts, other sources also subsets and Gateways. The path - is
standard input.

Registries and servers that are sources are read with --connect only. Each has half a minute to answer, and its
objects are counted; one that cannot be read, or refuses us, is an error.

With --for envoy --envoy-binary PATH, that Envoy checks all resources for Envoys (--mode validate). A resource that it
rejects is an error, with the objects that it is made of. Certificates are not checked.

Objects of other APIs are named, and passed over as the server does; that is a warning where only Istio has such a
kind. With --derive, or where the source of a configuration says derive, Ingresses and objects of Gateway API are
checked, with the objects that are derived from them. Files with other names than *.yaml, *.yml or *.json are counted,
and named with --verbose.

It exits with 3 if an object would not be served; with --strict also if there is a warning.`,
		Example: `  tributary validate rules/ /etc/tributary/tributary.yaml
  tributary validate --offline --strict -o sarif tributary.yaml > findings.sarif
  tributary validate --for envoy rules/
  tributary validate --for envoy --envoy-binary /usr/local/bin/envoy rules/
  tributary validate --connect tributary.yaml
  helm template . | tributary validate -`,
		Args: func(command *cobra.Command, args []string) error {
			if flags.config != "" {
				return nil
			}
			return cobra.MinimumNArgs(1)(command, args)
		},
		RunE: runInterruptible(flags.run),
	}
	command.Flags().StringVarP(&flags.config, "config", "c",
		"", "a configuration file or directory, as with the other commands; anything else "+
			"in it is an error")
	command.Flags().BoolVar(&flags.offline, "offline", false,
		"files that the configuration names and that are not on this machine are no error")
	command.Flags().BoolVar(&flags.strict, "strict", false, "exit with 3 for warnings, too")
	command.Flags().BoolVar(&flags.server, "server", false,
		"check the files together with the objects that the server at "+
			"--admin serves now; a reference that leads nowhere is an error then")
	flags.running.addReference(command)
	command.Flags().BoolVar(&flags.connect, "connect", false,
		"also read the sources that are no files: log in, and count their objects")
	command.Flags().BoolVar(&flags.derive, "derive", false,
		"make Istio's objects of Ingresses and objects of Gateway API in the files, as a "+
			"source with derive: {} does")
	command.Flags().BoolVar(&flags.verbose, "verbose", false, "name the files that are not read")
	command.Flags().StringVar(&flags.client, "for", "",
		"also warn of settings without effect on clients that tributary serves itself: envoy")
	command.Flags().StringVar(&flags.binary, "envoy-binary", "",
		"with --for envoy, the path of an Envoy's binary, which checks "+
			"the resources for Envoys")
	flags.output.add(command)
	return command
}

func (f *validateFlags) run(ctx context.Context, command *cobra.Command, args []string) error {
	linter := check.Linter{Files: relay.CheckFiles}
	if f.client != "" && f.client != "envoy" {
		return usage("--for %s: want envoy", f.client)
	}
	if f.binary != "" && f.client != "envoy" {
		return usage("--envoy-binary needs --for envoy")
	}
	if f.derive {
		linter.Derive = new(derive.Options)
	}
	if f.connect {
		linter.Connect = relay.Reader
	}
	if err := f.readInputs(ctx, command, &linter, args); err != nil {
		return err
	}
	if err := linter.CheckConflicts(ctx); err != nil {
		return err
	}
	linter.CheckReferences()
	if f.client == "envoy" {
		if err := linter.CheckObjects(check.WithoutEffect, envoy.Findings); err != nil {
			return err
		}
	}
	if f.binary != "" {
		if err := linter.CheckByEnvoy(ctx, f.binary); err != nil {
			return err
		}
	}
	return f.print(command, &linter)
}

// readInputs adds the objects of the configuration, the paths and the server to a linter.
func (f *validateFlags) readInputs(
	ctx context.Context, command *cobra.Command, linter *check.Linter, paths []string,
) error {
	var skipped []string
	if f.config != "" { // a configuration of tributary, whatever its content
		cfg, err := config.Load(f.config)
		if skipped, err = linter.Config(ctx, f.config, cfg, err, f.offline); err != nil {
			return err
		}
	}
	for _, path := range paths {
		unchecked, err := f.validate(ctx, linter, path, command.InOrStdin())
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		skipped = append(skipped, unchecked...)
	}
	for _, input := range skipped {
		command.PrintErrf("not checked: %s\n", input)
	}
	for _, line := range linter.Connected {
		command.PrintErrln(line)
	}
	if f.server {
		return f.running.readInto(ctx, linter)
	}
	return nil
}

// validate checks path: a configuration file and the files that it names, or files of configuration objects. It returns
// the parts that it did not check.
func (f *validateFlags) validate(ctx context.Context, linter *check.Linter, path string, stdin io.Reader) (
	skipped []string, err error,
) {
	if path == "-" {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return nil, err
		}
		return linter.Text(ctx, stdinName, text, f.offline)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.Unwrap(err) // the path is named by the caller
	}
	if !info.Mode().IsRegular() {
		return nil, linter.Path(ctx, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	return linter.Text(ctx, path, text, f.offline)
}

func (f *validateFlags) print(command *cobra.Command, linter *check.Linter) (err error) {
	findings := append([]check.Finding{}, linter.Findings...)
	slices.SortStableFunc(findings, check.ByPlace)
	switch f.output.value {
	case "json":
		err = printJSON(command.OutOrStdout(), findings)
	case "sarif":
		err = printJSON(command.OutOrStdout(), check.SARIF(findings, thisBuild().Version))
	default:
		for _, finding := range findings {
			if _, err = fmt.Fprintf(command.OutOrStdout(), "%s\n%s", finding, finding.Fix); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	count := make(map[check.Severity]int)
	for _, finding := range findings {
		count[finding.Severity]++
	}
	if f.verbose {
		for _, path := range linter.Skipped {
			command.PrintErrf("not read, as its name does not end in .yaml, .yml or .json: %s\n", path)
		}
	}
	if linter.Unchecked != "" {
		command.PrintErrln(linter.Unchecked)
	}
	command.PrintErrf("%s valid, %s, %s", words.Count(linter.Objects, "object", "objects"), words.Count(count[check.Error],
		"error", "errors"),
		words.Count(count[check.Warning], "warning", "warnings"))
	if linter.Foreign > 0 {
		command.PrintErrf("; %d of other APIs passed over", linter.Foreign)
	}
	if n := len(linter.Skipped); n > 0 {
		command.PrintErrf("; %s", words.Count(n, "file not read by its name", "files not read by their names"))
	}
	command.PrintErrf("\n")
	if count[check.Error] > 0 || f.strict && count[check.Warning] > 0 {
		return &failure{code: exitFindings}
	}
	return nil
}
