package check

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tributary/config"
	"tributary/internal/words"
	"tributary/resource"
)

// meshConfig is what counts of an istiod's mesh configuration.
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
			d.note(ofIstiod, Error, err.Error(), "name a file with istiod's mesh configuration")
		} else {
			d.mesh(cfg, d.MeshConfig, text)
		}
	}
	if d.Istiod != "" && !d.Offline {
		text, date, err := fetch(ctx, strings.TrimSuffix(d.Istiod, "/")+"/debug/mesh")
		if err != nil {
			d.note(ofIstiod, Error, err.Error(), "give the http://HOST:PORT of its debug pages (8080), and have ENABLE_DEBUG_ON_HTTP on there")
		} else {
			d.mesh(cfg, d.Istiod, text)
			d.apart(date)
		}
	}
	if d.MeshConfig == "" && d.Istiod == "" {
		d.note(ofIstiod, Skipped, "its mesh configuration was not looked at: name it with --istiod or --mesh-config", "")
	}
	d.aliases()
}

// fetch returns a page, and the time that its server has.
func fetch(ctx context.Context, page string) ([]byte, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return nil, time.Time{}, err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<24))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", page, resp.Status)
	}
	date, _ := http.ParseTime(resp.Header.Get("Date")) // without one nothing is said
	return text, date, err
}

// apartAtMost is how much two clocks may differ.
const apartAtMost = 30 * time.Second

func (d *Doctor) apart(date time.Time) {
	if by := time.Since(date).Abs(); !date.IsZero() && by > apartAtMost {
		d.note(ofClock, Warning, fmt.Sprintf("the clocks of this machine and of istiod differ by %s", by.Round(time.Second)),
			"have both kept right by the same servers of time")
	}
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
		d.note(ofIstiod, Error, from+": "+err.Error(), "give a mesh configuration in YAML or JSON")
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
			d.note(ofIstiod, Error, fmt.Sprintf("%s: %s has no port", from, s.Address), "write xds://HOST:PORT")
			ours = true
		case plain, secure:
			ours = true
			if tls != (port == secure) {
				d.note(ofIstiod, Error, fmt.Sprintf("%s: %s with TLS: %t, and that port of ours with TLS: %t", from, s.Address, tls, port == secure),
					"have tlsSettings.mode of the config source as the port is: SIMPLE or MUTUAL with listen.xdsTLS, none with listen.xds")
			}
		}
	}
	if cfg != nil && !ours {
		d.note(ofIstiod, Error, from+": no config source has our port",
			"add - address: xds://HOST:"+portOf(cfg.Listen.XDS)+" to its configSources, before istiod starts; if it comes by way of another "+
				"address, name that with --through")
	}
	switch {
	case kubernetes:
		d.note(ofIstiod, Fine, from+": it reads Kubernetes, too (k8s://)", "")
	case len(all) > 0:
		d.note(ofIstiod, Warning, from+": without a line k8s:// istiod on Kubernetes no longer reads its CRDs",
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
		d.note(ofIstiod, Warning, fmt.Sprintf("%s asks for %s, which is not served", strings.Join(d.running.Asked[url], ", "), url),
			"take a version of tributary that knows it, if any object is of that")
	}
	if strangers == 0 {
		d.note(ofIstiod, Fine, words.Count(d.running.Clients, "client is connected, and asks", "clients are connected, and ask")+
			" for versions of APIs that are served", "")
	}
}
