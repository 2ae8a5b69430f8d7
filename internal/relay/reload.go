package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tributary/config"
	"tributary/internal/history"
	"tributary/internal/process"
	"tributary/server/access"
	"tributary/server/admin"
)

// reloader puts the configuration file in force at each SIGHUP or request over HTTP. A file with an error changes
// nothing. It implements admin.Config.
type reloader struct {
	// read-only
	origin     Origin
	manager    *process.Manager
	sources    *sourceSet
	admission  *access.Admission
	log        *slog.Logger
	successful prometheus.Gauge // 0 if the last reload failed
	loadedAt   prometheus.Gauge // of the configuration in force
	noteEvent  func(event, source, text string)
	status     atomic.Pointer[admin.ConfigStatus]

	mu      sync.Mutex // held while the configuration is changed
	inForce *config.Config
}

// Origin is the file of a configuration; zero for a configuration from the command line.
type Origin struct {
	File string
	Load func() (*config.Config, error) // reads the file again
	// Hangups delivers SIGHUP, the signal to reload. The owner subscribes to it before the first read of the file, since
	// SIGHUP ends a process without a subscription.
	Hangups <-chan os.Signal
}

// ErrNoFile says that the configuration has no file to reload.
var ErrNoFile = errors.New("the configuration is that of the command line; there is no file to read again")

func newReloader(cfg *config.Config, origin Origin, manager *process.Manager, sources *sourceSet,
	admission *access.Admission, log *slog.Logger, metrics prometheus.Registerer,
) *reloader {
	reloader := &reloader{
		origin: origin, manager: manager, sources: sources, admission: admission, log: log, inForce: cfg,
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tributary_config_last_reload_successful",
			Help: "1 if the configuration file is in force as it was when it was last read, 0 if it was refused.",
		}),
		loadedAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tributary_config_last_reload_success_timestamp_seconds",
			Help: "When the configuration that is in force was read, in seconds since 1970.",
		}),
	}
	reloader.successful.Set(1)
	reloader.loadedAt.SetToCurrentTime()
	reloader.status.Store(&admin.ConfigStatus{File: origin.File, Loaded: time.Now(), Warnings: warnings(cfg)})
	metrics.MustRegister(reloader.successful, reloader.loadedAt)
	return reloader
}

// run reloads at each SIGHUP until ctx ends.
func (r *reloader) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.origin.Hangups:
			_, _ = r.Reload(ctx, "SIGHUP") // it is logged
		}
	}
}

// Reload reads the file again and returns the changes as text.
func (r *reloader) Reload(_ context.Context, trigger string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reload(trigger)
}

// Status implements admin.Config.
func (r *reloader) Status() admin.ConfigStatus {
	s := *r.status.Load()
	s.Pending = r.sources.pending()
	return s
}

// reload puts the file in force, and returns the changes in lines of text. The caller holds mu.
func (r *reloader) reload(trigger string) (string, error) {
	if r.origin.Load == nil {
		return "", ErrNoFile
	}
	r.manager.Reloading()
	defer r.manager.Ready()
	next, err := r.origin.Load()
	if err != nil {
		return "", r.refuse(trigger, err)
	}
	authentication, err := authenticator(next, r.log)
	if err != nil {
		return "", r.refuse(trigger, err)
	}
	undo := changeRules(r.admission, next.Rules())
	applied, err := r.sources.configure(next.ConfigSources)
	if err != nil {
		undo()
		return "", r.refuse(trigger, err)
	}
	now := time.Now()
	warn(next, r.log)
	setCredentials(r.admission, next, authentication)
	for _, setting := range changedSettings(r.inForce, next) {
		if setting.key != "configSources" && slices.Contains(reloadable, setting.key) {
			applied.settings = append(applied.settings, setting.key)
		}
	}
	file := r.origin.File
	status := admin.ConfigStatus{
		File: file, Loaded: now, Restart: needRestart(r.inForce, next), Warnings: warnings(next),
	}
	inForce := *r.inForce
	inForce.ConfigSources = next.ConfigSources
	inForce.Access = next.Access
	inForce.Identity = next.Identity
	r.inForce = &inForce
	r.status.Store(&status)
	r.successful.Set(1)
	r.loadedAt.SetToCurrentTime()
	r.noteEvent(history.Reloaded, "", "by "+trigger+": "+strings.Join(applied.lines(file)[1:], "; "))
	r.log.Info("configuration reloaded", append([]any{"file", file, "by", trigger}, applied.attributes()...)...)
	if len(status.Restart) > 0 {
		r.log.Warn("configuration is in force in part, the rest needs a restart", "file", file, "settings", status.Restart)
	}
	return strings.Join(append(applied.lines(file), status.Restart...), "\n"), nil
}

// refuse reports that a reload failed, and returns the error for its caller.
func (r *reloader) refuse(trigger string, err error) error {
	status, now := r.Status(), time.Now()
	status.Failed = &now
	status.Error = err.Error()
	r.status.Store(&status)
	r.successful.Set(0)
	r.noteEvent(history.ReloadRefused, "", "by "+trigger+": "+err.Error())
	r.log.Error("configuration refused, the one in force stays", "file", r.origin.File, "by", trigger,
		"loaded", status.Loaded, "err", err)
	return fmt.Errorf("%s is refused, and what was read at %s stays in force:\n%w", r.origin.File,
		status.Loaded.UTC().Format(time.RFC3339), err)
}

// warn logs the warnings of a configuration that came into force.
func warn(cfg *config.Config, log *slog.Logger) {
	for _, w := range cfg.Warnings {
		log.Warn("configuration applied with a warning", "place", w.Place(), "warning", w.Text())
	}
}

// warnings returns the warnings of a configuration for the status.
func warnings(cfg *config.Config) (texts []string) {
	for _, w := range cfg.Warnings {
		texts = append(texts, w.String())
	}
	return texts
}

// reloadable are the settings that a reload can change: the sources, identities and access rules.
var reloadable = []string{"configSources", "identity", "access"}

// needRestart describes the settings that differ and that a reload cannot change.
func needRestart(inForce, next *config.Config) (texts []string) {
	for _, setting := range changedSettings(inForce, next) {
		if !slices.Contains(reloadable, setting.key) {
			texts = append(texts, fmt.Sprintf("%s stays %s until a restart; the file says %s", setting.key, setting.inForce,
				setting.next))
		}
	}
	return texts
}

// changedSetting is a setting that differs between two configurations, with its values as JSON.
type changedSetting struct {
	key           string
	inForce, next []byte
}

func changedSettings(inForce, next *config.Config) (changed []changedSetting) {
	before, after := reflect.ValueOf(*inForce), reflect.ValueOf(*next)
	for i := range before.NumField() {
		key, _, _ := strings.Cut(before.Type().Field(i).Tag.Get("json"), ",")
		if key == "-" { // not a setting
			continue
		}
		previous, errBefore := json.Marshal(before.Field(i).Interface())
		value, errAfter := json.Marshal(after.Field(i).Interface())
		if errBefore != nil || errAfter != nil || !bytes.Equal(previous, value) {
			changed = append(changed, changedSetting{key, previous, value})
		}
	}
	return changed
}
