package consulkv

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"tributary/resource"
)

// keyOf returns the key of a new object: prefix/plural/namespace/name, as in the API of Kubernetes.
func (p *place) keyOf(key resource.Key) (string, error) {
	schema, ok := resource.SchemaOf(key.Kind)
	if !ok {
		return "", fmt.Errorf("unknown kind %q", key.Kind)
	}
	return p.prefix + path.Join(schema.Plural, key.Namespace, key.Name), nil
}

// replace returns the value of a key with the object r instead of the one with r's key, or appended. All other
// documents keep every byte.
func (p *place) replace(kvKey string, value []byte, r *resource.Resource) ([]byte, error) {
	if strings.EqualFold(path.Ext(kvKey), ".json") {
		return p.replaceJSON(kvKey, value, r)
	}
	text, err := resource.MarshalYAML(r)
	if err != nil {
		return nil, err
	}
	parts, index, err := p.find(kvKey, value, r.Key())
	if err != nil {
		return nil, err
	}
	if index < 0 {
		if p.count(kvKey, value) == 0 {
			return text, nil
		}
		return p.verified(kvKey, value, slices.Concat(bytes.TrimSuffix(value, []byte("\n")), []byte("\n---\n"), text),
			r.Key(), r)
	}
	if p.count(kvKey, value) == 1 {
		return text, nil
	}
	if mark := markOf(parts[index]); mark != nil {
		text = append(mark, text...)
	}
	parts[index] = text
	return p.verified(kvKey, value, bytes.Join(parts, nil), r.Key(), r)
}

// without returns the value of a key without an object, or nil if it has no other.
func (p *place) without(kvKey string, value []byte, key resource.Key) ([]byte, error) {
	if p.count(kvKey, value) == 1 {
		return nil, nil
	}
	parts, index, err := p.find(kvKey, value, key)
	if err != nil {
		return nil, err
	}
	if index < 0 {
		return value, nil
	}
	parts = append(parts[:index:index], parts[index+1:]...)
	return p.verified(kvKey, value, bytes.Join(parts, nil), key, nil)
}

// find splits a value into documents, and returns the index of the document with an object; -1 without one.
func (p *place) find(kvKey string, value []byte, key resource.Key) (parts [][]byte, index int, err error) {
	parts, index = documents(value), -1
	for i, part := range parts {
		docs := resource.Decode(kvKey, part, p.decode)
		for _, doc := range docs {
			if doc.Key != key || doc.Resource == nil {
				continue
			}
			if len(docs) > 1 {
				return nil, 0, fmt.Errorf("key %s has it in a list with others; write that key anew, with a document for each "+
					"object", kvKey)
			}
			if index < 0 { // the first one counts
				index = i
			}
		}
	}
	return parts, index, nil
}

// verified returns the new value if it has r, or no object, instead of the first object with key, and all others
// unchanged: a value that was split at the wrong place is not written.
func (p *place) verified(kvKey string, before, after []byte, key resource.Key, r *resource.Resource) ([]byte, error) {
	_, others := p.look(kvKey, before, key)
	got, rest := p.look(kvKey, after, key)
	if r == nil && got != nil { // the next object with that key counts now
		if i := slices.Index(others, got.Version()); i >= 0 {
			others = slices.Delete(others, i, i+1)
			r = got
		}
	}
	if !resource.Equal(r, got) || !slices.Equal(others, rest) {
		return nil, fmt.Errorf("key %s cannot be changed in part; write it anew", kvKey)
	}
	return after, nil
}

// look returns the first object with key in a value, and the versions of all others; broken ones have none.
func (p *place) look(kvKey string, value []byte, key resource.Key) (object *resource.Resource, others []string) {
	for _, doc := range resource.Decode(kvKey, value, p.decode) {
		switch {
		case doc.Resource == nil:
			others = append(others, "")
		case doc.Key == key && object == nil:
			object = doc.Resource
		case doc.Key == key:
			others = append(others, doc.Resource.Version())
		default:
			others = append(others, doc.Key.String()+" "+doc.Resource.Version())
		}
	}
	return object, others
}

// replaceJSON is replace for keys in JSON. It refuses values with several objects.
func (p *place) replaceJSON(kvKey string, value []byte, r *resource.Resource) ([]byte, error) {
	if docs := resource.Decode(kvKey, value, p.decode); len(docs) > 1 || len(docs) == 1 && docs[0].Key != r.Key() {
		return nil, fmt.Errorf("key %s is JSON and has other objects, too; write it anew", kvKey)
	}
	text, err := resource.MarshalJSON(r)
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

func (p *place) count(kvKey string, value []byte) int {
	return len(resource.Decode(kvKey, value, p.decode))
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

// markOf returns the line that begins a document, if part starts with a plain one.
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
