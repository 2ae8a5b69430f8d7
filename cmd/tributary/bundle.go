package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/config"
)

const logTail = 4 << 20

// bundledPages are the pages of the admin server that are packed: none has the content of objects.
var bundledPages = []struct{ name, path string }{
	{"status.json", "/debug/status"},
	{"sources.json", "/debug/sources"},
	{"clients.json", "/debug/clients"},
	{"guard.json", "/debug/guard"},
	{"quarantine.json", "/debug/quarantine"},
	{"rejected.json", "/debug/rejected"},
	{"conflicts.json", "/debug/conflicts"},
	{"competing.json", "/debug/competing"},
	{"verify.json", "/debug/verify"},
	{"history.json", "/debug/history?limit=1000"},
	{"metrics.txt", "/metrics"},
	{"goroutines.txt", "/debug/pprof/goroutine?debug=2"},
}

func newBundle() *cobra.Command {
	var flags adminFlags
	var log, out string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Pack what a report of a fault needs, without secrets",
		Long: `Bundle writes an archive with the versions, the configuration, what doctor finds without asking anybody over the
network, and of the server that runs its status, sources, clients, holds, findings, metrics, goroutines and what changed last;
with --log also the end of its log. It has names and addresses, and no contents of objects. Passwords, tokens and keys that the
configuration has, or that are in files which it names, are taken out of all of it, as are its comments. What cannot be had is
named in errors.txt.`,
		Example: `  tributary bundle
  tributary bundle -c /etc/tributary/tributary.yaml --log /var/log/tributary.log --file report.tar.gz
  journalctl -u tributary -n 20000 > log && tributary bundle --log log`,
		Args: cobra.NoArgs,
		RunE: asks(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			now := time.Now().UTC()
			name := "tributary-" + now.Format("20060102T150405Z")
			if out == "" {
				out = name + ".tar.gz"
			}
			p := packing{}
			p.try("version", p.program())
			p.try("configuration", p.configuration(ctx, flags.config))
			silent := p.server(ctx, &flags)
			if log != "" {
				p.try("log", p.log(log))
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if len(p.errors) > 0 {
				p.add("errors.txt", []byte(strings.Join(p.errors, "\n")+"\n"))
			}
			var archive bytes.Buffer
			if err := check.WriteBundle(&archive, name, p.files, &p.secrets, now); err != nil {
				return err
			}
			f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			_, err = f.Write(archive.Bytes())
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
			for _, text := range p.errors {
				cmd.PrintErrf("warning: %s\n", p.secrets.Hide([]byte(text)))
			}
			if _, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is written: look into it before you give it away\n", out); err != nil || silent == nil {
				return err
			}
			return fmt.Errorf("%s has nothing of the server: %w", out, silent)
		}),
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&log, "log", "", "file with the log of the server")
	cmd.Flags().StringVar(&out, "file", "", "archive to write; one that is there is left as it is (default: tributary-TIME.tar.gz)")
	return cmd
}

type packing struct {
	files   []check.BundleFile
	errors  []string
	secrets check.Secrets
}

func (p *packing) add(name string, text []byte) {
	p.files = append(p.files, check.BundleFile{Name: name, Text: text})
}

// try notes the error of packing something.
func (p *packing) try(what string, err error) {
	if err != nil {
		p.errors = append(p.errors, what+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

func (p *packing) program() error {
	var b bytes.Buffer
	err := printJSON(&b, thisBuild())
	p.add("version.json", b.Bytes())
	return err
}

// configuration packs the file without its secrets, and what doctor says of it.
func (p *packing) configuration(ctx context.Context, file string) (err error) {
	if file == "" {
		if file, err = config.Find(config.DefaultPaths()); err != nil {
			return err
		}
	}
	files, err := config.Files(file)
	if err != nil {
		return err
	}
	for _, one := range files {
		name := "tributary.yaml"
		if one != file {
			name = "tributary.yaml.d/" + filepath.Base(one)
		}
		text, err := os.ReadFile(one)
		if err == nil {
			text, err = p.secrets.Configuration(text, filepath.Dir(one))
		}
		if err != nil {
			return err
		}
		p.add(name, text)
	}
	d := check.Doctor{File: file, Offline: true, Running: func(ctx context.Context, cfg *config.Config) *check.Running {
		return running(ctx, cfg, &secureFlags{})
	}}
	p.try("doctor", d.Look(ctx))
	var b bytes.Buffer
	err = check.WriteResults(&b, d.Findings)
	p.add("doctor.txt", b.Bytes())
	return err
}

// server packs the pages of the admin server. The error says why there is none of them.
func (p *packing) server(ctx context.Context, flags *adminFlags) (silent error) {
	server, before := flags.client(), len(p.files)
	for _, page := range bundledPages {
		text, err := server.Page(ctx, page.path)
		if err != nil {
			p.try(page.path, err)
			silent = err
			continue
		}
		p.add(page.name, text)
	}
	if len(p.files) > before {
		return nil
	}
	return silent
}

func (p *packing) log(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := check.Tail(f, logTail)
	if err == nil {
		p.add("log.txt", check.HideInLog(text))
	}
	return err
}
