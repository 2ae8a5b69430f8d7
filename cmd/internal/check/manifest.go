package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/file"
)

// ManifestObject is an object to be stored.
type ManifestObject struct {
	*resource.Resource
	// Version is its metadata.resourceVersion; empty if it has none.
	Version string
}

// ReadManifest reads a file, a directory tree, or, if path is "-", stdin. It reports defects to the linter and returns
// the valid objects in order. namespace is that of objects that name none.
func ReadManifest(
	ctx context.Context, linter *Linter, path, namespace string, stdin io.Reader,
) ([]ManifestObject, error) {
	if path == "-" {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return nil, err
		}
		return ParseManifest(linter, "stdin", text, namespace)
	}
	contents, degraded, err := ReadFiles(ctx, FileAddress(path),
		file.Settings{Texts: manifestTexts(namespace), FollowLinks: true})
	if err != nil {
		return nil, err
	}
	if degraded != "" {
		return nil, errors.New(degraded)
	}
	linter.checkSource(Terms{}, contents)
	var objects []ManifestObject
	texts := make(map[string]map[resource.Key]string) // versions, by file
	for _, content := range contents {
		for _, object := range content.Resources {
			name := object.Origin().Place // file:line
			if i := strings.LastIndexByte(name, ':'); i > 0 {
				name = name[:i]
			}
			if _, read := texts[name]; !read {
				text, err := os.ReadFile(name)
				if err != nil {
					return nil, err
				}
				if texts[name], err = versions(text, namespace); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			}
			objects = append(objects, ManifestObject{object, texts[name][object.Key()]})
		}
	}
	return objects, nil
}

// manifestTexts says how manifests are read. An object of another API is an error: the user wants it stored.
func manifestTexts(namespace string) sources.Texts {
	return sources.Texts{DefaultNamespace: namespace, ForeignKinds: "error"}
}

// ParseManifest is ReadManifest for a text; place names it.
func ParseManifest(linter *Linter, place string, text []byte, namespace string) ([]ManifestObject, error) {
	given, versionless := versions(text, namespace)
	if versionless != nil {
		given = nil // decoding reports the malformed text
	}
	options, err := manifestTexts(namespace).Options()
	if err != nil {
		return nil, err
	}
	content := sources.Decode(place, place, text, options)
	if versionless != nil && len(content.Rejects) == 0 {
		return nil, fmt.Errorf("%s: %w", place, versionless)
	}
	linter.checkSource(Terms{}, []sources.Content{content})
	var objects []ManifestObject
	for _, r := range content.Resources {
		objects = append(objects, ManifestObject{r, given[r.Key()]})
	}
	return objects, nil
}

// objectHead holds the fields that identify an object.
type objectHead struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name            string `yaml:"name"`
		Namespace       string `yaml:"namespace"`
		ResourceVersion string `yaml:"resourceVersion"`
	} `yaml:"metadata"`
	Items []objectHead `yaml:"items"`
}

// versions returns the resourceVersion of each object. Decoding ignores it, since it is not content.
func versions(text []byte, namespace string) (map[resource.Key]string, error) {
	if !bytes.Contains(text, []byte("resourceVersion")) {
		return nil, nil //nolint:nilnil // the text has no versions
	}
	byObject := make(map[resource.Key]string)
	var collect func(object objectHead)
	collect = func(object objectHead) {
		for _, item := range object.Items {
			collect(item)
		}
		schema, ok := resource.SchemaByAPIVersion(object.APIVersion, object.Kind)
		if !ok {
			return
		}
		key := resource.Key{Kind: schema.Kind, Namespace: object.Metadata.Namespace, Name: object.Metadata.Name}
		if schema.Bare {
			key.Namespace = ""
		} else if key.Namespace == "" {
			key.Namespace = namespace
		}
		if object.Metadata.ResourceVersion != "" {
			byObject[key] = object.Metadata.ResourceVersion
		}
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var object objectHead
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return byObject, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the resource versions: %w", err)
		}
		collect(object)
	}
}

// WithVersion adds a resource version to the text of an object as package resource writes it, in YAML or JSON.
func WithVersion(text []byte, version string) []byte {
	switch {
	case version == "":
		return text
	case bytes.HasPrefix(text, []byte("{")):
		return bytes.Replace(text, []byte(`"metadata":{`), []byte(`"metadata":{"resourceVersion":"`+version+`",`), 1)
	default:
		return bytes.Replace(text, []byte("\nmetadata:\n"), []byte("\nmetadata:\n  resourceVersion: \""+version+"\"\n"), 1)
	}
}
