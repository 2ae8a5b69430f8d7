package check

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tributary/config"
	"tributary/internal/words"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/derive"
	"tributary/sources/file"
)

// Registry is a registry that may run on this machine, on its default port.
type Registry struct {
	Name        string // of the source
	Port        string
	Address     string // of the source, with %s for host:port
	Description string
}

// Registries returns the candidates that init searches for.
func Registries() (registries []Registry) {
	for _, scheme := range config.Schemes() {
		if scheme.Port != "" {
			registries = append(registries, Registry{scheme.Names[0], scheme.Port, scheme.Address, scheme.Comment})
		}
	}
	return registries
}

const dialTime = 500 * time.Millisecond

// FindRegistries returns the candidates that accept connections at their port of host, with their addresses.
func FindRegistries(ctx context.Context, host string, candidates []Registry) (reachable []Registry) {
	answers := make([]bool, len(candidates))
	var dials sync.WaitGroup
	for i, r := range candidates {
		dials.Go(func() {
			dialer := net.Dialer{Timeout: dialTime}
			conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, r.Port))
			if err == nil {
				answers[i] = conn.Close() == nil
			}
		})
	}
	dials.Wait()
	for i, r := range candidates {
		if answers[i] {
			r.Address = fmt.Sprintf(r.Address, net.JoinHostPort(host, r.Port))
			reachable = append(reachable, r)
		}
	}
	return reachable
}

// FoundFiles is a directory with objects of Istio's API, or a single file.
type FoundFiles struct {
	Path    string // relative to the directory of the configuration
	Objects int
	Derives bool // some objects of Kubernetes derive Istio's objects
}

// maxFiles bounds the files that are read to find objects.
const maxFiles = 2000

// FindFiles returns the directories and files in root that have objects, in order. It never returns root, where the
// configuration itself would be read as an object. It ignores objects of other APIs.
func FindFiles(root string) (places []FoundFiles, err error) {
	counts, derives := make(map[string]int), make(map[string]bool)
	files := 0
	options, err := sources.Texts{}.Options()
	if err != nil {
		return nil, err
	}
	options.Keep = file.DerivedKinds
	err = filepath.WalkDir(root, func(path string, dirEntry fs.DirEntry, err error) error {
		switch {
		case err != nil && path == root:
			return err
		case err != nil, files >= maxFiles:
			return nil //nolint:nilerr // other files can be read
		case path != root && file.Hidden(dirEntry.Name()) && dirEntry.IsDir():
			return fs.SkipDir
		case !dirEntry.Type().IsRegular() || file.Hidden(dirEntry.Name()) || !file.Reads(dirEntry.Name()):
			return nil
		}
		files++
		text, err := os.ReadFile(path) //nolint:gosec // whoever can change the tree can write such a configuration
		if err != nil || config.Recognize(text) {
			return nil //nolint:nilerr // the server reports it
		}
		relative, _ := filepath.Rel(root, path) // path is below root
		top, _, _ := strings.Cut(relative, string(filepath.Separator))
		content := sources.Decode(path, path, text, options)
		for _, object := range content.Resources {
			if _, served := resource.SchemaOf(object.Key().Kind); served {
				counts[top]++
			}
		}
		for _, foreign := range content.Others {
			if _, isParent := derive.KindNamed(string(foreign.Key.Kind)); isParent {
				counts[top]++
				derives[top] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for path, count := range counts {
		places = append(places, FoundFiles{path, count, derives[path]})
	}
	slices.SortFunc(places, func(a, b FoundFiles) int { return strings.Compare(a.Path, b.Path) })
	return places, nil
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// InitialConfig returns a configuration that reads the files and registries.
func InitialConfig(files []FoundFiles, registries []Registry) string {
	var text strings.Builder
	text.WriteString(`# The configuration of tributary. Every key: tributary schema. Check it with: tributary doctor -c THIS FILE
# Read again by: tributary reload

# Only clients on this machine may connect. For others: xds: 0.0.0.0:16010, or xdsTLS with a certificate.
listen:
  xds: ` + config.DefaultXDS + `
  admin: ` + config.DefaultAdmin + `

# The directory of the state that outlives a restart, by default systemd's StateDirectory=, else a directory in ~/.local/state.
# stateDir: /var/lib/tributary

# The sources of configuration, in order of precedence: if several have an object, that of the first is served.
configSources:
`)
	taken := words.Each(registries, func(registry Registry) string { return registry.Name })
	for _, listed := range files {
		base := strings.TrimSuffix(listed.Path, filepath.Ext(listed.Path))
		name := strings.Trim(notInNames.ReplaceAllString(base, "-"), "._-")
		for i := 1; name == "" || slices.Contains(taken, name); i++ {
			name = fmt.Sprint("files-", i)
		}
		taken = append(taken, name)
		fmt.Fprintf(&text, "# Files: %s when this was written. They are watched.\n- name: %s\n  address: %s\n",
			words.Count(listed.Objects, "object", "objects"), strconv.Quote(name), strconv.Quote("fs://./"+listed.Path))
		if listed.Derives {
			text.WriteString("  derive: {}  # makes Istio's objects of Gateway API and Ingresses\n")
		}
	}
	for _, registry := range registries {
		fmt.Fprintf(&text, "# Found when this was written: %s.\n- name: %s\n  address: %s\n",
			registry.Description, registry.Name, strconv.Quote(registry.Address))
	}
	if len(files)+len(registries) == 0 {
		text.WriteString("# Nothing was found: put objects, such as ServiceEntries, into this directory.\n" +
			"- name: rules\n  address: \"fs://./rules\"\n")
	}
	text.WriteString(`# Others, for example:
# - {name: dc1, address: "consul://consul.example:8500", tokenFile: consul.token}
# Istio's objects of a cluster; services: {} adds its Services, derive: {} the Gateway API.
# - {name: cluster, address: "k8s:///etc/tributary/cluster.kubeconfig"}
# - {name: istiod, address: "xds://istiod.example:15012", tokenFile: token, tlsSettings: {mode: SIMPLE}}
`)
	return text.String()
}
