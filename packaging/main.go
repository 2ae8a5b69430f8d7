// Command packaging makes the files of a release: archives, Debian and RPM packages, a container image, a list of its
// components, and checksums. It needs only Go; two runs on one commit give the same bytes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// release is the version of a release, and its folders.
type release struct {
	source  string    // the root of the project
	out     string    // directory
	version string    // as git describes it, such as v1.2.0-3-gabcdef
	date    time.Time // of everything that has one: that of the commit
}

// target is a platform.
type target struct{ os, arch string }

func (t target) String() string { return t.os + "/" + t.arch }

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	flags := flag.NewFlagSet("packaging", flag.ContinueOnError)
	r := release{}
	flags.StringVar(&r.source, "source", "..", "root of the project")
	flags.StringVar(&r.out, "out", "../dist", "directory to write to, which is emptied before")
	flags.StringVar(&r.version, "version", "", "version (default: the output of git describe)")
	targets := flags.String("targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "platforms")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := r.ofGit(ctx); err != nil {
		return err
	}
	return r.make(ctx, parseTargets(*targets))
}

func parseTargets(list string) (targets []target) {
	for t := range strings.SplitSeq(list, ",") {
		system, arch, _ := strings.Cut(t, "/")
		targets = append(targets, target{system, arch})
	}
	return targets
}

// ofGit sets the missing fields.
func (r *release) ofGit(ctx context.Context) error {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", append([]string{"-C", r.source}, args...)...) //nolint:gosec // of the one who runs it
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	if r.version == "" {
		version, err := git("describe", "--tags", "--always", "--dirty")
		if err != nil {
			return fmt.Errorf("no version: %w; say -version", err)
		}
		r.version = version
	}
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		var err error
		if seconds, err = git("log", "-1", "--format=%ct"); err != nil {
			return fmt.Errorf("no date: %w; set $SOURCE_DATE_EPOCH", err)
		}
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: want seconds, got %q", seconds)
	}
	r.date = time.Unix(n, 0).UTC()
	return nil
}

// make makes everything for targets. Manual pages and completions are those of a program that runs here.
func (r *release) make(ctx context.Context, targets []target) error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // it is to be handed out
		return err
	}
	work, err := os.MkdirTemp("", "tributary-packaging")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work) //nolint:errcheck // of the temporary directory
	extras, err := r.extras(ctx, work)
	if err != nil {
		return err
	}
	var images []platformImage
	for _, t := range targets {
		program := filepath.Join(work, t.os+"-"+t.arch, "tributary")
		if err := r.build(ctx, t, program); err != nil {
			return err
		}
		if err := r.archive(t, program, extras); err != nil {
			return fmt.Errorf("archive for %s: %w", t, err)
		}
		if err := r.sbom(t, program); err != nil {
			return fmt.Errorf("SBOM for %s: %w", t, err)
		}
		if t.os != "linux" {
			continue
		}
		if err := r.packages(t, program, extras); err != nil {
			return fmt.Errorf("packages for %s: %w", t, err)
		}
		image, err := r.image(t, program)
		if err != nil {
			return fmt.Errorf("image for %s: %w", t, err)
		}
		images = append(images, image)
	}
	if err := r.index(images, work); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return r.checksums()
}

// build builds the program for t.
func (r *release) build(ctx context.Context, t target, program string) error {
	absolute, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	//nolint:gosec // of the one who runs it
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.version="+r.version,
		"-o", absolute, "./cmd/tributary")
	cmd.Dir, cmd.Stderr = r.source, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOOS="+t.os, "GOARCH="+t.arch)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build for %s: %w", t, err)
	}
	return nil
}

// file is one of those that a package or an archive has.
type file struct {
	from string // here
	to   string // there, without a slash at the front
	mode os.FileMode
	keep bool // a file that keeps the operator's changes
}

// extras are the files that accompany the program: manual pages and completions, which the program writes itself, and
// those of the service.
func (r *release) extras(ctx context.Context, work string) ([]file, error) {
	program := filepath.Join(work, "here", "tributary")
	if err := r.build(ctx, target{os.Getenv("GOHOSTOS"), os.Getenv("GOHOSTARCH")}, program); err != nil {
		return nil, err
	}
	var files []file
	pages := filepath.Join(work, "man")
	man := exec.CommandContext(ctx, program, "docs", "man", pages) //nolint:gosec // just built
	man.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.date.Unix(), 10))
	if out, err := man.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("manual pages: %w: %s", err, out)
	}
	names, err := os.ReadDir(pages)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		files = append(files, file{from: filepath.Join(pages, name.Name()), to: "usr/share/man/man1/" + name.Name(), mode: 0o644})
	}
	for shell, to := range map[string]string{
		"bash": "usr/share/bash-completion/completions/tributary", "zsh": "usr/share/zsh/vendor-completions/_tributary",
		"fish": "usr/share/fish/vendor_completions.d/tributary.fish",
	} {
		script, err := exec.CommandContext(ctx, program, "completion", shell).Output() //nolint:gosec // just built
		if err != nil {
			return nil, fmt.Errorf("completion for %s: %w", shell, err)
		}
		from := filepath.Join(work, "completion."+shell)
		if err := os.WriteFile(from, script, 0o600); err != nil {
			return nil, err
		}
		files = append(files, file{from: from, to: to, mode: 0o644})
	}
	pagesOf, err := r.docs()
	if err != nil {
		return nil, err
	}
	ownFile := func(name string) string { return filepath.Join(r.source, "packaging", "files", name) }
	return append(append(files, pagesOf...),
		file{from: ownFile("tributary.service"), to: "usr/lib/systemd/system/tributary.service", mode: 0o644},
		file{from: ownFile("tributary.socket"), to: "usr/lib/systemd/system/tributary.socket", mode: 0o644},
		file{from: ownFile("tributary.yaml"), to: "etc/tributary/tributary.yaml", mode: 0o644, keep: true},
		file{from: filepath.Join(r.source, "LICENSE"), to: "usr/share/doc/tributary/copyright", mode: 0o644},
	), nil
}

// docs are the targets of the README's links, at the same places beside it: pages, the schema, rules for alerts and a
// dashboard.
func (r *release) docs() (files []file, err error) {
	for _, pattern := range []string{
		"docs/*.md", "docs/*.json", "docs/*.png", "docs/*/*.md", "docs/*/*.json", "docs/*/*.yaml", "docs/*/*.svg", "sources/*/README.md",
		"bench/README.md", "*.md", "LICENSE",
	} {
		matches, err := filepath.Glob(filepath.Join(r.source, pattern))
		if err != nil {
			return nil, err
		}
		for _, from := range matches {
			to, err := filepath.Rel(r.source, from)
			if err != nil {
				return nil, err
			}
			files = append(files, file{from: from, to: "usr/share/doc/tributary/" + filepath.ToSlash(to), mode: 0o644})
		}
	}
	return files, nil
}
