package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"

	"tributary/config"
	"tributary/internal/relay"
	"tributary/internal/words"
)

// Result is what came of one look.
type Result struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	Fix      string   `json:"fix,omitempty"` // what to do about it
}

// Doctor looks.
type Doctor struct {
	File    string // of the configuration
	NoFile  error  // why there is none
	Offline bool   // registries and istiods are not asked
	// Istiod is the URL of the debug pages of an istiod that is to read from us; empty for none. MeshConfig is a file with its mesh
	// configuration.
	Istiod, MeshConfig string
	// Running is what a server that runs with the configuration says of itself; nil if none does.
	Running func(context.Context, *config.Config) *Running
	// Through is where to hold an idle stream; nil for nowhere.
	Through *Through

	Findings []Result
	running  *Running
}

// Running is a server that runs.
type Running struct {
	Version string
	Clients int
	Asked   map[string][]string // by type URL, the nodes that ask for it
}

func (d *Doctor) note(check string, severity Severity, message, fix string) {
	d.Findings = append(d.Findings, Result{check, severity, strings.ReplaceAll(strings.TrimSpace(message), "\n", "; "), fix})
}

// The checks.
const (
	ofConfiguration = "configuration"
	ofSources       = "sources"
	ofRights        = "rights"
	ofDNS           = "dns"
	ofTLS           = "tls"
	ofIdentity      = "identity"
	ofClock         = "clock"
	ofPorts         = "ports"
	ofFiles         = "open files"
	ofWatches       = "inotify"
	ofState         = "state"
	ofIstiod        = "istiod"
	ofKeepalive     = "keepalive"
)

// mayRead is what to do about a file that this user may not read.
const mayRead = "give the user who runs tributary the right to read it, and to enter the directories above it, or run doctor as that one"

// Look looks at everything. The error is that it could not.
func (d *Doctor) Look(ctx context.Context) error {
	var cfg *config.Config
	err := d.NoFile
	if err == nil {
		cfg, err = config.Load(d.File)
	}
	_, bad := errors.AsType[*config.Error](err)
	switch {
	case d.NoFile != nil:
		d.note(ofConfiguration, Error, d.NoFile.Error(), "name the configuration with -c, or write one with tributary init")
	case bad:
	case errors.Is(err, fs.ErrPermission):
		d.note(ofConfiguration, Error, err.Error(), mayRead)
	case err != nil:
		d.note(ofConfiguration, Error, err.Error(), "name the configuration with -c, or write one with tributary init")
	}
	if err == nil || bad {
		if err := d.configuration(ctx, cfg, err); err != nil {
			return err
		}
	}
	d.clock()
	if cfg != nil {
		if d.Running != nil {
			d.running = d.Running(ctx, cfg)
		}
		d.names(ctx, cfg)
		d.certificates(ctx, cfg)
		d.identity(cfg)
		d.ports(ctx, cfg)
		d.watches(cfg)
		d.state(cfg)
	}
	d.descriptors()
	d.istiod(ctx, cfg)
	d.keepalive(ctx, cfg)
	return ctx.Err()
}

// configuration looks at the configuration, or at the error of loading it, and its sources, as validate --connect does.
func (d *Doctor) configuration(ctx context.Context, cfg *config.Config, err error) error {
	var l Linter
	if !d.Offline {
		l.Connect = relay.Reader
	}
	skipped, err := l.Config(ctx, d.File, cfg, err, false)
	if err == nil {
		err = l.Compete(ctx)
	}
	if err != nil {
		return err
	}
	wrong := map[string]bool{}
	for _, f := range l.Findings {
		check, fix := ofSources, "see tributary validate "+d.File
		switch f.Rule {
		case Configuration:
			check, fix = ofConfiguration, "correct it there; docs/config.schema.json has every key"
		case Denied:
			check, fix = ofRights, "give the token or user of the source the rights that sources/*/README.md names, and tributary validate "+
				"--connect tells whether they do"
		case Unreadable:
			fix = "see that the address is right, and that it can be reached from this machine"
			if strings.Contains(f.Message, fs.ErrPermission.Error()) {
				fix = mayRead
			}
		}
		severity := Warning
		if f.Severity == Error {
			severity = Error
		} else if f.Severity == Note {
			continue
		}
		wrong[check] = wrong[check] || severity == Error
		d.note(check, severity, f.String(), fix)
	}
	if cfg == nil {
		return nil // what is wrong was noted above
	}
	if !wrong[ofConfiguration] {
		d.note(ofConfiguration, Fine, d.File+": "+words.Count(len(cfg.ConfigSources), "source", "sources"), "")
	}
	for _, line := range l.Connected {
		d.note(ofSources, Fine, line, "")
	}
	for _, line := range skipped {
		d.note(ofSources, Skipped, line, "")
	}
	if l.Objects > 0 {
		d.note(ofSources, Fine, words.Count(l.Objects, "object in files is", "objects in files are")+" right", "")
	}
	return nil
}

// certificates looks at those of our own ports.
func (d *Doctor) certificates(ctx context.Context, cfg *config.Config) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all, err := relay.Certificates(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		d.note(ofTLS, Error, err.Error(), fixOf(err, "give listen.xdsTLS and listen.adminTLS a certificate in PEM that can be read, and its key"))
		return
	}
	for _, c := range all {
		d.certificate(c)
	}
	for _, s := range cfg.ConfigSources {
		if err := config.CheckTLSFiles(s.Settings); err != nil {
			d.note(ofTLS, Error, fmt.Sprintf("source %s: tlsSettings.%v", s.Name, err), fixOf(err, "correct the files that tlsSettings names"))
		}
	}
	if len(all) == 0 {
		d.note(ofTLS, Fine, "no port of ours has TLS", "")
	}
}

// identity looks at the files by which clients prove who they are.
func (d *Doctor) identity(cfg *config.Config) {
	switch _, err := relay.Proofs(cfg); {
	case err != nil:
		d.note(ofIdentity, Error, err.Error(), fixOf(err, "correct what identity names: identity.tokens is a file that tributary token new "+
			"writes, identity.jwt[].jwks one with keys as JSON"))
	case cfg.Identity.Settings() != nil:
		d.note(ofIdentity, Fine, "the files of tokens and keys are right", "")
	}
}

// fixOf is what to do about a file that cannot be read, or fix.
func fixOf(err error, fix string) string {
	if errors.Is(err, fs.ErrPermission) {
		return mayRead
	}
	return fix
}

// WriteResults writes the findings for people.
func WriteResults(w io.Writer, all []Result) error {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%-8s %-14s %s\n", f.Severity, f.Check, f.Message)
		if f.Fix != "" {
			fmt.Fprintf(&b, "%-8s %-14s to do: %s\n", "", "", f.Fix)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
