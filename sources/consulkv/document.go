package consulkv

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"tributary/resource"
)

// keyOf is where an object goes that is not there yet: prefix/plural/namespace/name, as in the API of Kubernetes.
func (p *place) keyOf(key resource.Key) (string, error) {
	schema, ok := resource.SchemaOf(key.Kind)
	if !ok {
		return "", fmt.Errorf("unknown kind %q", key.Kind)
	}
	return p.prefix + path.Join(schema.Plural, key.Namespace, key.Name), nil
}

// replace returns the value of a key with the object r in the place of the one that has r's key, or added if there is none.
// All other documents keep every byte.
func (p *place) replace(kvKey string, value []byte, r *resource.Resource) ([]byte, error) {
	if strings.EqualFold(path.Ext(kvKey), ".json") {
		return p.replaceJSON(kvKey, value, r)
	}
	text, err := resource.MarshalYAML(r)
	if err != nil {
		return nil, err
	}
	parts, at, err := p.find(kvKey, value, r.Key())
	if err != nil {
		return nil, err
	}
	if at < 0 {
		if p.count(kvKey, value) == 0 {
			return text, nil
		}
		return p.verified(kvKey, value, slices.Concat(bytes.TrimSuffix(value, []byte("\n")), []byte("\n---\n"), text), r.Key(), r)
	}
	if p.count(kvKey, value) == 1 {
		return text, nil
	}
	if mark := markOf(parts[at]); mark != nil {
		text = append(mark, text...)
	}
	parts[at] = text
	return p.verified(kvKey, value, bytes.Join(parts, nil), r.Key(), r)
}

// without returns the value of a key without the object of key, or nil if nothing else is in it.
func (p *place) without(kvKey string, value []byte, key resource.Key) ([]byte, error) {
	if p.count(kvKey, value) == 1 {
		return nil, nil
	}
	parts, at, err := p.find(kvKey, value, key)
	if err != nil {
		return nil, err
	}
	if at < 0 {
		return value, nil
	}
	parts = append(parts[:at:at], parts[at+1:]...)
	return p.verified(kvKey, value, bytes.Join(parts, nil), key, nil)
}

// find cuts a value into documents, and returns which of them has the object of key; -1 for none.
func (p *place) find(kvKey string, value []byte, key resource.Key) (parts [][]byte, at int, err error) {
	parts, at = documents(value), -1
	for i, part := range parts {
		docs := resource.Decode(kvKey, part, p.decode)
		for _, doc := range docs {
			if doc.Key != key || doc.Resource == nil {
				continue
			}
			if len(docs) > 1 {
				return nil, 0, fmt.Errorf("key %s has it in a list with others; write that key anew, with a document for each object", kvKey)
			}
			if at < 0 { // of several the first counts
				at = i
			}
		}
	}
	return parts, at, nil
}

// verified returns the new value if it has r, or nothing, in the place of the first object with key, and all else as it was:
// what was cut at the wrong place is not written.
func (p *place) verified(kvKey string, before, after []byte, key resource.Key, r *resource.Resource) ([]byte, error) {
	_, others := p.look(kvKey, before, key)
	got, rest := p.look(kvKey, after, key)
	if r == nil && got != nil { // of several with one key the next counts now, and is one of the others no longer
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

// look returns the first object with key in a value, and the versions of all others; a broken one has none.
func (p *place) look(kvKey string, value []byte, key resource.Key) (found *resource.Resource, others []string) {
	for _, doc := range resource.Decode(kvKey, value, p.decode) {
		switch {
		case doc.Resource == nil:
			others = append(others, "")
		case doc.Key == key && found == nil:
			found = doc.Resource
		case doc.Key == key:
			others = append(others, doc.Resource.Version())
		default:
			others = append(others, doc.Key.String()+" "+doc.Resource.Version())
		}
	}
	return found, others
}

// replaceJSON is replace for keys that are read as JSON, which are written if the object is alone.
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

// documents cuts YAML into documents, each with the mark that begins it.
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
