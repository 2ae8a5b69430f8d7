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
	"tributary/server/identity"
)

// reloader puts the configuration file in force at each SIGHUP or request over HTTP. A file with an error changes
// nothing. It implements admin.Config.
type reloader struct {
	// read-only
	Origin
	manager            *process.Manager
	sources            *sourceSet
	admission          *access.Admission
	log                *slog.Logger
	successful, loaded prometheus.Gauge
	noteEvent          func(event, source, text string)
	status             atomic.Pointer[admin.ConfigStatus]

	mu      sync.Mutex // held while the configuration is changed
	inForce *config.Config
}

// Origin is the origin of a configuration; zero for the command line.
type Origin struct {
	File string
	Load func() (*config.Config, error) // reads the file again
	// Hangups delivers SIGHUP, which asks for Load. Its owner subscribes before the configuration is first read: SIGHUP
	// ends a process that does not subscribe.
	Hangups <-chan os.Signal
}

// ErrNoFile says that the configuration has no file to reload.
var ErrNoFile = errors.New("the configuration is that of the command line; there is no file to read again")

func newReloader(cfg *config.Config, from Origin, manager *process.Manager, sources *sourceSet,
	admission *access.Admission,
	log *slog.Logger, metrics prometheus.Registerer,
) *reloader {
	reloader := &reloader{
		Origin: from, manager: manager, sources: sources, admission: admission, log: log, inForce: cfg,
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tributary_config_last_reload_successful",
			Help: "1 if the configuration file is in force as it was when it was last read, 0 if it was refused.",
		}),
		loaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tributary_config_last_reload_success_timestamp_seconds",
			Help: "When the configuration that is in force was read, in seconds since 1970.",
		}),
	}
	reloader.successful.Set(1)
	reloader.loaded.SetToCurrentTime()
	reloader.status.Store(&admin.ConfigStatus{File: from.File, Loaded: time.Now(), Warnings: warnings(cfg)})
	metrics.MustRegister(reloader.successful, reloader.loaded)
	return reloader
}

// run reloads at each SIGHUP until ctx ends.
func (r *reloader) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.Hangups:
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
	if r.Load == nil {
		return "", ErrNoFile
	}
	r.manager.Reloading()
	defer r.manager.Ready()
	next, err := r.Load()
	var applied changes
	var proofs *identity.Authenticator
	if err == nil {
		proofs, err = authenticator(next, r.log)
	}
	if err == nil {
		undo := changeRules(r.admission, next.Rules())
		if applied, err = r.sources.configure(next.ConfigSources); err != nil {
			undo()
		}
	}
	status, now := r.Status(), time.Now()
	if err != nil {
		status.Failed, status.Error = &now, err.Error()
		r.status.Store(&status)
		r.successful.Set(0)
		r.noteEvent(history.ReloadRefused, "", "by "+trigger+": "+err.Error())
		r.log.Error("configuration refused, the one in force stays", "file", r.File, "by", trigger, "loaded", status.Loaded,
			"err", err)
		return "", fmt.Errorf("%s is refused, and what was read at %s stays in force:\n%w", r.File,
			status.Loaded.UTC().Format(time.RFC3339), err)
	}
	warn(next, r.log)
	setCredentials(r.admission, next, proofs)
	applied.settings = differing(r.inForce, next,
		func(key string) bool { return key != "configSources" && slices.Contains(reloadable, key) },
		func(key string, _, _ []byte) string { return key })
	status = admin.ConfigStatus{File: r.File, Loaded: now, Restart: needRestart(r.inForce, next), Warnings: warnings(next)}
	inForce := *r.inForce
	inForce.ConfigSources, inForce.Access, inForce.Identity = next.ConfigSources, next.Access, next.Identity
	r.inForce = &inForce
	r.status.Store(&status)
	r.successful.Set(1)
	r.loaded.SetToCurrentTime()
	r.noteEvent(history.Reloaded, "", "by "+trigger+": "+strings.Join(applied.lines(r.File)[1:], "; "))
	r.log.Info("configuration reloaded", append([]any{"file", r.File, "by", trigger}, applied.attributes()...)...)
	if len(status.Restart) > 0 {
		r.log.Warn("configuration is in force in part, the rest needs a restart", "file", r.File, "settings", status.Restart)
	}
	return strings.Join(append(applied.lines(r.File), status.Restart...), "\n"), nil
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

// needRestart names the settings that differ and that a reload cannot change.
func needRestart(from, to *config.Config) []string {
	return differing(from, to, func(key string) bool { return !slices.Contains(reloadable, key) },
		func(key string, old, now []byte) string {
			return fmt.Sprintf("%s stays %s until a restart; the file says %s", key, old, now)
		})
}

// differing formats each setting that passes filter and differs; format gets both values as JSON.
func differing(
	from, to *config.Config, filter func(key string) bool, format func(key string, old, value []byte) string,
) (texts []string) {
	first, second := reflect.ValueOf(*from), reflect.ValueOf(*to)
	for i := range first.NumField() {
		key, _, _ := strings.Cut(first.Type().Field(i).Tag.Get("json"), ",")
		if key == "-" || !filter(key) { // "-" marks a field that is not a setting
			continue
		}
		old, err := json.Marshal(first.Field(i).Interface())
		value, err2 := json.Marshal(second.Field(i).Interface())
		if err != nil || err2 != nil || !bytes.Equal(old, value) {
			texts = append(texts, format(key, old, value))
		}
	}
	return texts
}
