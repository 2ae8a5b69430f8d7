package relay

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/aggregate"
	"tributary/config"
	"tributary/internal/history"
	"tributary/server/admin"
	"tributary/sources/lastgood"
)

// openHistory opens what is remembered of earlier runs. It is nil if nothing is kept.
func openHistory(cfg config.History, state *lastgood.Dir, view *aggregate.View, log *slog.Logger,
	metrics prometheus.Registerer,
) (*history.History, error) {
	if state == nil || cfg.Bytes < 0 {
		return nil, nil
	}
	return history.Open(filepath.Join(state.Path(), "history"), cfg.Bytes, view, log, metrics)
}

// remember writes the history, if there is one.
func (r *Relay) remember(ctx context.Context) error {
	if r.history == nil {
		return nil
	}
	return r.history.Run(ctx)
}

// happened has the history know of something that is no change of an object.
func (r *Relay) happened(event, source, text string) {
	if r.history != nil {
		r.history.Note(event, source, text)
	}
}

// remembered is the history for the admin server; nil for none.
func (r *Relay) remembered() admin.History {
	if r.history == nil {
		return nil
	}
	return r.history
}
