// Package config reads tributary's own configuration: a YAML file, or a directory of them, read strictly, so that a
// misspelt key is an error that names its line and not a setting that is silently off.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tributary/internal/words"
)

// The default listeners use loopback, so that the server is not exposed by default. A listener with a certificate uses
// all addresses; a warning says if it does not authenticate its clients.
const (
	DefaultXDS    = "127.0.0.1:16010"
	DefaultXDSTLS = ":16012"
	DefaultAdmin  = "127.0.0.1:16014"
)

// sourcesKey is the only list that several files of a directory may extend.
const sourcesKey = "configSources"

// StateOff is the StateDir of a server without saved state.
const StateOff = "off"

// Config is the content of the file. Load and Parse return it checked and with its defaults filled in.
//
// The comments above fields are their descriptions in docs/config.schema.json and docs/configuration.md.
type Config struct {
	// Where the servers listen. Without it all listen on loopback.
	Listen Listen `json:"listen,omitzero"`
	// Proofs of the identity of clients, in addition to certificates.
	Identity Proofs `json:"identity,omitzero"`
	// The rights of clients: the first rule that matches a client decides, and a client without one sees no objects.
	// Without this key, all clients see everything.
	Access []AccessRule `json:"access,omitempty"`
	// Settings of the admin server.
	Admin Admin `json:"admin,omitzero"`
	// Directory for all data that must outlive a restart, used by this process alone; off for none. Relative paths are
	// relative to this file. Default: $STATE_DIRECTORY, else a directory of this file in tributary in $XDG_STATE_HOME or
	// ~/.local/state.
	StateDir string `json:"stateDir,omitempty"`
	// Limits on the clients of the xDS server, and on the servers that sources read.
	Limits Limits `json:"limits,omitzero"`
	// How changes are gathered before they are sent to clients.
	Debounce Debounce `json:"debounce,omitzero"`
	// How full responses to state-of-the-world clients are spaced out during changes.
	Pacing Pacing `json:"pacing,omitzero"`
	// gzip compresses responses to the clients that accept it, once for all of them; none does not. Default: gzip.
	Compression string `json:"compression,omitempty"`
	// Range of virtual addresses for services without one, in CIDR notation; off for none. Read at the start. Default:
	// 241.0.0.0/8.
	VirtualAddresses string `json:"virtualAddresses,omitempty"`
	// How Envoys and gRPC clients are served; read at the start.
	Envoy Envoy `json:"envoy,omitzero"`
	// The history of changes in the state directory; read at the start.
	History History `json:"history,omitzero"`
	// Where configuration comes from, in order of precedence.
	ConfigSources []Source `json:"configSources"`

	Places   map[string]Problem `json:"-"` // of the keys that files have, without a message
	Warnings []Problem          `json:"-"` // settings that are valid but probably a mistake
}

// Duration is a time.Duration that is written like 1m30s.
type Duration time.Duration

// String returns the form that UnmarshalText reads, without zero units: 2m, not 2m0s.
func (d Duration) String() string {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	duration, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("want a duration such as 30s or 1m30s, got %q", text)
	}
	*d = Duration(duration)
	return nil
}

// Load reads, checks and completes the configuration at path: a file, or a directory with *.yaml files. An invalid
// configuration gives an *Error, which lists all problems.
func Load(path string) (*Config, error) {
	var config Config
	decoder, dir, err := read(path, &config)
	if err != nil {
		return nil, err
	}
	return decoder.finish(&config, dir)
}

// Files returns the files of the configuration at path: path itself, or the *.yaml files of a directory in the order of
// their names. Hidden files are left out.
func Files(path string) (files []string, err error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return []string{path}, nil //nolint:nilerr // reading the file reports the error
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".yaml") && !strings.HasPrefix(name, ".") {
			files = append(files, filepath.Join(path, name))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read configuration: the directory %s has no *.yaml file", path)
	}
	return files, nil
}

// read decodes the files of the configuration at path into config. Relative paths in them are taken from dir.
func read(path string, config *Config) (decoder *decoder, dir string, err error) {
	files, err := Files(path)
	if err != nil {
		return nil, "", err
	}
	decoder = newDecoder(path)
	for _, decoder.file = range files {
		data, err := readFile(decoder.file, decoder.file != path)
		if err != nil {
			return nil, "", fmt.Errorf("read configuration: %w", err)
		}
		if target := linkTarget(path, decoder.file); target != "" {
			decoder.linkTargets[decoder.file] = target
		}
		decoder.decode(data, config)
	}
	if decoder.file != path {
		decoder.file = path
		delete(decoder.places, "") // a key may be missing in any file of the directory
	}
	return decoder, filepath.Dir(files[0]), nil
}

// maxFileBytes bounds a file of the configuration.
const maxFileBytes = 16 << 20

// readFile reads a file of the configuration. In a directory, pipes and devices are errors, since they may have no end.
func readFile(path string, inDirectory bool) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && inDirectory && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("%s has more than %d MiB", path, maxFileBytes>>20)
	}
	return data, err
}

// linkTarget returns the file that a link in a directory leads to if it is outside of the directory, else an empty
// text.
func linkTarget(directory, path string) string {
	target, err := filepath.EvalSymlinks(path)
	root, rootErr := filepath.EvalSymlinks(directory)
	if err != nil || rootErr != nil || path == directory {
		return ""
	}
	if relative, err := filepath.Rel(root, target); err == nil && filepath.IsLocal(relative) {
		return ""
	}
	return target
}

// DefaultPaths are the usual paths of the configuration for Find, in order.
func DefaultPaths() []string { return []string{"./tributary.yaml", "/etc/tributary/tributary.yaml"} }

// Find returns the first of paths that exists.
func Find(paths []string) (string, error) {
	for _, p := range paths {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			return p, nil // Load reports a file that cannot be read
		}
	}
	return "", fmt.Errorf("no configuration file; tried %s", strings.Join(paths, ", "))
}

// Recognize reports whether data looks like a tributary configuration rather than like a configuration object.
func Recognize(data []byte) bool {
	var content map[string]yaml.Node
	if yaml.Unmarshal(data, &content) != nil {
		return false
	}
	if _, hasKind := content["kind"]; hasKind {
		return false
	}
	_, hasVersion := content["apiVersion"]
	keys := sortedKeys(fieldsOf(reflect.ValueOf(&Config{}).Elem()))
	for key := range content {
		misspelt := !hasVersion && len(key) > 4 && words.Nearest(key, keys) != "" // Parse suggests the key
		if misspelt || slices.Contains(keys, key) {
			return true
		}
	}
	return false
}

// At returns a key, after its place if that is known.
func (c *Config) At(key string) string {
	if p, ok := c.Places[key]; ok {
		return p.Place() + ": " + key
	}
	return key
}

// Fault returns cause as an error of a key.
func (c *Config) Fault(key string, cause error) error {
	problem, ok := c.Places[key]
	if !ok {
		return fmt.Errorf("%s: %w", key, cause)
	}
	problem.Message = cause.Error()
	return &Error{[]Problem{problem}, cause}
}

// Parse checks and completes data, the content of the file at path. Relative paths in it are taken from the file's
// directory.
func Parse(path string, data []byte) (*Config, error) {
	decoder := newDecoder(path)
	var c Config
	decoder.decode(data, &c)
	return decoder.finish(&c, filepath.Dir(path))
}

// finish checks and completes the decoded configuration.
func (d *decoder) finish(config *Config, dir string) (*Config, error) {
	d.check(config, dir)
	config.Places = d.places
	if err := d.err(); err != nil {
		return nil, err
	}
	return config, nil
}

// New checks and completes a configuration without a file. origin names it in messages, such as "command line".
// Relative paths are relative to the working directory, and become absolute: readers of messages may not know the
// directory.
func New(origin string, config Config) (*Config, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	d := newDecoder(origin)
	d.check(&config, dir)
	if err := d.err(); err != nil {
		return nil, err
	}
	return &config, nil
}
