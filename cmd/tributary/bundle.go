package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tributary/cmd/internal/check"
	"tributary/config"
)

func newBundle() *cobra.Command {
	var flags adminFlags
	var log, archivePath string
	command := &cobra.Command{
		Use:   "bundle",
		Short: "Pack the files for a fault report, without secrets",
		Long: `Bundle writes an archive with the versions, the configuration, the findings of doctor without the network,
and of the running server its status, sources, clients, holds, findings, metrics, goroutines and last changes; with
--log also the end of its log. It has names and addresses, and no contents of objects. Passwords, tokens and keys of
the configuration, or of files that it names, are removed, as are its comments. Missing parts are listed in
errors.txt.`,
		Example: `  tributary bundle
  tributary bundle -c /etc/tributary/tributary.yaml --log /var/log/tributary.log --file report.tar.gz
  journalctl -u tributary -n 20000 > log && tributary bundle --log log`,
		Args: cobra.NoArgs,
		RunE: runInterruptible(func(ctx context.Context, command *cobra.Command, _ []string) error {
			now := time.Now().UTC()
			name := "tributary-" + now.Format("20060102T150405Z")
			if archivePath == "" {
				archivePath = name + ".tar.gz"
			}
			bundle := bundleContents{}
			bundle.try("version", bundle.program())
			bundle.try("configuration", bundle.configuration(ctx, flags.config))
			missing := bundle.server(ctx, &flags)
			if log != "" {
				bundle.try("log", bundle.log(log))
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if len(bundle.errors) > 0 {
				bundle.add("errors.txt", []byte(strings.Join(bundle.errors, "\n")+"\n"))
			}
			var archive bytes.Buffer
			if err := check.WriteBundle(&archive, name, bundle.files, &bundle.secrets, now); err != nil {
				return err
			}
			if err := writeNew(archivePath, archive.Bytes(), 0o600); err != nil {
				return err
			}
			for _, text := range bundle.errors {
				command.PrintErrf("warning: %s\n", bundle.secrets.Hide([]byte(text)))
			}
			if _, err := fmt.Fprintf(command.OutOrStdout(),
				"%s is written: look into it before you give it away\n", archivePath); err != nil || missing == nil {
				return err
			}
			// The archive is written, so even an address that cannot be used is no wrong usage.
			reason := explainConnection(command, missing, "").Error()
			return &failure{exitFailed, fmt.Errorf("%s lacks the data of the server: %s", archivePath, reason)}
		}),
	}
	flags.add(command)
	command.Flags().StringVar(&log, "log", "", "file with the log of the server")
	command.Flags().StringVar(&archivePath, "file", "",
		"archive to write; an existing file is not overwritten (default: tributary-TIME.tar.gz)")
	return command
}

const logTail = 4 << 20

// bundledPages are the packed pages of the admin server. None has the content of objects.
var bundledPages = []struct{ name, path string }{
	{"status.json", "/debug/status"},
	{"sources.json", "/debug/sources"},
	{"clients.json", "/debug/clients"},
	{"guard.json", "/debug/guard"},
	{"quarantine.json", "/debug/quarantine"},
	{"rejected.json", "/debug/rejected"},
	{"conflicts.json", "/debug/conflicts"},
	{"competing.json", "/debug/competing"},
	{"history.json", "/debug/history?limit=1000"},
	{"metrics.txt", "/metrics"},
	{"goroutines.txt", "/debug/pprof/goroutine?debug=2"},
}

// bundleContents collects the files of a bundle, and the errors of files that are missing.
type bundleContents struct {
	files   []check.BundleFile
	errors  []string
	secrets check.Secrets
}

// add adds a file.
func (b *bundleContents) add(name string, text []byte) {
	b.files = append(b.files, check.BundleFile{Name: name, Text: text})
}

// try notes the error of a part that is missing.
func (b *bundleContents) try(part string, err error) {
	if err != nil {
		b.errors = append(b.errors, part+": "+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}

// program adds the version of this program.
func (b *bundleContents) program() error {
	var text bytes.Buffer
	err := printJSON(&text, thisBuild())
	b.add("version.json", text.Bytes())
	return err
}

// configuration adds the file without its secrets, and the report of doctor.
func (b *bundleContents) configuration(ctx context.Context, file string) (err error) {
	if file == "" {
		if file, err = config.Find(config.DefaultPaths()); err != nil {
			return err
		}
	}
	files, err := config.Files(file)
	if err != nil {
		return err
	}
	for _, path := range files {
		name := "tributary.yaml"
		if path != file {
			name = "tributary.yaml.d/" + filepath.Base(path)
		}
		text, err := os.ReadFile(path)
		if err == nil {
			text, err = b.secrets.Configuration(text, filepath.Dir(path))
		}
		if err != nil {
			return err
		}
		b.add(name, text)
	}
	doctor := check.Doctor{
		File: file, Offline: true,
		Running: func(ctx context.Context, cfg *config.Config) *check.Running {
			return running(ctx, cfg, &secureFlags{})
		},
	}
	b.try("doctor", doctor.Run(ctx))
	var report bytes.Buffer
	err = check.WriteResults(&report, doctor.Findings)
	b.add("doctor.txt", report.Bytes())
	return err
}

// server adds the pages of the admin server. The error is the reason if it added none.
func (b *bundleContents) server(ctx context.Context, flags *adminFlags) (missing error) {
	server, before := flags.client(), len(b.files)
	for _, page := range bundledPages {
		text, err := server.Page(ctx, page.path)
		if err != nil {
			b.try(page.path, err)
			missing = err
			continue
		}
		b.add(page.name, text)
	}
	if len(b.files) > before {
		return nil
	}
	return missing
}

// log adds the end of a log without secrets.
func (b *bundleContents) log(path string) error {
	text, err := check.Tail(path, logTail)
	if err == nil {
		b.add("log.txt", check.HideInLog(text))
	}
	return err
}
