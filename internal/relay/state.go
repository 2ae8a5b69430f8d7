package relay

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/aggregate"
	"tributary/config"
	"tributary/internal/history"
	"tributary/server/admin"
	"tributary/sources/lastgood"
	"tributary/sources/vip"
)

// openState opens the state directory. It returns nil if the user switched it off, if there is neither a configuration
// file nor a setting to name it, or if the default one is unusable. An unusable directory that the user chose is an
// error.
func openState(cfg *config.Config, origin Origin, log *slog.Logger) (*lastgood.Dir, error) {
	path, chosen, err := StatePath(cfg, origin)
	if err == nil && path == "" {
		return nil, nil
	}
	if err == nil {
		var dir *lastgood.Dir
		dir, err = lastgood.Open(path, log)
		if err == nil {
			return dir, nil
		}
		if path == cfg.StateDir {
			return nil, cfg.Fault("stateDir", err)
		}
		if chosen {
			return nil, err
		}
	}
	log.Warn("nothing is kept across restarts; set stateDir, or stateDir: off if that is as it should be", "err", err)
	return nil, nil
}

// StatePath returns the state directory of a configuration; empty for none. chosen reports that the user named it.
func StatePath(cfg *config.Config, origin Origin) (path string, chosen bool, err error) {
	path = cfg.StateDir
	if path == config.StateOff {
		return "", false, nil
	}
	if path == "" {
		path, _, _ = strings.Cut(os.Getenv("STATE_DIRECTORY"), ":") // systemd lists the directories of StateDirectory=
	}
	if path != "" {
		return path, true, nil
	}
	if origin.File == "" {
		return "", false, nil
	}
	path, err = userStateDir(origin.File)
	return path, false, err
}

// userStateDir returns a directory for the state of a configuration file in the user's state directory of the XDG base
// directory specification. Each file has its own, so that a user's processes do not share state.
func userStateDir(file string) (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("state directory: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return "", fmt.Errorf("state directory: %w", err)
	}
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	digest := sha256.Sum256([]byte(file))
	return filepath.Join(base, "tributary", fmt.Sprintf("%.40s-%x", name, digest[:8])), nil
}

// vipsFile is the file of a state directory with the virtual addresses.
const vipsFile = "virtual-addresses"

// openVIPs reads the saved addresses. All sources share them, since a mesh has a single space of addresses. The table
// is nil if they are switched off.
func openVIPs(cfg *config.Config, state *lastgood.Dir) (*vip.Table, error) {
	prefix, ok := cfg.VIPs()
	if !ok {
		return nil, nil //nolint:nilnil // nil gives no addresses
	}
	table, err := vip.New(prefix)
	if err == nil && state != nil {
		err = table.Load(filepath.Join(state.Path(), vipsFile))
	}
	return table, err
}

// openHistory opens the history of earlier runs. It returns nil if history is switched off.
func openHistory(cfg config.History, state *lastgood.Dir, view *aggregate.View, log *slog.Logger,
	metrics prometheus.Registerer,
) (*history.History, error) {
	if state == nil || cfg.Bytes < 0 {
		return nil, nil
	}
	return history.Open(filepath.Join(state.Path(), "history"), cfg.Bytes, view, log, metrics)
}

// write runs the writers of state other than the sources, until ctx ends.
func (r *Relay) write(ctx context.Context) error {
	var writers sync.WaitGroup
	writers.Go(func() { r.sources.logRemovals(ctx) })
	if r.vips != nil && r.state != nil {
		path := filepath.Join(r.state.Path(), vipsFile)
		failed := func(err error) { r.log.Warn("virtual addresses are not remembered", "err", err) }
		writers.Go(func() { r.vips.Run(ctx, path, failed) })
	}
	if r.history != nil {
		writers.Go(func() { _ = r.history.Run(ctx) }) // it never fails
	}
	writers.Wait()
	return nil
}

// noteEvent adds an event that changes no object to the history.
func (r *Relay) noteEvent(event, source, text string) {
	if r.history != nil {
		r.history.Note(event, source, text)
	}
}

// adminHistory returns the history for the admin server; nil for none.
func (r *Relay) adminHistory() admin.History {
	if r.history == nil {
		return nil
	}
	return r.history
}
