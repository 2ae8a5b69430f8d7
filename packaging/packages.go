package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the formats that Get knows
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packages writes a .deb and an .rpm.
func (r *release) packages(t target, program string, extras []file) error {
	for _, format := range []string{"deb", "rpm"} {
		p, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		info := nfpm.WithDefaults(r.info(t, program, extras))
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		var out bytes.Buffer
		if err := p.Package(info, &out); err != nil {
			return err
		}
		if err := os.WriteFile(r.name(t, "."+format), out.Bytes(), 0o644); err != nil { //nolint:gosec // it is to be handed out
			return err
		}
	}
	return nil
}

// packageVersion is the version as both formats take it: with a digit first, and without a dash. A version without a
// tag is older than each with one, and newer than an older one without.
func (r *release) packageVersion() string {
	version := strings.ReplaceAll(r.plainVersion(), "-", "+")
	if version[0] < '0' || version[0] > '9' || !strings.Contains(version, ".") {
		version = "0~" + r.date.Format("20060102150405") + "+" + version
	}
	return version
}

func (r *release) info(t target, program string, extras []file) *nfpm.Info {
	ownFile := func(name string) string { return filepath.Join(r.source, "packaging", "files", name) }
	contents := files.Contents{
		r.content(file{from: program, to: "usr/bin/tributary", mode: 0o755}),
		{Destination: "/etc/tributary/rules", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: r.date}},
	}
	for _, f := range extras {
		contents = append(contents, r.content(f))
	}
	return &nfpm.Info{
		Name: "tributary", Arch: t.arch, Platform: "linux", Version: r.packageVersion(), VersionSchema: "none", Release: "1",
		Section: "net", Priority: "optional", Maintainer: "The tributary project", License: "Apache-2.0", MTime: r.date,
		Description: "relay of mesh configuration\nReads mesh configuration and service registrations from files, Consul, Dubbo, Nacos, Eureka " +
			"and xDS\n" +
			"servers, and serves them to istiod, Envoy and gRPC clients.",
		Overridables: nfpm.Overridables{
			Contents: contents, Recommends: []string{"ca-certificates"},
			Scripts: nfpm.Scripts{PostInstall: ownFile("postinstall.sh"), PreRemove: ownFile("preremove.sh"), PostRemove: ownFile("postremove.sh")},
			Deb:     nfpm.Deb{Compression: "gzip"}, RPM: nfpm.RPM{BuildHost: "localhost", Compression: "zstd"},
		},
	}
}

func (r *release) content(f file) *files.Content {
	c := &files.Content{
		Source: f.from, Destination: "/" + f.to,
		FileInfo: &files.ContentFileInfo{Mode: f.mode, MTime: r.date, Owner: "root", Group: "root"},
	}
	if f.keep {
		c.Type = files.TypeConfigNoReplace
	}
	return c
}
