// Command tributary merges mesh configuration from many places and serves it over xDS. See `tributary help`.
//
// A command stands in the file of its name; apply.go, delete.go, edit.go and get.go use consul_kv.go. The flags of
// several commands stand in admin_flags.go (the admin server), xds_flags.go (the xDS server), tls_flags.go
// (certificates and tokens), config_flags.go and flag_values.go. Exit codes stand in root.go, messages about wrong
// flags in flag_errors.go, completion in complete.go. The work of commands is in cmd/internal.
package main

import (
	"context"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"tributary/cmd/internal/output"
	"tributary/internal/secret"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], output.Escaped(os.Stdout), output.Escaped(os.Stderr)))
}

// run is the program: it executes the command line args and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var messages strings.Builder
	code := exitCode(err, cmd, &messages)
	_, _ = io.WriteString(stderr, veilOf(args).Hide(messages.String())) // stderr itself failed
	return code
}

// veilOf hides possible secrets in the addresses of a command.
func veilOf(args []string) *secret.Veil {
	var veil secret.Veil
	veil.Cover(os.Getenv("TRIBUTARY_SERVER"), os.Getenv("TRIBUTARY_ADMIN"))
	for _, arg := range args {
		if name, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(name, "-") {
			arg = value
		}
		veil.Cover(arg)
	}
	return &veil
}

// logFlags configure the log, which goes to stderr.
type logFlags struct {
	level  slog.LevelVar
	format choice
}

func (f *logFlags) add(command *cobra.Command) {
	f.format = choice{value: "text", allowed: []string{"text", "json"}}
	command.Flags().TextVar(&f.level, "log-level", &f.level, "lowest level that is logged: debug, info, warn, error")
	command.Flags().Var(&f.format, "log-format", "format of the log: text, json")
	completeFlag(command, "log-format", cobra.FixedCompletions(f.format.allowed, noFiles))
	completeFlag(command, "log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, noFiles))
}

func (f *logFlags) logger(writer io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: &f.level, ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
		if attr.Value.Kind() == slog.KindTime {
			attr.Value = slog.TimeValue(attr.Value.Time().UTC())
		}
		return attr
	}}
	if f.format.value == "json" {
		return slog.New(slog.NewJSONHandler(writer, opts))
	}
	return slog.New(slog.NewTextHandler(writer, opts))
}

// limitMemory sets the memory limit of the process to 90 % of its control group, so that it collects garbage before the
// kernel kills it. GOMEMLIMIT sets another limit, and AUTOMEMLIMIT another share, or off.
func limitMemory(log *slog.Logger) {
	limit, err := memlimit.Set()
	switch {
	case err != nil:
		log.Warn("how much memory there may be is not known", "err", err)
	case limit < math.MaxInt64:
		log.Info("memory is limited", "bytes", limit)
	}
}
