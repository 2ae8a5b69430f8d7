// Load opens many streams to any ADS server, subscribes on each to types as a whole, and measures the responses. The
// clients acknowledge everything and decode no resource.
//
// It prints progress on stderr. At the end it prints the time until the clients had all answers, the traffic, and how
// changes spread: a change is a version of a type that came after the first answers, and the lag of a client is how
// much later than the first client it received that version. Servers that send no versions show no changes. It exits
// with 1 if streams failed or had no answer in time.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"tributary/adsc"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/xds"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var config Config
	flags.StringVar(&config.Server, "server", "127.0.0.1:16010", "host:port of an ADS server")
	flags.IntVar(&config.Clients, "clients", 100, "how many streams to open")
	flags.IntVar(&config.PerConnection, "per-connection", 1, "how many streams share a connection")
	mode := flags.String("mode", "sotw", "variant of the protocol: sotw, delta")
	types := flags.String("types", "", "types to request, separated by commas: kinds, type URLs, or clusters, endpoints, listeners, routes, "+
		"secrets; default all kinds, as istiod does")
	labels := flags.String("metadata", "", "metadata of the clients' nodes, such as ISTIO_REVISION=canary,NAMESPACE=shop")
	flags.DurationVar(&config.SyncWithin, "timeout", time.Minute, "longest time until the clients have all answers")
	flags.DurationVar(&config.Duration, "duration", 10*time.Second, "how long to continue after that")
	flags.Bool("tls", false, "use TLS; another flag of TLS implies it")
	tls := adsc.TLS{Mode: adsc.TLSSimple}
	flags.StringVar(&tls.CACertificates, "tls-ca", "", "file with the certificates to trust; default those of the system")
	flags.StringVar(&tls.ClientCertificate, "tls-cert", "", "file with the client's certificate")
	flags.StringVar(&tls.PrivateKey, "tls-key", "", "file with its private key")
	flags.StringVar(&tls.SNI, "tls-server-name", "", "name in the server's certificate, or its SPIFFE ID; default the host of -server")
	flags.StringVar(&config.TokenFile, "token-file", "", "file with a token to send, over TLS only")
	asJSON := flags.Bool("json", false, "print the report as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case config.Clients < 1 || config.PerConnection < 1:
		return errors.New("want at least one client, and one a connection")
	case *mode != "sotw" && *mode != "delta":
		return fmt.Errorf("-mode %s: want sotw or delta", *mode)
	}
	config.Delta = *mode == "delta"
	if tls.ClientCertificate != "" || tls.PrivateKey != "" {
		tls.Mode = adsc.TLSMutual
	}
	if strings.HasPrefix(tls.SNI, "spiffe://") {
		tls.SubjectAltNames, tls.SNI = []string{tls.SNI}, ""
	}
	flags.Visit(func(f *flag.Flag) {
		if strings.HasPrefix(f.Name, "tls") {
			config.TLS = &tls
		}
	})
	if err := config.setMetadata(*labels); err != nil {
		return err
	}
	if err := config.setTypes(*types); err != nil {
		return err
	}
	config.Progress = func(r Report) { _, _ = fmt.Fprintln(stderr, progress(r)) }
	report, failed := Run(ctx, config)
	var err error
	if *asJSON {
		err = json.NewEncoder(stdout).Encode(report)
	} else {
		err = writeReport(stdout, report)
	}
	return errors.Join(err, failed)
}

// setMetadata reads NAME=VALUE pairs, separated by commas.
func (cfg *Config) setMetadata(text string) error {
	cfg.Metadata = make(map[string]string)
	for pair := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' }) {
		name, value, hasValue := strings.Cut(pair, "=")
		if !hasValue {
			return fmt.Errorf("-metadata %s: want NAME=VALUE", pair)
		}
		cfg.Metadata[name] = value
	}
	return nil
}

// setTypes resolves names of types, separated by commas, and has istiod send objects instead of Envoy configuration if
// some are kinds.
func (cfg *Config) setTypes(text string) error {
	envoyTypes := map[string]string{
		"clusters": xds.ClusterURL, "endpoints": xds.EndpointURL, "listeners": xds.ListenerURL, "routes": xds.RouteURL,
		"secrets": xds.SecretURL,
	}
	names := strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
	if len(names) == 0 {
		for _, schema := range resource.Schemas() {
			names = append(names, schema.TypeURL())
		}
	}
	for _, name := range names {
		schema, isKind := resource.SchemaByName(name)
		switch {
		case isKind:
			name = schema.TypeURL()
		case envoyTypes[name] != "":
			name = envoyTypes[name]
		case !strings.Contains(name, "/"):
			return fmt.Errorf("unknown type %q; want a kind, a type URL, or one of clusters, endpoints, listeners, routes, secrets", name)
		}
		if cfg.Metadata["GENERATOR"] == "" && !strings.HasPrefix(name, "type.googleapis.com/") {
			cfg.Metadata["GENERATOR"] = "api"
		}
		cfg.Types = append(cfg.Types, name)
	}
	return nil
}

func progress(r Report) string {
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

func writeReport(w io.Writer, r Report) error {
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

func traffic(t Traffic) string {
	return words.Count(t.Messages, "message", "messages") + ", " + size(t.Bytes) + ", " +
		words.Count(int(t.Resources), "resource", "resources")
}

func quantiles(q Quantiles) string {
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
