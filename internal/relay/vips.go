package relay

import (
	"context"
	"log/slog"
	"path/filepath"

	"tributary/config"
	"tributary/sources/lastgood"
	"tributary/sources/vip"
)

// vips are the virtual addresses that sources give to their services, and the file that remembers them.
type vips struct {
	table *vip.Table // nil if they are switched off
	path  string     // empty for nowhere
	log   *slog.Logger
}

// openVIPs reads the addresses that were given before. All sources share them, since a mesh has one space of addresses.
func openVIPs(cfg *config.Config, state *lastgood.Dir, log *slog.Logger) (vips, error) {
	v := vips{log: log}
	prefix, ok := cfg.VIPs()
	if !ok {
		return v, nil
	}
	var err error
	if v.table, err = vip.New(prefix); err != nil || state == nil {
		return v, err
	}
	v.path = filepath.Join(state.Path(), "virtual-addresses")
	return v, v.table.Load(v.path)
}

// run writes what is new, until ctx ends.
func (v vips) run(ctx context.Context) {
	if v.table == nil || v.path == "" {
		return
	}
	v.table.Run(ctx, v.path, func(err error) { v.log.Warn("virtual addresses are not remembered", "err", err) })
}
