package envoytest

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	sigsyaml "sigs.k8s.io/yaml"

	"tributary/memstore"
	"tributary/resource"
)

// Case is a golden case: a folder of a txtar archive, or the whole archive if it has no folders. The files beside the
// folders belong to every case, and a file of a case precedes the file of the same name there. The comment of an archive
// states the rule.
//
//	input.yaml     objects of the mesh; a case has those of the archive and its own
//	node.yaml      the node of the client as it sends it; Node has the default
//	values         lines NAME = TEXT: the text stands for $NAME in the two files above
//	want.yaml      the resources that the lines "# select:" at its start name, as Select describes
//	want.findings  the findings of each object
type Case struct {
	*testing.T

	archive *txtar.Archive
	folder  string
	update  bool
}

// Goldens runs the cases of the archives that match a pattern. With update, it rewrites their answers.
func Goldens(t *testing.T, update bool, pattern string, run func(*Case)) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, paths, pattern)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			require.NoError(t, err)
			folders := make(map[string]bool)
			for _, file := range archive.Files {
				if folder, _, found := strings.Cut(file.Name, "/"); found {
					folders[folder] = true
				}
			}
			if len(folders) == 0 {
				run(&Case{T: t, archive: archive, update: update})
			}
			for _, folder := range slices.Sorted(maps.Keys(folders)) {
				t.Run(folder, func(t *testing.T) {
					run(&Case{T: t, archive: archive, folder: folder + "/", update: update})
				})
			}
			if update {
				require.NoError(t, os.WriteFile(path, txtar.Format(archive), 0o600))
			}
		})
	}
}

// file returns a file of the case, or else of all cases, or nil.
func (c *Case) file(name string) *txtar.File {
	for _, full := range []string{c.folder + name, name} {
		for i := range c.archive.Files {
			if c.archive.Files[i].Name == full {
				return &c.archive.Files[i]
			}
		}
	}
	return nil
}

// Has returns whether the case has a file.
func (c *Case) Has(name string) bool { return c.file(name) != nil }

// Text returns the content of a file of the case, or else of all cases.
func (c *Case) Text(name string) string {
	if file := c.file(name); file != nil {
		return string(file.Data)
	}
	return ""
}

// Joined returns the content of a file of all cases, and of the case's own.
func (c *Case) Joined(name, separator string) string {
	own := c.Text(name)
	if everyCase := (&Case{archive: c.archive}).Text(name); everyCase != own {
		return everyCase + separator + own
	}
	return own
}

// filled replaces the names of values in a text.
func (c *Case) filled(text string) string {
	for line := range strings.Lines(c.Text("values") + (&Case{archive: c.archive}).Text("values")) {
		if name, value, found := strings.Cut(strings.TrimSuffix(line, "\n"), " = "); found {
			text = strings.ReplaceAll(text, "$"+name, value)
		}
	}
	return text
}

// Objects returns the objects of input.yaml, valid or not.
func (c *Case) Objects() (objects []*resource.Resource) {
	c.Helper()
	text := c.filled(c.Joined("input.yaml", "---\n"))
	for _, document := range resource.Decode("input.yaml", []byte(text), resource.Options{}) {
		require.Empty(c, document.Errors, text)
		if document.Resource != nil {
			objects = append(objects, document.Resource)
		}
	}
	return objects
}

// Table returns a table with the objects of input.yaml.
func (c *Case) Table() *memstore.Table {
	c.Helper()
	table := new(memstore.Table)
	table.Apply(c.Objects(), nil)
	return table
}

// Node returns the client of node.yaml, or a sidecar in namespace default.
func (c *Case) Node() *corev3.Node {
	c.Helper()
	text := cmp.Or(c.Text("node.yaml"), "{id: node, metadata: {NAMESPACE: default, LABELS: {app: one}}}")
	return Read(c, new(corev3.Node), c.filled(text))
}

// Read decodes a message that is written as YAML.
func Read[M proto.Message](t testing.TB, message M, text string) M {
	t.Helper()
	body, err := sigsyaml.YAMLToJSON([]byte(text))
	require.NoError(t, err, text)
	require.NoError(t, protojson.Unmarshal(body, message), text)
	return message
}

// Expect compares a text with a file of the archive, or writes it there. Comments at the start of the file stay.
func (c *Case) Expect(name, got string) {
	c.Helper()
	file := c.file(name)
	require.NotNil(c, file, "the archive has no %s", c.folder+name)
	comments := comments(string(file.Data))
	got = strings.ReplaceAll(got, "\u00a0", " ") // Errors of the protobuf library have either.
	if c.update {
		file.Data = []byte(comments + got)
	}
	require.Equal(c, string(file.Data), comments+got)
}

// comments returns the comments at the start of a text.
func comments(text string) string {
	end := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			break
		}
		end += len(line)
	}
	return text[:end]
}

// ExpectFindings compares the findings of each object of input.yaml with want.findings, if the archive has this file.
func (c *Case) ExpectFindings(findings func(*resource.Resource) []string) {
	c.Helper()
	if !c.Has("want.findings") {
		return
	}
	var lines strings.Builder
	table := c.Table()
	for object := range table.Snapshot().All() {
		if texts := findings(object); len(texts) > 0 {
			lines.WriteString(object.Key().String() + "\n  " + strings.Join(texts, "\n  ") + "\n")
		}
	}
	c.Expect("want.findings", lines.String())
}

// ExpectResources compares the selected parts of resources with want.yaml, if the archive has this file.
func (c *Case) ExpectResources(resources ...proto.Message) {
	c.Helper()
	documents := make(map[string]proto.Message)
	for _, message := range resources {
		documents[nameOf(message)] = message
	}
	c.ExpectMessages(documents)
}

// ExpectMessages compares the selected parts of messages by name with want.yaml, if the archive has this file.
func (c *Case) ExpectMessages(messages map[string]proto.Message) {
	c.Helper()
	if !c.Has("want.yaml") {
		return
	}
	documents := make(map[string]json.RawMessage)
	for name, message := range messages {
		body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
		require.NoError(c, err)
		documents[name] = body
	}
	selection, err := Select(documents, comments(c.Text("want.yaml")))
	require.NoError(c, err)
	c.Expect("want.yaml", selection)
}

// nameOf returns the type and the name of a resource of Envoy.
func nameOf(message proto.Message) string {
	fields := message.ProtoReflect().Descriptor().Fields()
	field := cmp.Or(fields.ByName("name"), fields.ByName("cluster_name"))
	return string(message.ProtoReflect().Descriptor().Name()) + "/" + message.ProtoReflect().Get(field).String()
}

// YAML writes a message.
func YAML(t testing.TB, message proto.Message) string {
	t.Helper()
	body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	require.NoError(t, err)
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal(body, &document))
	text, err := encode(document.Content[0])
	require.NoError(t, err)
	return text
}
