package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"tributary/config"
	"tributary/internal/process"
	"tributary/internal/relay"
	"tributary/server/transport"
)

// checkCertificates checks the certificates of the listeners, and the files that tlsSettings of sources names.
func (d *Doctor) checkCertificates(ctx context.Context, cfg *config.Config) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	statuses, err := relay.Certificates(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		d.note(tlsCheck, Error, err.Error(),
			adviceFor(err, "give listen.xdsTLS and listen.adminTLS a certificate in PEM that can be read, and its key"))
		return
	}
	for _, status := range statuses {
		d.certificate(status)
	}
	for _, source := range cfg.ConfigSources {
		if err := config.CheckTLSFiles(source.Settings); err != nil {
			d.note(tlsCheck, Error, fmt.Sprintf("source %s: tlsSettings.%v", source.Name, err),
				adviceFor(err, "correct the files that tlsSettings names"))
		}
	}
	if len(statuses) == 0 {
		d.note(tlsCheck, Fine, "no listener has TLS", "")
	}
}

func (d *Doctor) certificate(status transport.Status) {
	state := "is valid until"
	if status.Expired {
		state = "expired at"
	}
	message := fmt.Sprintf("%s: %s of %s %s %s", status.Listener, status.File, status.Subject, state,
		status.NotAfter.UTC().Format(time.RFC3339))
	severity, advice := Fine, ""
	if status.Expired || status.Soon {
		severity, advice = Warning, "replace the file; a running server loads the new certificate"
	}
	if status.Expired {
		severity = Error
	}
	d.note(tlsCheck, severity, message, advice)
}

// checkIdentity checks the files of tokens and keys that identity names.
func (d *Doctor) checkIdentity(cfg *config.Config) {
	switch _, err := relay.CheckTokens(cfg); {
	case err != nil:
		d.note(identityCheck, Error, err.Error(), adviceFor(err, "correct the files in identity: identity.tokens is a "+
			"file that tributary token new writes, identity.jwt[].jwks a file with keys as JSON"))
	case cfg.Identity.Settings() != nil:
		d.note(identityCheck, Fine, "the files of tokens and keys are right", "")
	}
}

// isOtherFile reports whether the file of a running server, if it is known, is another one than file.
func isOtherFile(running, file string) bool {
	if !filepath.IsAbs(running) {
		return false // its working directory is unknown
	}
	theirs, err := os.Stat(running)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	ours, err := os.Stat(file)
	return err == nil && !os.SameFile(theirs, ours)
}

// checkPorts checks that each listener can be opened, or that this server has it open.
func (d *Doctor) checkPorts(ctx context.Context, cfg *config.Config) {
	type listener struct{ key, address string }
	listeners := []listener{{"listen.admin", cfg.Listen.Admin}}
	if cfg.Listen.XDS != config.ListenOff {
		listeners = append(listeners, listener{"listen.xds", cfg.Listen.XDS})
	}
	if secure := cfg.Listen.XDSTLS; secure != nil {
		listeners = append(listeners, listener{"listen.xdsTLS.address", secure.Address})
	}
	for _, port := range listeners {
		if d.running != nil {
			severity, advice := Fine, ""
			message := fmt.Sprintf("%s: a tributary of version %s runs on %s", port.key, d.running.Version, port.address)
			if isOtherFile(d.running.File, d.File) {
				severity, advice = Warning, "end that one before this one starts, or take another port"
				message += " with the configuration " + d.running.File
			}
			d.note(portsCheck, severity, message, advice)
			continue
		}
		opened, err := process.Listen(ctx, port.address)
		if err == nil {
			_ = opened.Close() // no client connected
			d.note(portsCheck, Fine, fmt.Sprintf("%s: %s is free", port.key, port.address), "")
			continue
		}
		advice := "correct the address: it has to be one of this machine"
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			advice = "find the process that has it with ss -ltnp, and end that, or take another port"
		case errors.Is(err, syscall.EACCES):
			advice = "take a port from 1024 on, or give the service CAP_NET_BIND_SERVICE; " +
				"a socket needs a directory that the user may write to"
		}
		d.note(portsCheck, Error, fmt.Sprintf("%s: %v", port.key, err), advice)
	}
}

// checkStateDirectory checks that the state directory can be written. It removes its probe.
func (d *Doctor) checkStateDirectory(cfg *config.Config) {
	path, named, err := relay.StatePath(cfg, relay.Origin{File: d.File})
	switch {
	case err != nil:
		d.note(stateCheck, Error, err.Error(), "name a directory with stateDir")
		return
	case path == "":
		d.note(stateCheck, Warning, "no state is kept across restarts",
			"name a directory with stateDir: after a restart while a registry is down, its services are missing")
		return
	}
	position := ""
	if path == cfg.StateDir {
		position = cfg.At("stateDir") + ": "
	}
	if err := checkWritable(path); err != nil {
		d.note(stateCheck, Error, position+err.Error(), "give it to tributary's user, or name another with stateDir")
		return
	}
	message := path + " can be written"
	if !named {
		message += ", the default of this user without stateDir and $STATE_DIRECTORY"
	}
	d.note(stateCheck, Fine, message, "")
}

// checkWritable reports why a file cannot be made in a directory. For a missing directory it checks the closest parent.
func checkWritable(directory string) error {
	existing := directory
	for {
		info, err := os.Stat(existing)
		if err == nil && !info.IsDir() {
			return fmt.Errorf("%s is not a directory", existing)
		}
		if err == nil {
			break
		}
		parent := filepath.Dir(existing)
		if !errors.Is(err, fs.ErrNotExist) || parent == existing {
			return err
		}
		existing = parent
	}
	probe, err := os.CreateTemp(existing, ".tributary-doctor-*")
	if err != nil {
		return fmt.Errorf("%s: this user cannot write there: %w", directory, err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}
