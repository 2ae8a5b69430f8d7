package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/verify"
)

// verifyFlags are the flags of verify.
type verifyFlags struct {
	clientFlags

	istiod istiodFlags
	envoy  verify.Envoy
	settle time.Duration
	extra  bool
	format *choice
}

func newVerify() *cobra.Command {
	flags := verifyFlags{istiod: istiodFlags{secure: secureFlags{prefix: "istiod-"}}, format: outputs("text", "json")}
	command := &cobra.Command{
		Use:   "verify {--istiod URL | --envoy URL}",
		Short: "Compare the served objects with those that an istiod stored, or an Envoy has",
		Long: `Verify reads the served objects of a server, and the stored ones of the istiod that reads from it
(/debug/configz). It compares them object by object and reports objects that are missing, stale, different or extra in
istiod, with the reason if it is known. An acknowledgement by istiod is no proof, since istiod acknowledges objects
that it then drops. A change has --settle to arrive. The exit code is 3 if there are findings.

From another machine, verify asks istiod over xDS (--istiod xds://HOST:15012), with a certificate or token of a
service account in istiod's root namespace.

Objects of istiod's other config sources are extra; they are findings only with --extra. Kinds that no client of the
server asks for are not compared if the admin server reports so; while no client is connected, all kinds are.

With --envoy it reads the Envoy's /config_dump, which has the Envoy's node, and asks the admin server for the present
configuration of an Envoy with that node. It compares clusters, endpoints, listeners, routes, virtual hosts, and the
versions of secrets. The Envoy refused "rejected" resources; "warming" ones wait for other resources before Envoy uses
them. The Envoy's bootstrap is not compared. Verify does not register as a client.`,
		Example: `  tributary verify --istiod http://istiod.example:8080
  tributary verify --istiod xds://istiod.example:15012 --istiod-tls-ca root-cert.pem --istiod-token-file token
  tributary verify --istiod http://127.0.0.1:8080 --server mesh-1.example:16010 --admin mesh-1.example:16014 -o json
  tributary verify --envoy http://127.0.0.1:9901`,
		Args: cobra.NoArgs,
		RunE: runInterruptible(flags.run),
	}
	flags.add(command, "")
	addServerConfig(command)
	flags.addAdmin(command)
	command.Flags().StringVar(&flags.istiod.address, "istiod", "",
		"http://HOST:PORT of the istiod's debug pages, by default port 8080, "+
			"which answers only to its own machine; or xds://HOST:PORT, by default port 15012")
	flags.istiod.secure.addFor(command, "--istiod xds://")
	command.Flags().StringVar(&flags.envoy.Where, "envoy", "",
		"http://HOST:PORT or unix:///PATH of an Envoy's admin server, or a file with its "+
			"/config_dump?include_eds")
	command.Flags().DurationVar(&flags.settle, "settle", 5*time.Second,
		"time for changes on their way: a finding is a difference that remains then")
	command.Flags().BoolVar(&flags.extra, "extra", false,
		"count objects of the istiod or Envoy from elsewhere as findings")
	command.MarkFlagsOneRequired("istiod", "envoy")
	command.MarkFlagsMutuallyExclusive("istiod", "envoy")
	flags.format.add(command)
	return command
}

func (f *verifyFlags) run(ctx context.Context, command *cobra.Command, _ []string) error {
	find := func() ([]verify.Finding, int, error) { return f.verifyIstiod(ctx, command) }
	if f.envoy.Where == "" {
		if err := f.istiod.check(ctx, command, &f.clientFlags); err != nil {
			return err
		}
	} else {
		if err := f.envoy.Check(); err != nil {
			return usage("--envoy: %w", err)
		}
		f.envoy.Client = &http.Client{Timeout: f.timeout}
		if f.envoy.IsFile() {
			f.settle = 0 // the file stays as it is
		}
		find = func() ([]verify.Finding, int, error) { return f.verifyEnvoys(ctx) }
	}
	findings, objects, err := findUntilSettled(ctx, f.settle, find)
	if err != nil {
		return err
	}
	counted, err := writeFindings(command.OutOrStdout(), f.format.value, findings, f.extra)
	if err != nil {
		return err
	}
	command.PrintErrf("%s compared, %s\n", words.Count(objects, "object", "objects"),
		words.Count(counted, "finding", "findings"))
	if counted > 0 {
		return &failure{code: exitFindings}
	}
	return nil
}

// verifyIstiod returns the differences of an istiod from the server, and the number of compared objects.
func (f *verifyFlags) verifyIstiod(ctx context.Context, command *cobra.Command) ([]verify.Finding, int, error) {
	served, err := f.served(ctx, command)
	if err != nil {
		return nil, 0, err
	}
	stored, err := f.istiod.stored(ctx, command, &f.clientFlags)
	if err != nil {
		return nil, 0, err
	}
	return verify.Compare(served, stored), len(served.Objects), nil
}

// istiodFlags have the address of an istiod, and the settings of a connection over xDS.
type istiodFlags struct {
	address string
	secure  secureFlags
	http    verify.Istiod // unless the address is of xDS
}

// check reports a wrong address, and an address of a tributary.
func (i *istiodFlags) check(ctx context.Context, command *cobra.Command, flags *clientFlags) error {
	if strings.HasPrefix(i.address, "xds://") {
		if _, err := xdsAddress(i.address); err != nil {
			return usage("--istiod %s: %w", i.address, err)
		}
		if err := i.secure.check(); err != nil {
			return err
		}
		return i.secure.checkToken(command)
	}
	i.http = verify.Istiod{URL: i.address, Client: &http.Client{Timeout: flags.timeout}}
	if err := i.http.Check(); err != nil {
		return usage("--istiod: %w, or xds://HOST:PORT of its TLS port", err)
	}
	if i.http.IsTributary(ctx) {
		return fmt.Errorf("%s is a tributary, and no istiod: name the debug pages of the istiod that reads from it, "+
			"by default port 8080", i.address)
	}
	return nil
}

// stored returns the objects of the istiod.
func (i *istiodFlags) stored(ctx context.Context, command *cobra.Command, flags *clientFlags) ([]verify.Stored, error) {
	if !strings.HasPrefix(i.address, "xds://") {
		stored, err := i.http.Stored(ctx)
		if err != nil && strings.HasSuffix(err.Error(), ": 401 Unauthorized") {
			return nil, fmt.Errorf("%w: istiod answers this port only to its own machine: run verify there, or give "+
				"--istiod xds://HOST:15012 with a certificate or token of a service account in its root namespace "+
				"(--istiod-tls-cert, --istiod-token-file)", err)
		}
		return stored, describeFailure(i.address, "the debug pages of an istiod", err)
	}
	server := flags.client(command)
	server.Server = strings.TrimPrefix(i.address, "xds://")
	prefix := ""
	if i.secure.given() || i.secure.token != "" {
		i.secure.on, prefix = true, i.secure.prefix
		server.TLS, server.TokenFile = i.secure.settings(), i.secure.tokenFile()
	}
	page, err := server.Debug(ctx, "configz")
	if err != nil {
		return nil, explainConnection(command, err, prefix)
	}
	stored, err := verify.Parse(page)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", i.address, err)
	}
	return stored, nil
}

func (f *verifyFlags) verifyEnvoys(ctx context.Context) ([]verify.Finding, int, error) {
	dump, err := f.envoy.Dump(ctx)
	if err != nil {
		return nil, 0, describeFailure(f.envoy.Where, "the admin server of an Envoy", err)
	}
	node, err := protojson.Marshal(dump.Node)
	if err != nil {
		return nil, 0, fmt.Errorf("node of the Envoy at %s: %w", f.envoy.Where, err)
	}
	query := url.Values{"node": {string(node)}}
	if dump.Delta {
		query.Set("delta", "")
	}
	expected := &verify.Expected{}
	if _, err := f.admin.secured(&f.secure, f.timeout).Get(ctx, "/debug/expected", query, expected); err != nil {
		return nil, 0, describeFailure(f.envoy.Where, "the admin server of an Envoy", err)
	}
	return verify.CompareEnvoy(expected, dump)
}

// describeFailure returns the reason why a server does not answer.
func describeFailure(where, meant string, err error) error {
	if err == nil {
		return nil
	}
	if strings.HasSuffix(err.Error(), ": 404 Not Found") {
		return fmt.Errorf("%w: is %s %s?", err, where, meant)
	}
	if means := words.ConnectionError(where, err.Error()); means != "" {
		return fmt.Errorf("%s: %s", where, means)
	}
	return err
}

const settleStep = 500 * time.Millisecond

// findUntilSettled repeats find until it finds no difference, or the time to settle is over.
func findUntilSettled(ctx context.Context, limit time.Duration, find func() ([]verify.Finding, int, error)) (
	[]verify.Finding, int, error,
) {
	deadline := time.Now().Add(limit)
	for {
		findings, objects, err := find()
		if err != nil || wrong(findings) == 0 || time.Now().After(deadline) {
			return findings, objects, err
		}
		select {
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		case <-time.After(settleStep):
		}
	}
}

// wrong counts the findings without the extra objects.
func wrong(findings []verify.Finding) (count int) {
	for _, finding := range findings {
		if finding.Class != verify.Extra {
			count++
		}
	}
	return count
}

// served returns the served objects of the server. The kinds that clients request are known if its admin server
// answers.
func (f *verifyFlags) served(ctx context.Context, command *cobra.Command) (served verify.Served, err error) {
	server := f.client(command)
	schemas := slices.DeleteFunc(resource.Schemas(), func(s *resource.Schema) bool { return s.Bare })
	answers, err := server.GetAll(ctx, schemas)
	if err != nil {
		return served, err
	}
	for _, answer := range answers {
		warn(command, answer.Rejects...)
		for _, r := range answer.Resources {
			if f.selects(r) {
				served.Objects = append(served.Objects, r)
			}
		}
	}
	admin := f.admin.client(f.secure.settings())
	admin.Timeout = ageTimeout
	clients, err := clientsOf(ctx, admin)
	if err != nil {
		if adminIsNamed(command) {
			return served, err
		}
		return served, nil
	}
	requested := verify.RequestedKinds{}
	for _, c := range clients {
		for _, t := range c.Types {
			requested.AddClient(c.Node, t.TypeURL)
		}
	}
	served.Requested = requested.Filter()
	return served, nil
}

func writeFindings(writer io.Writer, format string, findings []verify.Finding, extra bool) (counted int, err error) {
	if counted = len(findings); !extra {
		counted = wrong(findings)
	}
	if format == "json" {
		return counted, printJSON(writer, append([]verify.Finding{}, findings...))
	}
	for _, finding := range findings {
		if finding.Class == verify.Extra && !extra {
			continue
		}
		from := ""
		if finding.Origin != "" {
			from = " (from " + finding.Origin + ")"
		}
		if _, err := fmt.Fprintf(writer, "%-9s  %s: %s%s\n", finding.Class, finding.Key(), finding.Reason, from); err != nil {
			return counted, err
		}
	}
	return counted, nil
}
