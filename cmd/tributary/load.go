package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/load"
	"tributary/config"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/xds"
)

type loadFlags struct {
	load.Config
	mode   *choice
	types  []string
	secure secureFlags
}

func newLoad() *cobra.Command {
	flags := loadFlags{mode: outputs("sotw", "delta")}
	format := outputs("text", "json")
	cmd := &cobra.Command{
		Use:   "load --server HOST:PORT --clients N",
		Short: "Put an ADS server under the load of many clients and measure what they are sent",
		Long: `Load opens streams to any ADS server, asks on each for types as a whole, acknowledges everything and decodes nothing.
It prints how far it is on stderr, and at the end how long it took until the clients had what they asked for, what came in,
and how the changes spread: a change is a version of a type that came up after the first answers, and the lag of a client is
how much later it got one than the client that got it first. Servers that send no versions show no changes.

It ends when the clients are synced and --duration has passed, or when it is interrupted, and exits with 1 if streams failed
or were not answered within --timeout.`,
		Example: `  tributary load --server 127.0.0.1:16010 --clients 500 --mode delta --duration 30s
  tributary load --server istiod.example:15012 --tls-ca ca.pem --token-file token --clients 50 --types se,vs,dr
  tributary load --server 127.0.0.1:18000 --clients 1000 --per-connection 100 --types clusters,listeners`,
		Args: cobra.NoArgs,
		RunE: asks(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			flags.TLS, flags.TokenFile = flags.secure.settings(), flags.secure.tokenFile()
			flags.Progress = func(r load.Report) { cmd.PrintErrln(progress(r)) }
			r, failed := load.Run(ctx, flags.Config)
			write := writeLoad
			if format.value == "json" {
				write = func(w io.Writer, r load.Report) error { return printJSON(w, r) }
			}
			if err := write(cmd.OutOrStdout(), r); err != nil {
				return err
			}
			return failed
		}),
	}
	f := cmd.Flags()
	f.Var(newXDSServer(&flags.Server), "server", "host:port of an ADS server"+orElse(envServer, "listen.xds", config.DefaultXDS))
	addServerConfig(cmd)
	f.IntVar(&flags.Clients, "clients", 100, "how many streams to open")
	f.IntVar(&flags.PerConnection, "per-connection", 1, "how many streams share a connection")
	f.Var(flags.mode, "mode", "variant of the protocol: sotw, delta")
	f.StringSliceVar(&flags.types, "types", nil, "types to ask for: kinds, type URLs, or clusters, endpoints, listeners, routes, secrets "+
		"(default: all kinds, as istiod does)")
	f.StringToStringVar(&flags.Metadata, "metadata", nil, "metadata of the clients' nodes, such as ISTIO_REVISION=canary")
	f.DurationVar(&flags.SyncWithin, "timeout", time.Minute, "how long the clients have to be synced")
	f.DurationVar(&flags.Duration, "duration", 10*time.Second, "how long to go on after that")
	flags.secure.add(cmd)
	format.add(cmd)
	completeFlag(cmd, "mode", cobra.FixedCompletions(flags.mode.allowed, noFiles))
	completeFlag(cmd, "types", completeLoadTypes)
	return cmd
}

func envoyTypes() map[string]string {
	return map[string]string{
		"clusters": xds.ClusterURL, "endpoints": xds.EndpointURL, "listeners": xds.ListenerURL, "routes": xds.RouteURL,
		"secrets": xds.SecretURL,
	}
}

func (f *loadFlags) check() error {
	if f.Clients < 1 || f.PerConnection < 1 {
		return usage("want at least one client, and one a connection")
	}
	f.Delta = f.mode.value == "delta"
	names := f.types
	if len(names) == 0 {
		for _, s := range resource.Schemas() {
			names = append(names, s.TypeURL())
		}
	}
	mcp := false
	for _, name := range names {
		schema, known := resource.SchemaByName(name)
		switch {
		case known:
			name = schema.TypeURL()
		case envoyTypes()[name] != "":
			name = envoyTypes()[name]
		case !strings.Contains(name, "/"):
			return usage("unknown type %q; want a type URL, one of clusters, endpoints, listeners, routes, secrets, or a kind: %s", name,
				strings.Join(kinds(), ", "))
		}
		mcp = mcp || !strings.HasPrefix(name, "type.googleapis.com/")
		f.Types = append(f.Types, name)
	}
	if _, given := f.Metadata["GENERATOR"]; mcp && !given {
		if f.Metadata == nil {
			f.Metadata = make(map[string]string)
		}
		f.Metadata["GENERATOR"] = "api" // istiod: objects, not Envoy configuration
	}
	return nil
}

func progress(r load.Report) string {
	line := fmt.Sprintf("%s: %d of %d clients synced, %d messages, %s", r.Elapsed, r.Synced, r.Clients,
		r.Initial.Messages+r.Later.Messages, size(r.Initial.Bytes+r.Later.Bytes))
	if r.Watched > 0 {
		line += ", " + words.Count(r.Changes, "change", "changes") + " since"
	}
	if r.Failed > 0 {
		line += fmt.Sprintf(", %d failed", r.Failed)
	}
	return line
}

func writeLoad(w io.Writer, r load.Report) error {
	rate := func(n float64) float64 {
		if r.Watched == 0 {
			return 0
		}
		return n / float64(r.Watched)
	}
	_, err := fmt.Fprintf(w, `clients   %d synced, %d failed, of %d
sync      %s until all were; each: %s
          %s
after it  for %s: %s
changes   %d, %.1f a second; %.1f messages and %s a second
lag       %s
`,
		r.Synced, r.Failed, r.Clients, r.SyncedIn, quantiles(r.Sync), traffic(r.Initial), r.Watched, traffic(r.Later),
		r.Changes, rate(float64(r.Changes)), rate(float64(r.Later.Messages)), size(int64(rate(float64(r.Later.Bytes)))), quantiles(r.Lag))
	return err
}

func traffic(t load.Traffic) string {
	return words.Count(t.Messages, "message", "messages") + ", " + size(t.Bytes) + ", " +
		words.Count(int(t.Resources), "resource", "resources")
}

func quantiles(q load.Quantiles) string {
	if q.Count == 0 {
		return "nothing measured"
	}
	return fmt.Sprintf("p50 %s, p90 %s, p99 %s, max %s", q.P50, q.P90, q.P99, q.Max)
}

func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	default:
		return fmt.Sprintf("%d B", n)
	}
}
