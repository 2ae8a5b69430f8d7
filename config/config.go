// Package config reads tributary's own configuration: one YAML file, read strictly, so that a misspelt key is an error
// that names its line and not a setting that is silently off.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tributary/sources/file"
	"tributary/sources/transform"
)

// Where the servers listen unless told otherwise: on loopback, so that nothing is exposed that nobody asked for.
const (
	DefaultXDS   = "127.0.0.1:16010"
	DefaultAdmin = "127.0.0.1:16014"
)

// StateOff is the StateDir that says that nothing is kept.
const StateOff = "off"

// Config is the content of the file. Load and Parse return it checked and with its defaults filled in.
//
// The tags named jsonschema are the descriptions in docs/config.schema.json.
type Config struct {
	Listen           Listen   `json:"listen,omitzero" jsonschema:"Where the servers listen. Without it all listen on loopback."`
	StateDir         string   `json:"stateDir,omitempty" jsonschema:"Directory for what must outlive a restart, used by this process alone; off for none. Relative paths are relative to this file. Default: $STATE_DIRECTORY, else tributary in $XDG_STATE_HOME, else ~/.local/state/tributary."`
	Limits           Limits   `json:"limits,omitzero" jsonschema:"Limits on the clients of the xDS server."`
	Debounce         Debounce `json:"debounce,omitzero" jsonschema:"How changes are gathered before clients are told."`
	VirtualAddresses string   `json:"virtualAddresses,omitempty" jsonschema:"Range from which services get virtual addresses that have none, in CIDR notation; off for none. Read at the start. Default: 241.0.0.0/8."`
	ConfigSources    []Source `json:"configSources" jsonschema:"Where configuration comes from, in order of precedence."`
}

// Listen holds the addresses of the servers, as host:port. Port 0 means any free port.
type Listen struct {
	XDS   string `json:"xds,omitempty" jsonschema:"host:port of the xDS server (gRPC, plaintext). Default 127.0.0.1:16010."`
	Admin string `json:"admin,omitempty" jsonschema:"host:port of the admin server (HTTP: health, metrics, debug). Default 127.0.0.1:16014."`
}

// Source is one source. Its address, tlsSettings and subscribedResources are those of Istio's
// meshConfig.configSources.
type Source struct {
	Name                string              `json:"name,omitempty" jsonschema:"Name of the source in status, metrics and messages. Unique; by default made of the address."`
	Address             string              `json:"address" jsonschema:"Where to read from. fs:///dir is a directory tree or a single file; fs://./dir is relative to this file. xds://host:port is a server of MCP over xDS; several equal ones are separated by commas. consul://host:port or consul+https://host:port is a Consul, and consul-kv://host:port/prefix or consul-kv+https://host:port/prefix the objects in its key-value store."`
	TLSSettings         *TLSSettings        `json:"tlsSettings,omitempty" jsonschema:"TLS of the connection to the source, as in Istio. Not for fs."`
	SubscribedResources []string            `json:"subscribedResources,omitempty" jsonschema:"What to take from the source: SERVICE_REGISTRY as in Istio, kinds, or type URLs. Default: everything. Not for fs."`
	Precedence          int                 `json:"precedence,omitempty" jsonschema:"Who wins a key that several sources have: the highest number, and where it is equal the first in the list. Default: 0."`
	Guard               Guard               `json:"guard,omitzero" jsonschema:"Which losses are held until somebody releases them; off for none."`
	Merge               Merge               `json:"merge,omitzero" jsonschema:"What is made one with what other sources have, instead of one shadowing the other: endpoints, or a mapping with details."`
	Transform           *transform.Settings `json:"transform,omitempty" jsonschema:"What to make of the objects of the source before they are checked and served."`
	FileSettings
	XDSSettings
	ConsulSettings
}

// TLSSettings has the keys of Istio's ClientTLSSettings.
type TLSSettings struct {
	Mode               string   `json:"mode,omitempty" jsonschema:"DISABLE, SIMPLE or MUTUAL."`
	ClientCertificate  string   `json:"clientCertificate,omitempty" jsonschema:"File of the client certificate chain, or PEM (MUTUAL)."`
	PrivateKey         string   `json:"privateKey,omitempty" jsonschema:"File of the client's private key, or PEM (MUTUAL)."`
	CACertificates     string   `json:"caCertificates,omitempty" jsonschema:"File of the certificates to verify the server by, or PEM. Default: those of the system."`
	SubjectAltNames    []string `json:"subjectAltNames,omitempty" jsonschema:"Names of which the server's certificate must have one, such as spiffe://cluster.local/ns/istio-system/sa/istiod."`
	SNI                string   `json:"sni,omitempty" jsonschema:"Server name sent in the TLS handshake."`
	InsecureSkipVerify bool     `json:"insecureSkipVerify,omitempty" jsonschema:"Do not verify the server's certificate."`
}

// FileSettings are the settings of fs sources. What is zero has the default of package file.
type FileSettings struct {
	DefaultNamespace string   `json:"defaultNamespace,omitempty" jsonschema:"Namespace of objects that name none (fs, consul-kv). Default: default."`
	UnknownFields    string   `json:"unknownFields,omitempty" jsonschema:"What to make of a field that is not known (fs, consul-kv): error refuses the object, warn takes it without the field. Default: error."`
	QuietDelay       Duration `json:"quietDelay,omitempty" jsonschema:"How long files must be left alone before changes are read (fs). Default: 100ms."`
	MaxDelay         Duration `json:"maxDelay,omitempty" jsonschema:"How long changes wait for quiet at most (fs). Default: 1s."`
	RescanInterval   Duration `json:"rescanInterval,omitempty" jsonschema:"How often all files are looked at without an event, for file systems that have none (fs). Default: 30s."`
	MaxFileBytes     int64    `json:"maxFileBytes,omitempty" jsonschema:"How large one file may be, in bytes (fs). Default: 67108864."`
}

// Settings returns the settings as package file takes them.
func (s FileSettings) Settings() file.Settings {
	return file.Settings{
		DefaultNamespace: s.DefaultNamespace,
		UnknownFields:    s.UnknownFields,
		QuietDelay:       time.Duration(s.QuietDelay),
		MaxDelay:         time.Duration(s.MaxDelay),
		RescanInterval:   time.Duration(s.RescanInterval),
		MaxFileBytes:     s.MaxFileBytes,
	}
}

// Duration is a time.Duration that is written like 1m30s.
type Duration time.Duration

// String returns the form that UnmarshalText reads.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("want a duration such as 30s or 1m30s, got %q", text)
	}
	*d = Duration(v)
	return nil
}

// Load reads, checks and completes the file at path. If its content is at fault, the error is an *Error, which lists all
// that is wrong.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, data)
}

// DefaultPaths are where Find looks, in order.
func DefaultPaths() []string { return []string{"./tributary.yaml", "/etc/tributary/tributary.yaml"} }

// Find returns the first of paths that exists.
func Find(paths []string) (string, error) {
	for _, p := range paths {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			return p, nil // one that exists and cannot be read is for Load to complain about
		}
	}
	return "", fmt.Errorf("no configuration file; tried %s", strings.Join(paths, ", "))
}

// Recognize reports whether data looks like a tributary configuration rather than like a configuration object.
func Recognize(data []byte) bool {
	var top map[string]yaml.Node
	if yaml.Unmarshal(data, &top) != nil {
		return false
	}
	_, object := top["kind"]
	for key := range fieldsOf(reflect.ValueOf(&Config{}).Elem()) {
		if _, ok := top[key]; ok && !object {
			return true
		}
	}
	return false
}

// Parse checks and completes data, the content of the file at path. Relative paths in it are taken from the file's
// directory.
func Parse(path string, data []byte) (*Config, error) {
	d := newDecoder(path)
	var c Config
	d.decode(data, &c)
	d.check(&c, filepath.Dir(path))
	if err := d.err(); err != nil {
		return nil, err
	}
	return &c, nil
}

// New checks and completes a configuration that was made without a file. what names its origin in messages, such as
// "command line".
func New(what string, c Config) (*Config, error) {
	d := newDecoder(what)
	d.check(&c, ".")
	if err := d.err(); err != nil {
		return nil, err
	}
	return &c, nil
}
