package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
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

func TestParseFillsInDefaults(t *testing.T) {
	c, err := config.Parse("/etc/tributary/tributary.yaml", []byte("configSources:\n- address: fs:///srv/rules\n"))
	require.NoError(t, err)
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
	c, err := config.Parse("t.yaml", []byte(`
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
`))
	require.NoError(t, err)
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
		parsed, err := config.Parse(c.file, []byte("stateDir: state\nconfigSources: [{address: '"+c.address+"'}]"))
		require.NoError(t, err)
		assert.Equal(t, c.want, parsed.ConfigSources[0].Address)
		assert.Equal(t, filepath.Join(filepath.Dir(c.file), "state"), parsed.StateDir)
	}
}

func TestNames(t *testing.T) {
	for address, want := range map[string]string{
		"fs:///etc/tributary/rules/": "rules",
		"fs:///x/mesh%20rules.yaml":  "mesh-rules.yaml",
		"fs:///x/.hidden":            "hidden",
		"fs:///":                     "fs",
		"fs:///x/规则":                 "fs",

		"zookeeper://bob:s3cret@zk1:2181?group=g": "zk1-2181",
	} {
		c, err := config.New("command line", config.Config{ConfigSources: []config.Source{{Address: address}}})
		require.NoError(t, err, address)
		assert.Equal(t, want, c.ConfigSources[0].Name, address)
	}
}

func TestParse_AllProblemsWithPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		yaml string
		want []string
	}{
		"empty": {"", []string{"t.yaml:1:1: configSources: at least one source is needed, such as `- address: fs:///etc/tributary/rules`"}},
		"only comments": {"# nothing\n", []string{"t.yaml:1:1: configSources: at least one source is needed, such as `- address: " +
			"fs:///etc/tributary/rules`"}},
		"not a mapping": {"- a\n", []string{"t.yaml:1:1: want a mapping of keys to values, got a list"}},
		"syntax": {"listen:\n  xds: a: b\n", []string{"t.yaml:2:1: not valid YAML: there is a : where no key can be: the value before " +
			"it wants quotes, or the line is indented wrongly"}},
		"binary": {"\x00\x01", []string{"t.yaml:1:1: not valid YAML: control characters are not allowed"}},
		"two documents": {
			"configSources: [{address: 'fs:///a'}]\n---\nlisten: {}\n",
			[]string{"t.yaml:2:1: text behind the end of the document; the configuration is a single one"},
		},
		"several at once": {
			`listen:
  xsd: 0.0.0.0:1
  admin: 5
stateDir: [a]
stateDir: b
configSources:
- adr: fs:///a
  quietDelay: soon
- address: fs:///b
  tlsSettings: {insecureSkipVerify: maybe}
`,
			[]string{
				"t.yaml:2:3: listen.xsd: unknown key (did you mean xds?); known here: admin, adminTLS, xds, xdsTLS",
				"t.yaml:3:10: listen.admin: want a string, got 5; put it in quotes",
				"t.yaml:4:11: stateDir: want a string, got a list",
				"t.yaml:5:1: stateDir: given twice, first in line 4",
				"t.yaml:7:3: configSources[0].adr: unknown key; known here: address, guard, merge, name, precedence, required, transform, " +
					"validation, and those of the scheme of the address",
				"t.yaml:7:3: configSources[0].address: missing, such as fs:///etc/tributary/rules",
				`t.yaml:8:15: configSources[0].quietDelay: want a duration such as 30s or 1m30s, got "soon"`,
				"t.yaml:10:3: configSources[1].tlsSettings: not for fs addresses, but for " + serverSchemes() +
					"; known here: address, defaultNamespace, derive, " +
					"domainSuffix, emptyGrace, followLinks, foreignKinds, guard, maxDelay, maxFileBytes, merge, name, partialStart, precedence, " +
					"quietDelay, required, " +
					"rescanInterval, transform, unknownFields, validation",
			},
		},
		"listen": {
			"listen: {xds: '127.0.0.1', admin: '127.0.0.1:99999'}\nconfigSources: [{address: 'fs:///a'}]",
			[]string{
				`t.yaml:1:15: listen.xds: want host:port or unix:///PATH, got "127.0.0.1"`,
				`t.yaml:1:35: listen.admin: want a port from 0 to 65535, got "99999"`,
			},
		},
		"the same port twice": {
			"listen: {xds: ':1', admin: ':1'}\nconfigSources: [{address: 'fs:///a'}]",
			[]string{"t.yaml:1:28: listen.admin: :1 is also listen.xds"},
		},
		"the same port on all addresses and on one": {
			"listen: {xds: '0.0.0.0:1', admin: '127.0.0.1:1'}\nconfigSources: [{address: 'fs:///a'}]",
			[]string{"t.yaml:1:35: listen.admin: 127.0.0.1:1 is also that of 0.0.0.0:1, which is listen.xds"},
		},
		"the port of a default": {
			"listen: {admin: ':16010'}\nconfigSources: [{address: 'fs:///a'}]",
			[]string{"t.yaml:1:17: listen.admin: :16010 is also that of 127.0.0.1:16010, which is listen.xds"},
		},
		"zeros that would be defaults": {
			"limits: {streams: 0, refusalDelay: 0s, connectionAge: 0s}\npacing: {least: 0s, most: 0s}\nconfigSources:\n" +
				"- {address: 'fs:///a', emptyGrace: 0s, maxFileBytes: 0, precedence: 0, guard: {min: 0, window: 0s}, merge: {endpoints: {priority: " +
				"0}}}\n" +
				"- {name: c, address: 'consul://a:1', grace: 0s, rampRate: 0}",
			[]string{
				"t.yaml:1:19: limits.streams: 0 is not a limit; leave the key out for the default, or write a negative number for none",
				"t.yaml:1:36: limits.refusalDelay: want more than 0; leave the key out for the default",
				"t.yaml:1:55: limits.connectionAge: want more than 0; leave the key out for the default",
				"t.yaml:2:27: pacing.most: want more than 0; leave the key out for the default",
				"t.yaml:4:36: configSources[0].emptyGrace: want more than 0; leave the key out for the default",
				"t.yaml:4:54: configSources[0].maxFileBytes: want more than 0; leave the key out for the default",
				"t.yaml:4:96: configSources[0].guard.window: want more than 0; leave the key out for the default",
				"t.yaml:5:45: configSources[1].grace: want more than 0; leave the key out for the default",
				"t.yaml:5:59: configSources[1].rampRate: want more than 0; leave the key out for the default",
			},
		},
		"no state, in another way": {
			"stateDir: Off\nconfigSources: [{address: 'fs:///a'}]",
			[]string{"t.yaml:1:11: stateDir: want off for none, or ./Off for a directory of that name"},
		},
		"addresses": {
			"configSources:\n- address: nfs:///a\n- address: /etc/rules\n- address: 'fs://'\n",
			[]string{
				`t.yaml:2:12: configSources[0].address: unknown scheme "nfs" (did you mean fs?); known: ` + schemeNames(),
				`t.yaml:3:12: configSources[1].address: want SCHEME://…, got "/etc/rules"; a directory is written fs:///dir`,
				`t.yaml:4:12: configSources[2].address: nothing after "fs://"`,
			},
		},
		"names": {
			"configSources:\n- address: fs:///a/rules\n- address: fs:///b/rules\n- {address: 'fs:///c', name: 'a/b'}\n",
			[]string{
				"t.yaml:3:3: configSources[1].name: \"rules\" is also the name of configSources[0]; give each source a `name` of its own",
				"t.yaml:4:30: configSources[2].name: want letters, digits and `.` `_` `-` within, got \"a/b\"",
			},
		},
		"long names": {
			"configSources:\n- {address: 'fs:///c', name: " + strings.Repeat("a", 201) + "}\n",
			[]string{"t.yaml:2:30: configSources[0].name: want at most 200 characters, got 201; its file in the state directory has this name"},
		},
		"merge": {
			"configSources:\n- {address: 'fs:///a', merge: all}\n- {address: 'fs:///b', merge: {endpoints: {priority: -1, locality: eu//a}}}\n",
			[]string{
				"t.yaml:2:31: configSources[0].merge: want endpoints or a mapping such as {endpoints: {priority: 1}}, got \"all\"",
				"t.yaml:3:54: configSources[1].merge.endpoints.priority: want 0 or more, got -1",
				"t.yaml:3:68: configSources[1].merge.endpoints.locality: want region, region/zone or region/zone/subzone, got \"eu//a\"",
			},
		},
		"guard": {
			"configSources:\n- {address: 'fs:///a', guard: no}\n- {address: 'fs:///b', guard: {share: 150%, min: -1, holdFor: -1s, windows: 1s}}\n",
			[]string{
				"t.yaml:2:31: configSources[0].guard: want off or a mapping such as {share: 30%}, got \"no\"",
				"t.yaml:3:39: configSources[1].guard.share: want a share such as 50%, got \"150%\"",
				"t.yaml:3:50: configSources[1].guard.min: want 0 or more, got -1",
				"t.yaml:3:63: configSources[1].guard.holdFor: want more than 0, got -1s",
				"t.yaml:3:68: configSources[1].guard.windows: unknown key (did you mean window?); known here: holdFor, min, share, window",
			},
		},
		"transform": {
			"configSources:\n- address: fs:///a\n  transform:\n    hosts:\n    - {match: '*.consul', to: '{2}'}\n- {address: 'fs:///b', " +
				"transform: {include: [{}]}}\n",
			[]string{
				"t.yaml:5:31: configSources[0].transform.hosts[0].to: want only {1}, for the * of *.consul, got \"{2}\"",
				"t.yaml:6:46: configSources[1].transform.include[0]: selects everything; name kinds, namespaces, names, labels or hosts",
			},
		},
		"settings with which no object is valid": {
			`configSources:
- address: fs:///a
  transform:
    labels:
      add: {a b: x}
- {address: 'fs:///b', transform: {labels: {add: {app: "no: value"}}}}
- {address: 'fs:///c', transform: {labels: {add: {"a: b": x}}}}
- {address: 'fs:///d', transform: {annotations: {add: {_: x}}}}
- {address: 'fs:///e', transform: {namespaces: {a: Shop}}}
- {address: 'fs:///f', transform: {hosts: [{match: '*.consul', to: '{1}_mesh'}]}}
- {address: 'fs:///g', defaultNamespace: My_Mesh}
- {address: 'fs:///h', domainSuffix: cluster_local}
- {address: 'consul-kv://c:8500/p', defaultNamespace: My.Mesh}
- {address: 'consul://c:8500', namespace: Consul}
- {address: 'consul://d:8500', hostTemplate: '{service}.a_b'}
- {address: 'consul://e:8500', labelPrefix: '-'}
- {address: 'zookeeper://z:2181', labelParams: [a b]}
- {address: 'nacos://n:8848?kind=services', namespace: a.b}
`,
			[]string{
				"t.yaml:5:18: configSources[0].transform.labels.add.a b: \"a b\" is not a key: only letters, digits, '-', '_' and '.', with a letter " +
					"or digit at either end",
				"t.yaml:6:56: configSources[1].transform.labels.add.app: \"no: value\" is not a label value: only letters, digits, '-', '_' and '.', " +
					"with a letter or digit at either end",
				"t.yaml:7:59: configSources[2].transform.labels.add.a: b: \"a: b\" is not a key: only letters, digits, '-', '_' and '.', with a " +
					"letter or digit at either end",
				"t.yaml:8:59: configSources[3].transform.annotations.add._: \"_\" is not a key: only letters, digits, '-', '_' and '.', with a " +
					"letter or digit at either end",
				"t.yaml:9:52: configSources[4].transform.namespaces.a: \"Shop\" is not the name of a namespace: only a-z, 0-9 and '-', with a letter " +
					"or digit at either end",
				"t.yaml:10:68: configSources[5].transform.hosts[0].to: \"{1}_mesh\" makes no host: domain name \"x_mesh\" invalid (label \"x_mesh\" " +
					"invalid)",
				"t.yaml:11:42: configSources[6].defaultNamespace: \"My_Mesh\" is not the name of a namespace: only a-z, 0-9 and '-', with a letter " +
					"or digit at either end",
				"t.yaml:12:38: configSources[7].domainSuffix: want a domain such as cluster.local: \"cluster_local\" is not a name: only a-z, 0-9, " +
					"'-' and '.', with a letter or digit at either end and beside each '.'",
				"t.yaml:13:55: configSources[8].defaultNamespace: \"My.Mesh\" is not the name of a namespace: only a-z, 0-9 and '-', with a letter " +
					"or digit at either end",
				"t.yaml:14:43: configSources[9].namespace: \"Consul\" is not the name of a namespace",
				"t.yaml:15:46: configSources[10].hostTemplate: \"{service}.a_b\" makes no host: \"x.a_b\" is none",
				"t.yaml:16:45: configSources[11].labelPrefix: \"-\" cannot begin the key of a label",
				"t.yaml:17:48: configSources[12].labelParams: \"a b\" cannot be the key of a label",
				"t.yaml:18:56: configSources[13].namespace: \"a.b\" is not the name of a namespace",
			},
		},
		"a key of no scheme": {
			"configSources:\n- {address: 'fs:///a', quitDelay: 1s, xyzzy: 1}\n- {address: 'fs:///b', allServices: true}\n",
			[]string{
				"t.yaml:2:24: configSources[0].quitDelay: unknown key of fs addresses (did you mean quietDelay?); known here: address, " +
					"defaultNamespace, derive, domainSuffix, emptyGrace, followLinks, foreignKinds, guard, maxDelay, maxFileBytes, merge, name, " +
					"partialStart, precedence, quietDelay, required, rescanInterval, transform, unknownFields, validation",
				"t.yaml:2:39: configSources[0].xyzzy: unknown key of fs addresses; known here: address, defaultNamespace, derive, domainSuffix, " +
					"emptyGrace, followLinks, foreignKinds, guard, maxDelay, maxFileBytes, merge, name, partialStart, precedence, quietDelay, required, " +
					"rescanInterval, transform, unknownFields, validation",
				"t.yaml:3:24: configSources[1].allServices: unknown key of fs addresses (did you mean derive.allServices?); known here: " +
					"address, defaultNamespace, derive, domainSuffix, emptyGrace, followLinks, foreignKinds, guard, maxDelay, maxFileBytes, " +
					"merge, name, partialStart, precedence, quietDelay, required, rescanInterval, transform, unknownFields, validation",
			},
		},
		"fs settings": {
			"configSources:\n- {address: 'fs:///a', quietDelay: 1ns, subscribedResources: []}\n- {address: 'fs:///b', maxFileBytes: 1.5}\n",
			[]string{
				"t.yaml:2:36: configSources[0].quietDelay: want at least 1ms, got 1ns",
				"t.yaml:2:41: configSources[0].subscribedResources: not for fs addresses, but for xds; known here: address, defaultNamespace, " +
					"derive, domainSuffix, emptyGrace, followLinks, foreignKinds, guard, maxDelay, maxFileBytes, merge, name, partialStart, precedence, " +
					"quietDelay, required, rescanInterval, transform, unknownFields, validation",
				"t.yaml:3:38: configSources[1].maxFileBytes: want a whole number, got 1.5",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse("t.yaml", []byte(c.yaml))
			var e *config.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, c.want, strings.Split(e.Error(), "\n"))
		})
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

// serverSchemes returns the schemes that have tlsSettings.
func serverSchemes() string {
	var labels []string
	for _, scheme := range config.Schemes() {
		label := scheme.Names[0]
		if scheme.Kind != "" {
			label += "?kind=" + scheme.Kind
		}
		if reflect.ValueOf(scheme.Settings()).Elem().FieldByName("TLSSettings").IsValid() {
			labels = append(labels, label)
		}
	}
	return strings.Join(labels, " and ")
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
		c, err := config.Parse("t.yaml", []byte("configSources: [{"+settings+"}]"))
		require.NoError(t, err)
		assert.Equal(t, want, c.ConfigSources[0].PartialStart(), settings)
	}
}

// TestUnusedParameters_Warned has parameters that are let pass, as they may be for consumers and providers, and are like one
// that counts.
func TestUnusedParameters_Warned(t *testing.T) {
	c, err := config.Parse("/etc/t.yaml", []byte(`configSources:
- {name: a, address: "zookeeper://a?bakcup=b:2181&timeout=1000&application=x"}
- {name: b, address: "nacos://a?kind=services&Namespace=dev"}
- {name: c, address: "nacos://a?namespace=dev&grpcOffset=1000&check=false"}
- {name: d, address: "zookeeper://b?register-mode=instance"}
- {name: e, address: "consul://a:8500?kind=dubbo&datacenter=x&group=g"}
`))
	require.NoError(t, err)
	var warnings []string
	for _, w := range c.Warnings {
		warnings = append(warnings, w.String())
	}
	assert.Equal(t, []string{
		"/etc/t.yaml:2:22: configSources[0].address: the parameter bakcup is passed over; did you mean backup?",
		"/etc/t.yaml:3:22: configSources[1].address: the parameter Namespace is passed over; did you mean namespace?",
		"/etc/t.yaml:5:22: configSources[3].address: the parameter register-mode is passed over; what to read is said by registerMode beside " +
			"the address",
		"/etc/t.yaml:6:22: configSources[4].address: the parameter datacenter is passed over; did you mean dc?",
		"/etc/t.yaml:6:22: configSources[4].address: the parameter group is passed over: Consul has no groups, but dc, ns and partition",
	}, warnings)
}

// TestParse_CredentialParameters has parameters with secrets, of clouds and of Dubbo, that the sources would ignore.
func TestParse_CredentialParameters(t *testing.T) {
	for address, want := range map[string]string{
		"nacos://h:8848?accessKey=a":                    "the parameter accessKey is none of ours: keys of a cloud",
		"nacos://h:8848?kind=services&secretKey=s3cret": "the parameter secretKey is none of ours: keys of a cloud",
		"consul://h:1?kind=dubbo&acl-token=s3cret": "the parameter acl-token is none of ours: a token stands in the file that tokenFile " +
			"names",
		"consul+https://h:1?kind=dubbo&aclToken=s3cret": "the parameter aclToken is none of ours: a token stands",
	} {
		_, err := config.Parse("t.yaml", []byte("configSources: [{address: '"+address+"'}]"))
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

func TestSources_Duplicate(t *testing.T) {
	c, err := config.Parse("/etc/t.yaml", []byte(`configSources:
- {name: a, address: "fs:///rules"}
- {name: b, address: "fs:///other"}
- {name: c, address: "fs:///x/../rules", guard: off, precedence: 5, foreignKinds: warn}
- {name: d, address: "fs:///rules", transform: {namespaces: {a: b}}}
`))
	require.NoError(t, err)
	require.Len(t, c.Warnings, 1)
	assert.Equal(t, "/etc/t.yaml:4:22: configSources[2].address: source c reads the same as source a (/etc/t.yaml:2:22)",
		c.Warnings[0].String())
}
