package resource

import (
	"crypto/sha256"
	"fmt"
	"slices"
)

// DecodeCache has the decoded parts of a text. Decoding the next text of the same file reuses the parts that did not
// change. The zero value stands for no earlier text. It is immutable.
type DecodeCache struct {
	path  string
	opts  Options
	parts map[[16]byte]part // by content
	size  int
}

// part is the result of decoding one YAML document, which may be a list.
type part struct {
	line    int // of the file, where it began
	docs    []Document
	objects int64 // the objects that the budget counts
}

// DecodeIncremental is Decode with the cache of an earlier text of the file, and returns the cache of this one. Its
// cost is that of the changed parts, and of reading the text once. Its result is that of Decode, lines included.
func DecodeIncremental(path string, data []byte, opts Options, earlier *DecodeCache) ([]Document, *DecodeCache) {
	file := newFile(path, data, opts)
	if earlier.path == file.path && earlier.opts == file.opts {
		file.earlier = earlier.parts
	}
	file.parts = make(map[[16]byte]part)
	next := &DecodeCache{path: file.path, opts: file.opts, parts: file.parts}
	docs := file.decode(data)
	next.size = len(docs) + len(file.parts)
	return docs, next
}

// Size is the number of cached documents and parts.
func (d *DecodeCache) Size() int { return d.size }

// contentSum identifies the text of a chunk.
func contentSum(c chunk) [16]byte {
	sum := sha256.Sum256(c.text)
	return [16]byte(sum[:16])
}

// decodePart is decodeYAML with the parts of the earlier text. It reports whether the cache may have the result.
func (f *file) decodePart(input chunk, sum [16]byte) (decoded part, isCacheable bool) {
	if cached, exists := f.earlier[sum]; exists && input.fault == "" {
		f.budget.objects.Add(cached.objects)
		next := part{line: input.line, objects: cached.objects}
		for _, doc := range cached.docs {
			next.docs = append(next.docs, doc.moved(f.path, input.line-cached.line))
		}
		f.docs = append(f.docs, next.docs...)
		return next, true
	}
	first := len(f.docs)
	f.objects, f.aliased = 0, false
	f.decodeYAML(input)
	decoded = part{line: input.line, docs: slices.Clone(f.docs[first:]), objects: f.objects}
	return decoded, !f.aliased && !slices.ContainsFunc(decoded.docs, Document.hasLineRemarks)
}

// hasLineRemarks reports whether a document has remarks that depend on its lines, other than its first line.
func (d Document) hasLineRemarks() bool {
	return len(d.Errors)+len(d.Warnings) > 0 ||
		d.Resource != nil && d.Resource.verdict != nil && d.Resource.verdict != faultless
}

// moved returns a document whose text moved down by a number of lines.
func (d Document) moved(path string, lines int) Document {
	if lines == 0 {
		return d
	}
	d.Line += lines
	if d.Resource != nil {
		d.Resource = d.Resource.WithOrigin(Origin{Place: fmt.Sprintf("%s:%d", path, d.Line)})
	}
	return d
}
