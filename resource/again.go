package resource

import (
	"crypto/sha256"
	"fmt"
	"slices"
)

// Decoded is what became of a text, part by part, for the next text of the same file: what has not changed is taken over. The
// zero value is that of a text of which nothing is known. It is never changed.
type Decoded struct {
	path  string
	opts  Options
	parts map[[16]byte]part // by content
	size  int
}

// part is what became of the text of one YAML document, which is a list, maybe.
type part struct {
	line    int // of the file, where it began
	docs    []Document
	objects int64 // that the budget counts
}

// DecodeAgain is Decode for a text of which an earlier version is known. It costs as much as what is new in it, besides reading it
// once. What is taken over is what Decode would return, lines included.
func DecodeAgain(path string, data []byte, opts Options, earlier *Decoded) ([]Document, *Decoded) {
	f := newFile(path, data, opts)
	if earlier.path == f.path && earlier.opts == f.opts {
		f.earlier = earlier.parts
	}
	f.parts = make(map[[16]byte]part)
	next := &Decoded{path: f.path, opts: f.opts, parts: f.parts}
	docs := f.decode(data)
	next.size = len(docs) + len(f.parts)
	return docs, next
}

// Size is how many documents are known, and parts of the text: it may have many of which there is nothing to say.
func (d *Decoded) Size() int { return d.size }

// contentOf identifies the text of a chunk.
func contentOf(c chunk) (sum [16]byte) {
	all := sha256.Sum256(c.text)
	copy(sum[:], all[:])
	return sum
}

// decodePart is decodeYAML for a text that may be known from earlier. It returns what is to be known of it later, if anything.
func (f *file) decodePart(c chunk, sum [16]byte) (part, bool) {
	if p, known := f.earlier[sum]; known && c.fault == "" {
		f.budget.objects.Add(p.objects)
		next := part{line: c.line, objects: p.objects}
		for _, doc := range p.docs {
			next.docs = append(next.docs, doc.moved(f.path, c.line-p.line))
		}
		f.docs = append(f.docs, next.docs...)
		return next, true
	}
	first := len(f.docs)
	f.objects, f.aliased = 0, false
	f.decodeYAML(c)
	p := part{line: c.line, docs: slices.Clone(f.docs[first:]), objects: f.objects}
	return p, !f.aliased && !slices.ContainsFunc(p.docs, Document.remarkable)
}

// remarkable reports whether there is more to say of a document than where it begins, which would have to be said of other lines.
func (d Document) remarkable() bool {
	return len(d.Errors)+len(d.Warnings) > 0 || d.Resource != nil && d.Resource.verdict != nil && d.Resource.verdict != faultless
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
