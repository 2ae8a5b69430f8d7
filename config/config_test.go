package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/config"
	"tributary/sources"
	"tributary/sources/file"
	"tributary/sources/guard"
	"tributary/sources/transform"
)

// parsed returns a configuration without problems.
func parsed(t *testing.T, path, text string) *config.Config {
	t.Helper()
	c, err := config.Parse(path, []byte(text))
	require.NoError(t, err, text)
	return c
}

func TestParseFillsInDefaults(t *testing.T) {
	c := parsed(t, "/etc/tributary/tributary.yaml", "configSources:\n- address: fs:///srv/rules\n")
	assert.Equal(t, &config.Config{
		Listen:      config.Listen{XDS: "127.0.0.1:16010", Admin: "127.0.0.1:16014"},
		Compression: config.CompressionGzip, History: config.History{Bytes: 64 << 20},
		ConfigSources: []config.Source{{
			Name: "rules", Address: "fs:///srv/rules", Settings: &config.File{},
		}},
		Places: map[string]config.Problem{
			"":                         {File: "/etc/tributary/tributary.yaml", Line: 1, Column: 1},
			"configSources":            {File: "/etc/tributary/tributary.yaml", Line: 2, Column: 1, Key: "configSources"},
			"configSources[0]":         {File: "/etc/tributary/tributary.yaml", Line: 2, Column: 3, Key: "configSources[0]"},
			"configSources[0].address": {File: "/etc/tributary/tributary.yaml", Line: 2, Column: 12, Key: "configSources[0].address"},
		},
	}, c)
}

func TestParseReadsEveryKey(t *testing.T) {
	c := parsed(t, "t.yaml", `
listen: {xds: "0.0.0.0:16010", admin: ":16014"}
stateDir: /var/lib/tributary
pacing: {least: 2s, most: 20s}
compression: none
configSources: # JSON is YAML, too
- {"name": "a", "address": "fs:///a", "precedence": 7, "defaultNamespace": "mesh", "unknownFields": "warn", "maxFileBytes": 5,
   "quietDelay": "2ms", "maxDelay": "3ms", "rescanInterval": "1m30s", "emptyGrace": "4s", "partialStart": true}
- address: fs:///b
  guard: {share: 12.5%, min: 3, window: 2m, holdFor: 1h}
  merge: {endpoints: {locality: eu/a, priority: 1}}
- {address: fs:///c, merge: endpoints, guard: off, transform: {namespaces: {shop: mesh}, labels: {add: {a: b}, drop: [c]}}}
`)
	three := 3
	assert.Equal(t, guard.Settings{Share: 0.125, Min: &three, Window: 2 * time.Minute, HoldFor: time.Hour},
		c.ConfigSources[1].Guard.Settings())
	assert.Equal(t, &transform.Settings{
		Namespaces: map[string]string{"shop": "mesh"}, Labels: transform.Change{Add: map[string]string{"a": "b"}, Drop: []string{"c"}},
	}, c.ConfigSources[2].Transform)
	assert.Equal(t, guard.Settings{Off: true}, c.ConfigSources[2].Guard.Settings())
	assert.Equal(t, &config.Endpoints{Locality: "eu/a", Priority: 1}, c.ConfigSources[1].Merge.Endpoints)
	assert.Equal(t, &config.Endpoints{}, c.ConfigSources[2].Merge.Endpoints)
	assert.Equal(t, config.Listen{XDS: "0.0.0.0:16010", Admin: ":16014"}, c.Listen)
	assert.Equal(t, "/var/lib/tributary", c.StateDir)
	assert.Equal(t, file.Settings{
		Texts: sources.Texts{DefaultNamespace: "mesh", UnknownFields: "warn"}, MaxFileBytes: 5,
		QuietDelay: 2 * time.Millisecond, MaxDelay: 3 * time.Millisecond, RescanInterval: 90 * time.Second,
		EmptyGrace: 4 * time.Second, PartialStart: true,
	}, c.ConfigSources[0].Settings.(*config.File).Source())
	assert.Equal(t, "b", c.ConfigSources[1].Name)
	assert.Equal(t, 7, c.ConfigSources[0].Precedence)
}

func TestRelativePathsStartAtTheFile(t *testing.T) {
	for _, c := range []struct{ file, address, want string }{
		{"/etc/tributary/t.yaml", "fs://./rules", "fs:///etc/tributary/rules"},
		{"/etc/tributary/t.yaml", "fs://../rules", "fs:///etc/rules"},
		{"/etc/my%20mesh?/t.yaml", "fs://./a%20b", "fs:///etc/my%2520mesh%3F/a%20b"},
		{"/etc/tributary/t.yaml", "fs:///rules", "fs:///rules"},
		{"conf/t.yaml", "fs://./rules", "fs://./conf/rules"},
		{"./t.yaml", "fs://./rules", "fs://./rules"},
		{"./t.yaml", "fs://../rules", "fs://../rules"},
	} {
		got := parsed(t, c.file, "stateDir: state\nconfigSources: [{address: '"+c.address+"'}]")
		assert.Equal(t, c.want, got.ConfigSources[0].Address)
		assert.Equal(t, filepath.Join(filepath.Dir(c.file), "state"), got.StateDir)
	}
}

func TestNames(t *testing.T) {
	for address, want := range map[string]string{
		"fs:///etc/tributary/rules/": "rules",
		"fs:///x/mesh%20rules.yaml":  "mesh-rules.yaml",
		"fs:///x/.hidden":            "hidden",
		"fs:///":                     "fs",
		"fs:///x/规则":                 "fs",

		"consul://127.0.0.1:8500":      "127.0.0.1-8500",
		"consul+https://c.example:443": "c.example-443",
		"consul:///":                   "consul",
		"consul+https:///":             "consul",

		"zookeeper://bob:s3cret@zk1:2181?group=g": "zk1-2181",
	} {
		c := parsed(t, "t.yaml", "configSources: [{address: '"+address+"'}]")
		assert.Equal(t, want, c.ConfigSources[0].Name, address)
	}
}

// schemeNames returns the names of all schemes, each once.
func schemeNames() string {
	var names []string
	for _, scheme := range config.Schemes() {
		for _, name := range scheme.Names {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, ", ")
}

func TestNew_NamesOrigin(t *testing.T) {
	_, err := config.New("command line", config.Config{ConfigSources: []config.Source{{Address: "ftp://x"}}})
	require.EqualError(t, err, `command line: configSources[0].address: unknown scheme "ftp"; known: `+schemeNames())
}

func TestLoadAndFind(t *testing.T) {
	dir := t.TempDir()
	missing, present := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	_, err := config.Find([]string{missing, present})
	require.EqualError(t, err, "no configuration file; tried "+missing+", "+present)

	require.NoError(t, os.WriteFile(present, []byte("configSources: [{address: 'fs:///a'}]"), 0o600))
	path, err := config.Find([]string{missing, present})
	require.NoError(t, err)
	assert.Equal(t, present, path)
	_, err = config.Load(path)
	require.NoError(t, err)

	_, err = config.Load(missing)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, missing)
}

func TestRecognize(t *testing.T) {
	assert.True(t, config.Recognize([]byte("configSources: []")))
	assert.True(t, config.Recognize([]byte("listen: {}\nmisspelt: 1")))
	assert.True(t, config.Recognize([]byte("configSource: []")), "a configuration with a misspelt key is recognized")
	assert.False(t, config.Recognize([]byte("apiVersion: networking.istio.io/v1\nkind: ServiceEntry")))
	assert.False(t, config.Recognize([]byte("\x00")))
	assert.False(t, config.Recognize(nil))
}

// lineBreaks are the line ends in YAML.
var lineBreaks = regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]")

// FuzzParse holds Parse to never panicking, and to stating a place in the file, or just behind its end, for whatever it
// refuses.
func FuzzParse(f *testing.F) {
	f.Add("configSources:\n- address: fs:///a\n  quietDelay: 1s\n")
	f.Add("listen: {xds: ':1', admin: ':1'}\nstateDir: [a]\n---\n")
	f.Add("a: &a {b: *a}\nlisten: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := config.Parse("t.yaml", []byte(text))
		var e *config.Error
		if err == nil || !errors.As(err, &e) {
			return
		}
		last := len(lineBreaks.FindAllString(text, -1)) + 2
		for _, p := range e.Problems {
			if p.Line < 1 || p.Line > last {
				t.Errorf("problem outside the file: %s", p)
			}
		}
	})
}

// TestPartialStart: a source of written objects without a valid object is probably a mistake. A registry's services are
// refused one by one.
func TestPartialStart(t *testing.T) {
	for settings, want := range map[string]bool{
		"address: fs:///a": false, "address: 'fs:///a', partialStart: true": true,
		"address: 'consul-kv://a:1/b'": false, "address: 'consul-kv://a:1/b', partialStart: true": true,
		"address: 'xds://a:1'": false, "address: 'xds://a:1', partialStart: true": true,
		"address: 'consul://a:1'": true, "address: 'zookeeper://a:1'": true, "address: 'nacos://a:1?kind=services'": true,
		"address: 'eureka://a:1'": true, "address: 'k8s://'": false, "address: 'k8s://', partialStart: true": true,
	} {
		c := parsed(t, "t.yaml", "configSources: [{"+settings+"}]")
		assert.Equal(t, want, c.ConfigSources[0].PartialStart(), settings)
	}
}
