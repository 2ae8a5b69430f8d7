package config_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"tributary/config"
)

// TestWholeText_ReadOrRefused has configurations with a part in an unexpected place.
func TestWholeText_ReadOrRefused(t *testing.T) {
	good := "configSources: [{address: 'fs:///rules'}]\n"
	_, err := config.Parse("t.yaml", []byte(good))
	require.NoError(t, err)
	for text, want := range map[string]string{
		"  " + good + "limits: {}\n":                      "t.yaml:2:1: text behind the end of the document",
		"{" + good + "} ]]]]":                             "t.yaml:2:1: text behind the end of the document",
		good + "---\n" + good:                             "t.yaml:2:1: text behind the end of the document",
		good + "...\n" + good:                             "text behind the end of the document",
		strings.ReplaceAll(good+"---\n"+good, "\n", "\r"): "text behind the end of the document",
		good + "&a stateDir: off\n*a : on\n":              "t.yaml:3:1: want a name as the key",
		good + "? [a]\n: b\n":                             "want a name as the key",
		good + "stateDir: !!null off\n":                   "stateDir: want a string",
		good + "debounce: {quiet: !x 5s}\n":               "t.yaml:2:",
		"a:\n  b: c\n d: e\n": "t.yaml:3:1: not valid YAML: this line is indented as none of those before it, or a " +
			"quote or bracket before it is not closed",
	} {
		_, err := config.Parse("t.yaml", []byte(text))
		require.ErrorContains(t, err, want, "%q", text)
	}
}

// FuzzWhole expects of a text that is accepted that the YAML parser finds one document in it, to its
// end.
func FuzzWhole(f *testing.F) {
	f.Add([]byte("configSources: [{address: 'fs:///rules', guard: off, merge: endpoints}]\n"))
	f.Add([]byte("listen: {xds: ':1'}\nconfigSources:\n- address: consul-kv://h:1/a\n  wait: 1m\n---\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := config.Parse("t.yaml", text); err != nil {
			return
		}
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		var node yaml.Node
		if err := decoder.Decode(&node); err != nil {
			t.Fatalf("accepted: %q: %v", text, err)
		}
		if err := decoder.Decode(&node); !errors.Is(err, io.EOF) {
			t.Fatalf("accepted, but not to its end: %q: %v", text, err)
		}
	})
}
