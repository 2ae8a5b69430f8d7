package sources

import (
	"context"
	"log/slog"
	"sync/atomic"
)

// label is the name of a source, which a reload may change while the source goes on. All methods are safe for concurrent use.
type label struct{ name atomic.Pointer[string] }

func newLabel(name string) *label {
	l := new(label)
	l.set(name)
	return l
}

func (l *label) set(name string) { l.name.Store(&name) }

func (l *label) String() string { return *l.name.Load() }

// logger returns log with the name that the source has when a line is written.
func (l *label) logger(log *slog.Logger) *slog.Logger {
	return slog.New(labelled{log.Handler(), l})
}

// labelled adds the name of a source to what it handles.
type labelled struct {
	slog.Handler
	label *label
}

func (h labelled) Handle(ctx context.Context, r slog.Record) error {
	named := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	named.AddAttrs(slog.String("source", h.label.String()))
	r.Attrs(func(a slog.Attr) bool {
		named.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, named)
}

func (h labelled) WithAttrs(attrs []slog.Attr) slog.Handler {
	return labelled{h.Handler.WithAttrs(attrs), h.label}
}

func (h labelled) WithGroup(name string) slog.Handler {
	return labelled{h.Handler.WithGroup(name), h.label}
}
