package config_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"go.yaml.in/yaml/v3"

	"tributary/config"
)

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
