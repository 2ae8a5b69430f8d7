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

// Registry is something that may run on this machine, on the port that it has unless told otherwise.
type Registry struct {
	Name    string // of the source that it becomes
	Port    string
	Address string // of the source, with %s for host:port
	What    string
}

// Registries are those that are looked for.
func Registries() (registries []Registry) {
	for _, scheme := range config.Schemes() {
		if scheme.Port != "" {
			registries = append(registries, Registry{scheme.Names[0], scheme.Port, scheme.Address, scheme.Comment})
		}
	}
	return registries
}

const dialTime = 500 * time.Millisecond

// FindRegistries returns those of all that answer on host, by what at says of their ports, with the address of each.
func FindRegistries(ctx context.Context, host string, all []Registry) (found []Registry) {
	there := make([]bool, len(all))
	var asks sync.WaitGroup
	for i, r := range all {
		asks.Go(func() {
			dialer := net.Dialer{Timeout: dialTime}
			conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, r.Port))
			if err == nil {
				there[i] = conn.Close() == nil
			}
		})
	}
	asks.Wait()
	for i, r := range all {
		if there[i] {
			r.Address = fmt.Sprintf(r.Address, net.JoinHostPort(host, r.Port))
			found = append(found, r)
		}
	}
	return found
}

// FoundFiles is a directory with objects of Istio's, or a single file.
type FoundFiles struct {
	Path    string // relative to the directory of the configuration
	Objects int
	Derives bool // Istio's objects derive from some of the objects
}

// maxFiles is how many files are read to find objects: this is a first look.
const maxFiles = 2000

// FindFiles returns the directories in root that have objects, and the files in it that do, in order: root itself would be read with the
// configuration, which is no object. What else is no object of ours is passed over.
func FindFiles(root string) (places []FoundFiles, err error) {
	counts, derives := make(map[string]int), make(map[string]bool)
	files := 0
	options, err := sources.Texts{}.Options()
	if err != nil {
		return nil, err
	}
	options.Keep = file.DerivedKinds
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && path == root:
			return err
		case err != nil, files >= maxFiles:
			return nil //nolint:nilerr // the rest can be read
		case path != root && file.Hidden(e.Name()) && e.IsDir():
			return fs.SkipDir
		case !e.Type().IsRegular() || file.Hidden(e.Name()) || !file.Reads(e.Name()):
			return nil
		}
		files++
		text, err := os.ReadFile(path) //nolint:gosec // whoever can change the tree can write such a configuration
		if err != nil || config.Recognize(text) {
			return nil //nolint:nilerr // the server says so
		}
		relative, _ := filepath.Rel(root, path) // it is below root
		top, _, _ := strings.Cut(relative, string(filepath.Separator))
		content := sources.Decode(path, path, text, options)
		for _, r := range content.Resources {
			if _, known := resource.SchemaOf(r.Key().Kind); known {
				counts[top]++
			}
		}
		for _, other := range content.Others {
			if _, isParent := derive.KindNamed(string(other.Key.Kind)); isParent {
				counts[top]++
				derives[top] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for path, n := range counts {
		places = append(places, FoundFiles{path, n, derives[path]})
	}
	slices.SortFunc(places, func(a, b FoundFiles) int { return strings.Compare(a.Path, b.Path) })
	return places, nil
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// InitialConfig is the configuration of what was found.
func InitialConfig(files []FoundFiles, registries []Registry) string {
	var b strings.Builder
	b.WriteString(`# The configuration of tributary. Every key: tributary schema. Check it with: tributary doctor -c THIS FILE
# Read again by: tributary reload

# Who may come: this machine alone. For others: xds: 0.0.0.0:16010, or xdsTLS with a certificate.
listen:
  xds: ` + config.DefaultXDS + `
  admin: ` + config.DefaultAdmin + `

# What must outlive a restart, by default systemd's StateDirectory=, else a directory in ~/.local/state.
# stateDir: /var/lib/tributary

# Where configuration comes from, in order of precedence: of what several have, that of the first is served.
configSources:
`)
	taken := words.Each(registries, func(r Registry) string { return r.Name })
	for _, d := range files {
		name := strings.Trim(unfit.ReplaceAllString(strings.TrimSuffix(d.Path, filepath.Ext(d.Path)), "-"), "._-")
		for i := 1; name == "" || slices.Contains(taken, name); i++ {
			name = fmt.Sprint("files-", i)
		}
		taken = append(taken, name)
		fmt.Fprintf(&b, "# Files: %s when this was written. They are watched.\n- name: %s\n  address: %s\n",
			words.Count(d.Objects, "object", "objects"), strconv.Quote(name), strconv.Quote("fs://./"+d.Path))
		if d.Derives {
			b.WriteString("  derive: {}  # makes Istio's objects of Gateway API and Ingresses\n")
		}
	}
	for _, r := range registries {
		fmt.Fprintf(&b, "# Found when this was written: %s.\n- name: %s\n  address: %s\n", r.What, r.Name, strconv.Quote(r.Address))
	}
	if len(files)+len(registries) == 0 {
		b.WriteString("# Nothing was found: put objects, such as ServiceEntries, into this directory.\n- name: rules\n  address: " +
			"\"fs://./rules\"\n")
	}
	b.WriteString(`# Others, for example:
# - {name: dc1, address: "consul://consul.example:8500", tokenFile: consul.token}
# Istio's objects of a cluster; services: {} adds its Services, derive: {} the Gateway API.
# - {name: cluster, address: "k8s:///etc/tributary/cluster.kubeconfig"}
# - {name: istiod, address: "xds://istiod.example:15012", tokenFile: token, tlsSettings: {mode: SIMPLE}}
`)
	return b.String()
}
