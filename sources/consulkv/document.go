package consulkv

import (
	"bytes"
	"fmt"
	"path"
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
		return bytes.Join([][]byte{endLine(value), []byte("---\n"), text}, nil), nil
	}
	if p.count(kvKey, value) == 1 {
		return text, nil
	}
	if mark := markOf(parts[at]); mark != nil {
		text = append(mark, text...)
	}
	parts[at] = text
	return p.verified(kvKey, value, bytes.Join(parts, nil), 0)
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
	return p.verified(kvKey, value, bytes.Join(parts, nil), -1)
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

// verified returns the new value if it has as many documents as it should: what was cut at the wrong place is not written.
func (p *place) verified(kvKey string, before, after []byte, more int) ([]byte, error) {
	if got, want := p.count(kvKey, after), p.count(kvKey, before)+more; got != want {
		return nil, fmt.Errorf("key %s cannot be changed in part: it would have %d documents, not %d; write it anew", kvKey, got, want)
	}
	return after, nil
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
	start := 0
	for pos := 0; pos < len(value); {
		end := len(value)
		if i := bytes.IndexByte(value[pos:], '\n'); i >= 0 {
			end = pos + i + 1
		}
		if pos > start && markOf(value[pos:end]) != nil {
			parts = append(parts, value[start:pos])
			start = pos
		}
		pos = end
	}
	return append(parts, value[start:])
}

// markOf returns the line that begins a document, if part starts with a plain one.
func markOf(part []byte) []byte {
	line, _, _ := bytes.Cut(part, []byte("\n"))
	if !bytes.HasPrefix(line, []byte("---")) || len(bytes.TrimSpace(line[3:])) > 0 && !bytes.HasPrefix(bytes.TrimSpace(line[3:]), []byte("#")) {
		return nil
	}
	return append(bytes.Clone(line), '\n')
}

func endLine(text []byte) []byte {
	if bytes.HasSuffix(text, []byte("\n")) {
		return text
	}
	return append(bytes.Clone(text), '\n')
}
