package resource

import (
	"crypto/sha256"
	"fmt"
	"slices"
)

// Decoded is the result of decoding a text, part by part, which the next text of the same file reuses for unchanged
// parts. The zero value stands for no earlier text. It is immutable.
type Decoded struct {
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

// DecodeAgain is Decode for a text with a known earlier version. Its cost is that of the changed parts, and of reading
// the text once. Its result is that of Decode, lines included.
func DecodeAgain(path string, data []byte, opts Options, earlier *Decoded) ([]Document, *Decoded) {
	file := newFile(path, data, opts)
	if earlier.path == file.path && earlier.opts == file.opts {
		file.earlier = earlier.parts
	}
	file.parts = make(map[[16]byte]part)
	next := &Decoded{path: file.path, opts: file.opts, parts: file.parts}
	docs := file.decode(data)
	next.size = len(docs) + len(file.parts)
	return docs, next
}

// Size is the number of known documents, and of parts of the text without documents.
func (d *Decoded) Size() int { return d.size }

// contentOf identifies the text of a chunk.
func contentOf(c chunk) [16]byte {
	sum := sha256.Sum256(c.text)
	return [16]byte(sum[:16])
}

// decodePart is decodeYAML for a text that the earlier text may have. The result may be kept unless the second one is
// false.
func (f *file) decodePart(input chunk, sum [16]byte) (part, bool) {
	if decoded, exists := f.earlier[sum]; exists && input.fault == "" {
		f.budget.objects.Add(decoded.objects)
		next := part{line: input.line, objects: decoded.objects}
		for _, doc := range decoded.docs {
			next.docs = append(next.docs, doc.moved(f.path, input.line-decoded.line))
		}
		f.docs = append(f.docs, next.docs...)
		return next, true
	}
	first := len(f.docs)
	f.objects, f.aliased = 0, false
	f.decodeYAML(input)
	decoded := part{line: input.line, docs: slices.Clone(f.docs[first:]), objects: f.objects}
	return decoded, !f.aliased && !slices.ContainsFunc(decoded.docs, Document.remarkable)
}

// remarkable reports whether a document has remarks that depend on its lines, other than its first line.
func (d Document) remarkable() bool {
	return len(d.Errors)+len(d.Warnings) > 0 ||
		d.Resource != nil && d.Resource.verdict != nil && d.Resource.verdict != faultless
}

// moved returns a document as it is so many lines further down.
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
