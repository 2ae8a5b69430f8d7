package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tributary/config"
	"tributary/internal/relay"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/server/verify"
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
	configurationCheck = "configuration"
	sourcesCheck       = "sources"
	rightsCheck        = "rights"
	tlsCheck           = "tls"
	identityCheck      = "identity"
	portsCheck         = "ports"
	stateCheck         = "state"
	istiodCheck        = "istiod"
	keepaliveCheck     = "keepalive"
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
		d.note(configurationCheck, Error, d.NoFile.Error(), "name the configuration with -c, or write one with tributary init")
	case bad:
	case errors.Is(err, fs.ErrPermission):
		d.note(configurationCheck, Error, err.Error(), mayRead)
	case err != nil:
		d.note(configurationCheck, Error, err.Error(), "name the configuration with -c, or write one with tributary init")
	}
	if err == nil || bad {
		if err := d.configuration(ctx, cfg, err); err != nil {
			return err
		}
	}
	if cfg != nil {
		if d.Running != nil {
			d.running = d.Running(ctx, cfg)
		}
		d.certificates(ctx, cfg)
		d.identity(cfg)
		d.ports(ctx, cfg)
		d.stateDirectory(cfg)
	}
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
		check, fix := sourcesCheck, "see tributary validate "+d.File
		switch f.Rule {
		case Configuration:
			check, fix = configurationCheck, "correct it there; tributary schema prints every key"
		case Denied:
			check, fix = rightsCheck, "give the token or user of the source the rights that sources/*/README.md names, and tributary validate "+
				"--connect tells whether they do"
		case Unreadable:
			fix = "see that the address is right, and that it can be reached from this machine"
			if strings.Contains(f.Message, fs.ErrPermission.Error()) {
				fix = mayRead
			}
		}
		if f.Fix != "" {
			fix = "create these:\n" + f.Fix
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
	if !wrong[configurationCheck] {
		d.note(configurationCheck, Fine, d.File+": "+words.Count(len(cfg.ConfigSources), "source", "sources"), "")
	}
	for _, line := range l.Connected {
		d.note(sourcesCheck, Fine, line, "")
	}
	for _, line := range skipped {
		d.note(sourcesCheck, Skipped, line, "")
	}
	if l.Objects > 0 {
		d.note(sourcesCheck, Fine, words.Count(l.Objects, "object in files is", "objects in files are")+" right", "")
	}
	return nil
}

// adviceFor returns the advice for a file that this user may not read, and the other advice for any other error.
func adviceFor(err error, other string) string {
	if errors.Is(err, fs.ErrPermission) {
		return mayRead
	}
	return other
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

type meshConfig struct {
	ConfigSources []struct {
		Address     string `yaml:"address"`
		TLSSettings *struct {
			Mode string `yaml:"mode"`
		} `yaml:"tlsSettings"`
	} `yaml:"configSources"`
}

// istiod looks at what an istiod has to say so that it works with us.
func (d *Doctor) istiod(ctx context.Context, cfg *config.Config) {
	if d.MeshConfig != "" {
		text, err := os.ReadFile(d.MeshConfig)
		if err != nil {
			d.note(istiodCheck, Error, err.Error(), "name a file with istiod's mesh configuration")
		} else {
			d.mesh(cfg, d.MeshConfig, text)
		}
	}
	if d.Istiod != "" && !d.Offline {
		text, err := fetch(ctx, strings.TrimSuffix(d.Istiod, "/")+"/debug/mesh")
		if err != nil {
			d.note(istiodCheck, Error, err.Error(), "give the http://HOST:PORT of its debug pages (8080), and have ENABLE_DEBUG_ON_HTTP on there")
		} else {
			d.mesh(cfg, d.Istiod, text)
		}
	}
	if d.MeshConfig == "" && d.Istiod == "" {
		d.note(istiodCheck, Skipped, "its mesh configuration was not looked at: name it with --istiod or --mesh-config", "")
	}
	d.aliases()
}

// requestTimeout bounds one request to an istiod, and the reading of certificates.
const requestTimeout = 5 * time.Second

// fetch returns a page of an istiod.
func fetch(ctx context.Context, page string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	text, _, err := verify.Get(ctx, client, page)
	return text, err
}

// mesh looks at a mesh configuration, which may be that of a Helm chart.
func (d *Doctor) mesh(cfg *config.Config, from string, text []byte) {
	var file struct {
		meshConfig `yaml:",inline"`
		MeshConfig meshConfig `yaml:"meshConfig"`
		Spec       struct {
			MeshConfig meshConfig `yaml:"meshConfig"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		d.note(istiodCheck, Error, from+": "+err.Error(), "give a mesh configuration in YAML or JSON")
		return
	}
	all := slices.Concat(file.ConfigSources, file.MeshConfig.ConfigSources, file.Spec.MeshConfig.ConfigSources)
	ours, kubernetes := false, false
	for _, s := range all {
		kubernetes = kubernetes || strings.HasPrefix(s.Address, "k8s://")
		address, is := strings.CutPrefix(s.Address, "xds://")
		if !is || cfg == nil {
			continue
		}
		plain, secure := portOf(cfg.Listen.XDS), ""
		if l := cfg.Listen.XDSTLS; l != nil {
			secure = portOf(l.Address)
		}
		if d.Through != nil && address == d.Through.Client.Server { // by way of what is in between
			ours = true
		}
		tls := s.TLSSettings != nil && s.TLSSettings.Mode != "" && s.TLSSettings.Mode != "DISABLE"
		switch port := portOf(address); port {
		case "":
			d.note(istiodCheck, Error, fmt.Sprintf("%s: %s has no port", from, s.Address), "write xds://HOST:PORT")
			ours = true
		case plain, secure:
			ours = true
			if tls != (port == secure) {
				d.note(istiodCheck, Error, fmt.Sprintf("%s: %s with TLS: %t, and that port of ours with TLS: %t", from, s.Address, tls, port == secure),
					"have tlsSettings.mode of the config source as the port is: SIMPLE or MUTUAL with listen.xdsTLS, none with listen.xds")
			}
		}
	}
	if cfg != nil && !ours {
		d.note(istiodCheck, Error, from+": no config source has our port",
			"add - address: xds://HOST:"+portOf(cfg.Listen.XDS)+" to its configSources, before istiod starts; if it comes by way of another "+
				"address, name that with --through")
	}
	switch {
	case kubernetes:
		d.note(istiodCheck, Fine, from+": it reads Kubernetes, too (k8s://)", "")
	case len(all) > 0:
		d.note(istiodCheck, Warning, from+": without a line k8s:// istiod on Kubernetes no longer reads its CRDs",
			"add - address: k8s:// to its configSources, unless it runs outside of Kubernetes")
	}
}

func portOf(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return port
}

// aliases looks whether clients that are connected ask for kinds in versions of an API that we serve.
func (d *Doctor) aliases() {
	if d.running == nil {
		return
	}
	strangers := 0
	for _, url := range slices.Sorted(maps.Keys(d.running.Asked)) {
		parts := strings.Split(url, "/")
		if len(parts) != 3 || !strings.HasSuffix(parts[0], ".istio.io") {
			continue // of Envoy, or a question of istioctl
		}
		schema, known := resource.SchemaOf(resource.Kind(parts[2]))
		if known && schema.Group == parts[0] && slices.Contains(schema.Versions, parts[1]) {
			continue
		}
		strangers++
		d.note(istiodCheck, Warning, fmt.Sprintf("%s asks for %s, which is not served", strings.Join(d.running.Asked[url], ", "), url),
			"take a version of tributary that knows it, if any object is of that")
	}
	if strangers == 0 {
		d.note(istiodCheck, Fine, words.Count(d.running.Clients, "client is connected, and asks", "clients are connected, and ask")+
			" for versions of APIs that are served", "")
	}
}
