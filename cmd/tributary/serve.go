package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"tributary/config"
	"tributary/internal/process"
	"tributary/internal/relay"
)

type serveFlags struct {
	file    string
	sources []string
	xds     string
	admin   string
	state   string
	log     logFlags
}

func newServe() *cobra.Command {
	var flags serveFlags
	command := &cobra.Command{
		Use:   "serve [-c FILE | --config-source ADDRESS ...]",
		Short: "Serve the configuration of all sources over xDS",
		Long: `Serve reads the sources that the configuration file names, and serves their objects until SIGTERM or SIGINT.
A second signal ends it at once.

SIGHUP, or a POST to /-/reload of the admin server, reads the configuration file again. Sources are added, changed and
removed as it says, without disturbing the others or the clients. An invalid file has no effect, and the log names the
error.`,
		Example: `  tributary serve -c /etc/tributary/tributary.yaml
  tributary serve --config-source fs:///etc/istio/rules --listen 0.0.0.0:16010`,
		Args: cobra.NoArgs,
		RunE: runCommand(func(command *cobra.Command, _ []string) error {
			signal.Ignore(syscall.SIGPIPE) // serve goes on when the reader of its log ends
			hangups, ignore := flags.hangups()
			defer ignore()
			cfg, err := flags.config()
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(command.Context())
			defer stop()
			log := flags.log.logger(command.ErrOrStderr())
			limitMemory(log)
			sockets, err := process.ManagerSockets()
			if err != nil {
				return err
			}
			program, err := relay.Open(ctx, cfg, relay.Options{
				Version: thisBuild().Version, Origin: flags.origin(hangups), Log: log, Level: &flags.log.level,
				Manager: process.ManagerFromEnvironment(log), Sockets: sockets,
			})
			if _, bad := errors.AsType[*relay.ConfigError](err); bad {
				return &failure{exitConfig, err}
			}
			if err != nil {
				return err
			}
			return program.Run(ctx)
		}),
	}
	flagSet := command.Flags()
	addConfig(command, &flags.file, "")
	flagSet.StringArrayVar(&flags.sources, "config-source", nil, "serve the source at this address, such as fs:///dir, "+
		"without a file; may be repeated, the first takes precedence")
	flagSet.StringVar(&flags.xds, "listen", "", "host:port of the xDS server, instead of the file's listen.xds")
	flagSet.StringVar(&flags.admin, "admin", "", "host:port of the admin server, instead of the file's listen.admin")
	flagSet.StringVar(&flags.state, "state-dir", "",
		"directory for state that must outlive a restart, instead of the file's stateDir; off for none")
	command.MarkFlagsMutuallyExclusive("config", "config-source")
	flags.log.add(command)
	return command
}

func (f *serveFlags) config() (*config.Config, error) {
	cfg, err := f.base()
	if err == nil {
		for _, override := range []struct {
			key, flag string
			value     *string
		}{
			{"listen.xds", f.xds, &cfg.Listen.XDS},
			{"listen.admin", f.admin, &cfg.Listen.Admin},
			{"stateDir", f.state, &cfg.StateDir},
		} {
			if override.flag != "" {
				*override.value = override.flag
				delete(cfg.Places, override.key)
			}
		}
		if f.xds != "" || f.admin != "" || f.state != "" {
			cfg, err = config.New("command line", *cfg)
		}
	}
	if err != nil {
		return nil, &failure{exitConfig, err}
	}
	return cfg, nil
}

// hangups returns the SIGHUPs of this process, until ignore is called. Without a file SIGHUP keeps its meaning, which
// is to end it.
func (f *serveFlags) hangups() (hangups <-chan os.Signal, ignore func()) {
	if len(f.sources) > 0 {
		return nil, func() {}
	}
	signals := make(chan os.Signal, 1) // one SIGHUP during a reload stands for all
	signal.Notify(signals, syscall.SIGHUP)
	return signals, func() { signal.Stop(signals) }
}

// origin returns the place of the configuration, for reloads.
func (f *serveFlags) origin(hangups <-chan os.Signal) relay.Origin {
	if len(f.sources) > 0 {
		return relay.Origin{}
	}
	return relay.Origin{File: f.file, Load: f.config, Hangups: hangups}
}

// base reads the configuration of the file or of --config-source. Reloads read the file that the first call chose.
func (f *serveFlags) base() (*config.Config, error) {
	if len(f.sources) > 0 {
		cfg := config.Config{}
		for _, address := range f.sources {
			cfg.ConfigSources = append(cfg.ConfigSources, config.Source{Address: address})
		}
		return config.New("command line", cfg)
	}
	if f.file == "" {
		path, err := config.Find(config.DefaultPaths())
		if err != nil {
			return nil, fmt.Errorf("%w; name one with -c, or a source with --config-source", err)
		}
		f.file = path
	}
	if file, err := filepath.Abs(f.file); err == nil { // messages are read elsewhere
		f.file = file
	}
	return config.Load(f.file)
}
