package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/adminclient"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/verify"
)

func newVerify() *cobra.Command {
	var flags clientFlags
	var ages ageFlags
	var istiod verify.Istiod
	var settle time.Duration
	output := outputs("text", "json")
	cmd := &cobra.Command{
		Use:   "verify --istiod URL",
		Short: "Compare what is served with what an istiod really stored",
		Long: `Verify asks a server what it serves, and an istiod behind it what it stored (its /debug/configz), and compares them object
by object: what is missing there, stale, different, or extra, and why, where that can be known. istiod acknowledges what it then throws away,
so that its acknowledgement is no proof; this is. What is on its way is given time (--settle). It exits with 3 if something is not right.

Objects of other config sources of the istiod are extra; they count as findings only with --extra. Kinds that no client of the server asks
for are not compared, as far as its admin server says so.`,
		Example: `  tributary verify --istiod http://istiod.example:8080
  tributary verify --istiod http://127.0.0.1:8080 --server mesh-1.example:16010 --admin mesh-1.example:16014 -o json`,
		Args: cobra.NoArgs,
	}
	var extra bool
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		if err := istiod.Check(); err != nil {
			return usage("--istiod: %w", err)
		}
		ctx, stop := untilSignal(cmd.Context())
		defer stop()
		istiod.Client = &http.Client{Timeout: flags.timeout}
		find := func() ([]verify.Finding, int, error) {
			served, err := flags.served(ctx, cmd, &ages)
			if err != nil {
				return nil, 0, err
			}
			stored, err := istiod.Stored(ctx)
			if err != nil {
				if means := words.Connection(istiod.URL, err.Error()); means != "" {
					return nil, 0, fmt.Errorf("%s: %s", istiod.URL, means)
				}
				return nil, 0, err
			}
			return verify.Compare(served, stored), len(served.Objects), nil
		}
		findings, objects, err := settled(ctx, settle, find)
		if err != nil {
			return err
		}
		counted, err := writeFindings(cmd.OutOrStdout(), output.value, findings, extra)
		if err != nil {
			return err
		}
		cmd.PrintErrf("%s compared, %s\n", words.Count(objects, "object", "objects"), words.Count(counted, "finding", "findings"))
		if counted > 0 {
			return &failure{code: exitFindings}
		}
		return nil
	})
	flags.add(cmd, "")
	ages.add(cmd)
	cmd.Flags().StringVar(&istiod.URL, "istiod", "", "http://HOST:PORT of the istiod's debug pages, by default port 8080")
	cmd.Flags().DurationVar(&settle, "settle", 5*time.Second, "how long what is on its way may take: a finding is one that is still there then")
	cmd.Flags().BoolVar(&extra, "extra", false, "count what other config sources of the istiod have as findings")
	// The flag exists, so this cannot fail.
	_ = cmd.MarkFlagRequired("istiod")
	output.add(cmd)
	return cmd
}

// settleStep is how often it is looked whether what was on its way has arrived.
const settleStep = 500 * time.Millisecond

// settled returns what find finds once that is nothing, or has had time to settle.
func settled(ctx context.Context, within time.Duration, find func() ([]verify.Finding, int, error)) ([]verify.Finding, int, error) {
	deadline := time.Now().Add(within)
	for {
		findings, objects, err := find()
		if err != nil || onlyExtra(findings) || time.Now().After(deadline) {
			return findings, objects, err
		}
		select {
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		case <-time.After(settleStep):
		}
	}
}

func onlyExtra(all []verify.Finding) bool {
	for _, f := range all {
		if f.Class != verify.Extra {
			return false
		}
	}
	return true
}

// served is what the server serves. Which kinds clients ask for is known if its admin server can be asked.
func (f *clientFlags) served(ctx context.Context, cmd *cobra.Command, ages *ageFlags) (s verify.Served, err error) {
	client := f.client(cmd)
	for _, schema := range resource.Schemas() {
		if schema.Bare {
			continue
		}
		answer, err := client.Get(ctx, schema)
		if err != nil {
			return s, err
		}
		for _, err := range answer.Rejects {
			cmd.PrintErrf("warning: %v\n", err)
		}
		for _, r := range answer.Resources {
			if f.selects(r) {
				s.Objects = append(s.Objects, r)
			}
		}
	}
	var clients []struct {
		Types []struct {
			TypeURL string `json:"type_url"`
		} `json:"types"`
	}
	admin := &adminclient.Client{Address: ages.admin, TLS: f.secure.settings(), Timeout: ageTimeout}
	if _, err := admin.Get(ctx, "/debug/clients", nil, &clients); err != nil {
		if ages.meant(cmd) {
			return s, err
		}
		return s, nil
	}
	asked := make(map[resource.Kind]bool)
	for _, c := range clients {
		for _, t := range c.Types {
			if parts := strings.Split(t.TypeURL, "/"); len(parts) == 3 {
				asked[resource.Kind(parts[2])] = true
			}
		}
	}
	s.Asked = func(kind resource.Kind) bool { return asked[kind] }
	return s, nil
}

// writeFindings writes findings, and returns how many count.
func writeFindings(w io.Writer, format string, all []verify.Finding, extra bool) (counted int, err error) {
	for _, f := range all {
		if extra || f.Class != verify.Extra {
			counted++
		}
	}
	if format == "json" {
		return counted, printJSON(w, append([]verify.Finding{}, all...))
	}
	for _, f := range all {
		if f.Class == verify.Extra && !extra {
			continue
		}
		from := ""
		if f.Origin != "" {
			from = " (from " + f.Origin + ")"
		}
		if _, wrong := fmt.Fprintf(w, "%-9s  %s: %s%s\n", f.Class, f.Key(), f.Reason, from); wrong != nil {
			err = errors.Join(err, wrong)
		}
	}
	return counted, err
}
