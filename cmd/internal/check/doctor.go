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

// Result is the result of a check.
type Result struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
	Fix      string   `json:"fix,omitempty"` // advice
}

// Doctor checks a configuration, the machine, and the istiod that reads from the server.
type Doctor struct {
	File    string // of the configuration
	NoFile  error  // the error of the search for a configuration file
	Offline bool   // do not connect to registries and istiods
	// Istiod is the URL of the debug pages of the istiod that reads from tributary; empty for none. MeshConfig is a file
	// with its mesh configuration.
	Istiod, MeshConfig string
	// Running returns the state of the server that runs with the configuration; nil if none runs.
	Running func(context.Context, *config.Config) *Running
	// Through is the address of the idle stream; nil for none.
	Through *Through

	Findings []Result
	running  *Running
}

// Running is the state of a running server.
type Running struct {
	Version     string
	File        string // of its configuration, as it was named; empty if it is unknown
	Clients     int
	NodesByType map[string][]string // the node IDs that subscribe, by type URL
}

func (d *Doctor) note(check string, severity Severity, message, fix string) {
	d.Findings = append(d.Findings, Result{
		check, severity, strings.ReplaceAll(strings.TrimSpace(message), "\n", "; "),
		fix,
	})
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

// mayRead is the advice for a file that this user may not read.
const mayRead = "give the user who runs tributary the right to read it, and to enter the directories above it, " +
	"or run doctor as that one"

// Run makes all checks. Findings are no error.
func (d *Doctor) Run(ctx context.Context) error {
	var cfg *config.Config
	err := d.NoFile
	if err == nil {
		cfg, err = config.Load(d.File)
	}
	_, bad := errors.AsType[*config.Error](err)
	switch {
	case d.NoFile != nil:
		d.note(configurationCheck, Error, d.NoFile.Error(),
			"name the configuration with -c, or write one with tributary init")
	case bad:
	case errors.Is(err, fs.ErrPermission):
		d.note(configurationCheck, Error, err.Error(), mayRead)
	case err != nil:
		d.note(configurationCheck, Error, err.Error(), "name the configuration with -c, or write one with tributary init")
	}
	if err == nil || bad {
		if err := d.checkConfiguration(ctx, cfg, err); err != nil {
			return err
		}
	}
	if cfg != nil {
		if d.Running != nil {
			d.running = d.Running(ctx, cfg)
		}
		d.checkCertificates(ctx, cfg)
		d.checkIdentity(cfg)
		d.checkPorts(ctx, cfg)
		d.checkStateDirectory(cfg)
	}
	d.checkIstiod(ctx, cfg)
	d.checkKeepalive(ctx, cfg)
	return ctx.Err()
}

// checkConfiguration checks the configuration, or the error of loading it, and its sources, as validate --connect does.
func (d *Doctor) checkConfiguration(ctx context.Context, cfg *config.Config, err error) error {
	var linter Linter
	if !d.Offline {
		linter.Connect = relay.Reader
	}
	skipped, err := linter.Config(ctx, d.File, cfg, err, false)
	if err == nil {
		err = linter.CheckConflicts(ctx)
	}
	if err != nil {
		return err
	}
	hasErrors := map[string]bool{} // by check
	for _, finding := range linter.Findings {
		check, fix := sourcesCheck, "see tributary validate "+d.File
		switch finding.Rule {
		case Configuration:
			check, fix = configurationCheck, "correct it there; tributary schema prints every key"
		case Denied:
			check, fix = rightsCheck, "give the token or user of the source the rights that sources/*/README.md names, "+
				"and tributary validate --connect tells whether they do"
		case Unreadable:
			fix = "see that the address is right, and that it can be reached from this machine"
			if strings.Contains(finding.Message, fs.ErrPermission.Error()) {
				fix = mayRead
			}
		}
		if finding.Fix != "" {
			fix = "create these:\n" + finding.Fix
		}
		severity := Warning
		if finding.Severity == Error {
			severity = Error
		} else if finding.Severity == Note {
			continue
		}
		hasErrors[check] = hasErrors[check] || severity == Error
		d.note(check, severity, finding.String(), fix)
	}
	if cfg == nil {
		return nil // its problems were noted above
	}
	if !hasErrors[configurationCheck] {
		d.note(configurationCheck, Fine, d.File+": "+words.Count(len(cfg.ConfigSources), "source", "sources"), "")
	}
	for _, line := range linter.Connected {
		d.note(sourcesCheck, Fine, line, "")
	}
	for _, line := range skipped {
		d.note(sourcesCheck, Skipped, line, "")
	}
	if linter.Objects > 0 {
		d.note(sourcesCheck, Fine, words.Count(linter.Objects, "object is", "objects are")+" right", "")
	}
	return nil
}

// adviceFor returns the advice for a file that this user may not read, and the other advice for any other error.
func adviceFor(err error, fallback string) string {
	if errors.Is(err, fs.ErrPermission) {
		return mayRead
	}
	return fallback
}

// WriteResults writes the findings for people.
func WriteResults(writer io.Writer, results []Result) error {
	var builder strings.Builder
	for _, f := range results {
		fmt.Fprintf(&builder, "%-8s %-14s %s\n", f.Severity, f.Check, f.Message)
		if f.Fix != "" {
			fmt.Fprintf(&builder, "%-8s %-14s to do: %s\n", "", "", f.Fix)
		}
	}
	_, err := io.WriteString(writer, builder.String())
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

// checkIstiod checks that the mesh configuration of an istiod makes it read from this server.
func (d *Doctor) checkIstiod(ctx context.Context, cfg *config.Config) {
	if d.MeshConfig != "" {
		text, err := os.ReadFile(d.MeshConfig)
		if err != nil {
			d.note(istiodCheck, Error, err.Error(), "name a file with istiod's mesh configuration")
		} else {
			d.checkMeshConfig(cfg, d.MeshConfig, text)
		}
	}
	if d.Istiod != "" && !d.Offline {
		text, err := fetch(ctx, strings.TrimSuffix(d.Istiod, "/")+"/debug/mesh")
		if err != nil {
			d.note(istiodCheck, Error, err.Error(),
				"give the http://HOST:PORT of its debug pages (8080), and have ENABLE_DEBUG_ON_HTTP on there")
		} else {
			d.checkMeshConfig(cfg, d.Istiod, text)
		}
	}
	if d.MeshConfig == "" && d.Istiod == "" {
		d.note(istiodCheck, Skipped, "its mesh configuration was not checked: name it with --istiod or --mesh-config", "")
	}
	d.checkTypes()
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

// checkMeshConfig checks a mesh configuration, which may be in the values of a Helm chart.
func (d *Doctor) checkMeshConfig(cfg *config.Config, from string, text []byte) {
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
	configSources := slices.Concat(file.ConfigSources, file.MeshConfig.ConfigSources, file.Spec.MeshConfig.ConfigSources)
	ours, kubernetes := false, false
	for _, source := range configSources {
		kubernetes = kubernetes || strings.HasPrefix(source.Address, "k8s://")
		address, isXDS := strings.CutPrefix(source.Address, "xds://")
		if !isXDS || cfg == nil {
			continue
		}
		plain, secure := portOf(cfg.Listen.XDS), ""
		if listener := cfg.Listen.XDSTLS; listener != nil {
			secure = portOf(listener.Address)
		}
		if d.Through != nil && address == d.Through.Client.Server { // the address of a proxy on the way
			ours = true
		}
		tls := source.TLSSettings != nil && source.TLSSettings.Mode != "" && source.TLSSettings.Mode != "DISABLE"
		switch port := portOf(address); port {
		case "":
			d.note(istiodCheck, Error, fmt.Sprintf("%s: %s has no port", from, source.Address), "write xds://HOST:PORT")
			ours = true
		case plain, secure:
			ours = true
			if tls != (port == secure) {
				d.note(istiodCheck, Error, fmt.Sprintf("%s: %s with TLS: %t, and that port of ours with TLS: %t",
					from, source.Address, tls, port == secure),
					"have tlsSettings.mode of the config source as the port is: SIMPLE or MUTUAL with listen.xdsTLS, "+
						"none with listen.xds")
			}
		}
	}
	if cfg != nil && !ours {
		d.note(istiodCheck, Error, from+": no config source has our port",
			"add - address: xds://HOST:"+portOf(cfg.Listen.XDS)+" to its configSources, before istiod starts; "+
				"if it comes by way of another address, name that with --through")
	}
	switch {
	case kubernetes:
		d.note(istiodCheck, Fine, from+": it reads Kubernetes, too (k8s://)", "")
	case len(configSources) > 0:
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

// checkTypes checks that the connected clients subscribe to versions of APIs that the server has.
func (d *Doctor) checkTypes() {
	if d.running == nil {
		return
	}
	unserved := 0
	for _, typeURL := range slices.Sorted(maps.Keys(d.running.NodesByType)) {
		parts := strings.Split(typeURL, "/")
		if len(parts) != 3 || !strings.HasSuffix(parts[0], ".istio.io") {
			continue // a type of Envoy or of istioctl
		}
		schema, exists := resource.SchemaOf(resource.Kind(parts[2]))
		if exists && schema.Group == parts[0] && slices.Contains(schema.Versions, parts[1]) {
			continue
		}
		unserved++
		d.note(istiodCheck, Warning, fmt.Sprintf("%s asks for %s, which is not served",
			strings.Join(d.running.NodesByType[typeURL], ", "), typeURL),
			"if you have such objects, install a version of tributary that serves them")
	}
	if unserved == 0 {
		d.note(istiodCheck, Fine, words.Count(d.running.Clients, "client is connected, and asks",
			"clients are connected, and ask")+
			" for versions of APIs that are served", "")
	}
}
