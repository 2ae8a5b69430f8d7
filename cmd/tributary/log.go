package main

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// logFlags say what is logged and how. Logs go to stderr.
type logFlags struct {
	level  slog.Level
	format choice
}

func (f *logFlags) add(cmd *cobra.Command) {
	f.format = choice{value: "text", allowed: []string{"text", "json"}}
	cmd.Flags().TextVar(&f.level, "log-level", slog.LevelInfo, "lowest level that is logged: debug, info, warn, error")
	cmd.Flags().Var(&f.format, "log-format", "format of the log: text, json")
	// The flags exist and the functions are valid, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions(f.format.allowed, noFiles))
	_ = cmd.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, noFiles))
}

func (f *logFlags) logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: f.level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindTime {
			a.Value = slog.TimeValue(a.Value.Time().UTC())
		}
		return a
	}}
	if f.format.value == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
