package consulkv

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"tributary/memstore"
	"tributary/resource"
)

// keyOf returns the key of a new object: prefix/plural/namespace/name, as in the API of Kubernetes.
func (p *place) keyOf(key resource.Key) (string, error) {
	schema, ok := resource.SchemaOf(key.Kind)
	if !ok {
		return "", memstore.ErrUnknownKind
	}
	return p.prefix + path.Join(schema.Plural, key.Namespace, key.Name), nil
}

// replace returns the value of kvKey with object in the place of the first object with its key, or else at the end.
// Without object, it deletes that first object, and returns nil if no document remains. All other documents keep every
// byte.
func (p *place) replace(kvKey string, value []byte, key resource.Key, object *resource.Resource) ([]byte, error) {
	docs := resource.Decode(kvKey, value, p.decode)
	var text []byte
	var err error
	switch {
	case object == nil:
	case !strings.EqualFold(path.Ext(kvKey), ".json"):
		text, err = resource.MarshalYAML(object)
	case len(docs) > 1 || len(docs) == 1 && docs[0].Key != key:
		return nil, fmt.Errorf("key %s is JSON and has other objects, too; write it again as a whole", kvKey)
	default:
		text, err = resource.MarshalJSON(object)
		return append(text, '\n'), err
	}
	if err != nil {
		return nil, err
	}
	parts, index, err := p.find(kvKey, value, key)
	switch {
	case err != nil:
		return nil, err
	case len(docs) == 0, len(docs) == 1 && (index >= 0 || object == nil):
		return text, nil
	case index < 0 && object == nil:
		return value, nil
	case index < 0:
		parts = [][]byte{bytes.TrimSuffix(value, []byte("\n")), []byte("\n---\n"), text}
	case object == nil:
		parts = slices.Delete(parts, index, index+1)
	default:
		parts[index] = append(markOf(parts[index]), text...)
	}
	return p.verified(kvKey, value, bytes.Join(parts, nil), key, object)
}

// find splits a value into documents, and returns the index of the document with an object; -1 without one.
func (p *place) find(kvKey string, value []byte, key resource.Key) (parts [][]byte, index int, err error) {
	parts = documents(value)
	index = -1
	for i, part := range parts {
		docs := resource.Decode(kvKey, part, p.decode)
		for _, doc := range docs {
			if doc.Key != key || doc.Resource == nil {
				continue
			}
			if len(docs) > 1 {
				return nil, 0, fmt.Errorf("key %s has it in a list with others; write that key again, with a document for each "+
					"object", kvKey)
			}
			if index < 0 { // the first one counts
				index = i
			}
		}
	}
	return parts, index, nil
}

// verified returns the new value after a check: it has object in the place of the first object with key, or no such
// object, and all others are unchanged. A value that was split at the wrong place is not written.
func (p *place) verified(
	kvKey string, before, after []byte, key resource.Key, object *resource.Resource,
) ([]byte, error) {
	_, versions := p.inspect(kvKey, before, key)
	decoded, rest := p.inspect(kvKey, after, key)
	if object == nil && decoded != nil { // the next object with that key counts now
		if i := slices.Index(versions, decoded.Version()); i >= 0 {
			versions = slices.Delete(versions, i, i+1)
			object = decoded
		}
	}
	if !resource.Equal(object, decoded) || !slices.Equal(versions, rest) {
		return nil, fmt.Errorf("key %s cannot be changed in part; write it as a whole", kvKey)
	}
	return after, nil
}

// inspect returns the first object with key in a value, and the versions of all others; broken ones have none.
func (p *place) inspect(kvKey string, value []byte, key resource.Key) (object *resource.Resource, versions []string) {
	for _, document := range resource.Decode(kvKey, value, p.decode) {
		switch {
		case document.Resource == nil:
			versions = append(versions, "")
		case document.Key == key && object == nil:
			object = document.Resource
		case document.Key == key:
			versions = append(versions, document.Resource.Version())
		default:
			versions = append(versions, document.Key.String()+" "+document.Resource.Version())
		}
	}
	return object, versions
}

// documents splits YAML into documents, each with its marker.
func documents(value []byte) [][]byte {
	var parts [][]byte
	for line := range bytes.SplitAfterSeq(value, []byte("\n")) {
		last := len(parts) - 1
		if last < 0 || len(parts[last]) > 0 && markOf(line) != nil {
			parts = append(parts, line)
		} else {
			parts[last] = append(parts[last], line...)
		}
	}
	return parts
}

// markOf returns the line --- that begins a part, with its comment; nil if there is none, or it has content.
func markOf(part []byte) []byte {
	line, _, _ := bytes.Cut(part, []byte("\n"))
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	if !ok {
		return nil
	}
	text := bytes.TrimSpace(rest)
	if len(text) > 0 && (text[0] != '#' || rest[0] != ' ' && rest[0] != '\t') {
		return nil
	}
	return append(bytes.Clone(line), '\n')
}
