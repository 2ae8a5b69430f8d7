package resource

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	"tributary/internal/words"
	"tributary/internal/worker"
	"tributary/internal/yamldoc"
)

// Severity is the effect of a finding on the object.
type Severity int

// The severities.
const (
	SeverityError   Severity = iota // the object is refused
	SeverityWarning                 // the object is taken, and the finding is reported
)

// Options are the settings of Decode. The zero value is the strict default.
type Options struct {
	// DefaultNamespace is that of objects that name none; "default" if empty.
	DefaultNamespace string
	// UnknownFields is the severity of fields that this version of the API does not have. With SeverityWarning they are
	// dropped: for files of a newer Istio.
	UnknownFields Severity
	// ForeignKinds is the treatment of objects of other APIs than Istio's.
	ForeignKinds Foreign
	// DomainSuffix completes host names without a dot in VirtualServices and DestinationRules, as istiod does with those
	// that it reads itself: "details" in namespace shop is "details.shop.svc." and this. If it is empty, they stay.
	DomainSuffix string
	// Validate validates each resource at once, with the decoded text: Validate then returns the findings with the lines
	// of their fields, at no further cost.
	Validate bool
	// Keep names kinds of other APIs, as "Kind.group" with blanks between. Document.Other has their objects.
	Keep string
	// MaxBytes bounds the length of a text; 64 MiB if it is 0. A longer text is one broken document.
	MaxBytes int
}

// Document is one object of a file: a document of a multi-document file, or an item of a `kind: List`.
type Document struct {
	Line int // of the file, where the object begins; from 1
	// Key is the known part of the identity. The kind may be mistyped; without a name, the object is unknown.
	Key Key
	// MayRestrict reports that the document has errors and may be an object that restricts traffic, but that it is unknown
	// which one.
	MayRestrict bool
	Foreign     bool   // an object of another API than Istio's; it has errors only if the options say so
	Other       *Other // the object, if it is foreign and Options.Keep names its kind
	// nil if there are errors, for a foreign object, and for a list, which is here only for its own problems
	Resource *Resource
	Errors   Errors // all errors up to a limit
	Warnings Errors
}

// Other is an object of another API than Istio's, which is not checked.
type Other struct {
	APIVersion string
	JSON       []byte
}

// lastApplied is the annotation in which kubectl keeps a copy of the whole object. It is no content.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Decode reads the objects of a file in the form of `kubectl apply`, YAML or JSON, with any number of documents. It is
// strict: an unknown or unrepresentable part is an error, and never dropped silently. Broken documents do not affect
// the others. Documents without content are no objects. Field values follow the JSON mapping of protobuf, and, as in
// Istio and kubectl, durations may have Go's form ("1m30s") and the plain words yes, no, on, off are booleans.
//
// An accepted text was read to its end: text outside of documents is an error. The cost of a text is bounded: parts
// beyond the limit are refused.
//
// path names the file in origins and messages, as "path:line:column"; it is not opened.
func Decode(path string, data []byte, opts Options) []Document {
	return newFile(path, data, opts).decode(data)
}

// Blank reports whether the text of a file only has white space, comments and document markers.
func Blank(path string, data []byte) bool {
	data = bytes.TrimPrefix(data, byteOrderMark)
	if isJSON(path) {
		return len(bytes.TrimSpace(data)) == 0
	}
	return len(split(data)) == 0
}

var byteOrderMark = []byte("\ufeff")

func isJSON(path string) bool { return strings.EqualFold(filepath.Ext(path), ".json") }

func newFile(path string, data []byte, opts Options) file {
	if opts.DefaultNamespace == "" {
		opts.DefaultNamespace = "default"
	}
	return file{path: path, opts: opts, budget: newBudget(data)}
}

func (f file) decode(data []byte) []Document {
	if limit := cmp.Or(f.opts.MaxBytes, defaultMaxBytes); len(data) > limit {
		f.addBroken(&yamldoc.Fault{Line: 1, Message: fmt.Sprintf("larger than %d bytes", limit)}, 0, data)
		return f.docs
	}
	data = bytes.TrimPrefix(data, byteOrderMark)
	if isJSON(f.path) {
		f.decodeJSON(data)
		return f.docs
	}
	chunks := split(data)
	docs := f.decodeAll(chunks, runtime.GOMAXPROCS(0))
	if f.budget.exceeded() {
		// Once more in order, so that refusals depend neither on the order of the goroutines nor on the earlier text.
		f.budget, f.earlier = newBudget(data), nil
		clear(f.parts)
		f.parts = nil
		docs = f.decodeAll(chunks, 1)
	}
	return docs
}

// scanners keeps the memory of scanners from one file to the next.
var scanners = sync.Pool{New: func() any { return &scanner{} }}

// decodeAll decodes chunks, on several processors if there are many.
func (f file) decodeAll(chunks []chunk, processors int) []Document {
	batches := slices.Collect(slices.Chunk(chunks, 64))
	docs := make([][]Document, len(batches))
	var parts sync.Mutex
	worker.Each(len(batches), processors, func(i int) {
		workerFile := f
		workerFile.docs, workerFile.scanner = nil, scanners.Get().(*scanner)
		defer scanners.Put(workerFile.scanner)
		for _, input := range batches[i] {
			if workerFile.parts == nil {
				workerFile.decodeYAML(input)
				continue
			}
			sum := contentSum(input)
			if decoded, ok := workerFile.decodePart(input, sum); ok {
				parts.Lock()
				workerFile.parts[sum] = decoded
				parts.Unlock()
			}
		}
		docs[i] = workerFile.docs
	})
	return slices.Concat(docs...)
}

// file collects the documents of a file.
type file struct {
	path    string
	opts    Options
	budget  *budget
	docs    []Document
	scanner *scanner

	earlier, parts map[[16]byte]part // parts of the earlier text, and those to keep of this one; nil without reuse
	objects        int64             // of the part at hand
	aliased        bool              // an alias led to a node of the current part
}

func (f *file) decodeYAML(input chunk) {
	if input.fault != "" {
		f.addBroken(&yamldoc.Fault{Line: 1, Message: input.fault}, input.line-1, input.text)
		return
	}
	if root := f.scanner.scan(input.text); root != nil {
		f.add(root, input.line-1, ancestry{})
		return
	}
	if roots := input.parseJSON(); roots != nil {
		for _, root := range roots {
			f.add(root, input.line-1, ancestry{})
		}
		return
	}
	root, fault := yamldoc.Parse(input.text)
	switch {
	case fault != nil:
		if fault.Message == yamldoc.TextBehind {
			fault.Message += "; documents are separated by lines of ---"
		}
		f.addBroken(fault, input.line-1, input.text)
	case root != nil:
		f.add(root, input.line-1, ancestry{})
	}
}

// decodeJSON reads one value after another, until one is broken.
func (f *file) decodeJSON(data []byte) {
	if line, col, ok := yamldoc.FirstInvalid(data); ok {
		f.addBroken(&yamldoc.Fault{Line: line, Column: col, Message: "not valid UTF-8; is this a text file?"}, 0, data)
		return
	}
	tree := newJSONTree(data)
	for {
		begin := tree.dec.InputOffset()
		root, err := tree.next()
		if err != nil {
			f.addBroken(err, 0, data[begin:])
			return
		}
		if root == nil {
			return
		}
		f.add(root, 0, ancestry{})
	}
}

// addBroken adds a text that is no document.
func (f *file) addBroken(fault *yamldoc.Fault, base int, text []byte) {
	line := base + fault.Line
	place := fmt.Sprintf("%s:%d", f.path, line)
	if fault.Column > 0 {
		place = fmt.Sprintf("%s:%d", place, fault.Column)
	}
	document := Document{
		Line: line,
		Errors: Errors{{
			Origin: Origin{Place: place}, Err: errors.New(fault.Message), line: line, column: fault.Column,
		}},
		MayRestrict: looksRestricting(text),
	}
	document.explainRefusal()
	f.docs = append(f.docs, document)
}

// ancestry is the place of a document: the number of lists around it, and whether an alias led to it.
type ancestry struct {
	lists   int
	aliased bool
}

// add decodes the object at root, or the objects of a list. Lines of nodes count from base.
func (f *file) add(root *yaml.Node, base int, nesting ancestry) {
	if isNull(root) {
		return
	}
	objectDecoder := &decoder{file: f, base: base}
	if nesting.aliased {
		objectDecoder.aliases = 1
	}
	document := Document{Line: base + root.Line}
	head := &envelope{}
	switch count := f.countObject(); {
	case count > maxObjects+1:
		return // the object before it has the error
	case count > maxObjects:
		objectDecoder.fail(root, "%w", errObjects)
	case nesting.aliased && !f.spend(costOfAnObject+costOfAnElement*len(root.Content)):
		objectDecoder.fail(root, "%w", errAliased)
	case nesting.lists > maxLists:
		objectDecoder.fail(root, "%w", errTooNested)
	default:
		head = objectDecoder.envelope(root)
	}
	if head.items != nil {
		for _, item := range head.items.Content {
			f.add(deref(item), base, ancestry{nesting.lists + 1, nesting.aliased || item.Kind == yaml.AliasNode})
		}
		if len(objectDecoder.errs)+len(objectDecoder.warns) == 0 {
			return
		}
	} else if head.schema != nil {
		document.Resource = objectDecoder.object(root, head)
	}
	document.Foreign, document.Other = head.foreign, head.object
	if head.meta.Key.Name != "" {
		document.Key = head.meta.Key
	}
	for _, problem := range slices.Concat(objectDecoder.errs, objectDecoder.warns) {
		problem.Key = head.meta.Key
	}
	slices.SortStableFunc(objectDecoder.errs, byPlace)
	slices.SortStableFunc(objectDecoder.warns, byPlace)
	document.Errors, document.Warnings = objectDecoder.errs, objectDecoder.warns
	if len(document.Errors) > 0 {
		document.Resource, document.Other = nil, nil
		document.suspect(root, head)
	}
	f.docs = append(f.docs, document)
}

func byPlace(a, b *Error) int {
	return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
}

// decoder decodes one document.
type decoder struct {
	*file
	base int // added to the lines of nodes

	isObject    bool // the document has apiVersion and kind: only then messages quote it
	errs, warns Errors
	fieldPath   []step // the path of the field at hand
	aliases     int    // aliases that the field at hand is within
	merges      int    // the same of merge keys
}

// object decodes the object in the envelope.
func (d *decoder) object(root *yaml.Node, head *envelope) *Resource {
	spec := head.schema.NewSpec()
	if head.spec != nil {
		d.inField("spec", func() { d.message(spec.ProtoReflect(), head.spec) })
	}
	if len(d.errs) > 0 {
		return nil
	}
	if d.opts.DomainSuffix != "" {
		completeHosts(head.meta, spec, d.opts.DomainSuffix)
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	if err != nil {
		d.fail(root, "encode spec: %w", err)
		return nil
	}
	head.meta.Origin = Origin{Place: fmt.Sprintf("%s:%d", d.path, d.base+root.Line)}
	resource := FromBody(head.meta, body)
	if d.opts.Validate {
		resource.verdict = validate(resource, spec)
		d.locate(root, resource.verdict)
	}
	return resource
}

// step is one step of the path of a field: a name, or, if that is empty, an index.
type step struct {
	name  string
	index int
}

// inField calls f with name appended to the path.
func (d *decoder) inField(name string, f func()) {
	d.fieldPath = append(d.fieldPath, step{name: name})
	f()
	d.fieldPath = d.fieldPath[:len(d.fieldPath)-1]
}

// field returns the path of the field at hand: "spec.http[0].match".
func (d *decoder) field() string {
	var builder strings.Builder
	for i, step := range d.fieldPath {
		switch {
		case step.name == "":
			fmt.Fprintf(&builder, "[%d]", step.index)
		case strings.ContainsAny(step.name, "./[] \t\n"):
			fmt.Fprintf(&builder, "[%q]", step.name)
		default:
			if i > 0 {
				builder.WriteByte('.')
			}
			builder.WriteString(step.name)
		}
	}
	return builder.String()
}

// problem makes an Error of the current field, at a node. Its key is filled in at the end.
func (d *decoder) problem(node *yaml.Node, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	if field := d.field(); field != "" {
		err = fmt.Errorf("%s: %w", field, err)
	}
	place := fmt.Sprintf("%s:%d:%d", d.path, d.base+node.Line, node.Column)
	return &Error{Origin: Origin{Place: place}, Err: err, line: d.base + node.Line, column: node.Column}
}

// fail reports an error of the field at hand.
func (d *decoder) fail(node *yaml.Node, format string, args ...any) {
	switch {
	case len(d.errs) < maxProblems:
		d.errs = append(d.errs, d.problem(node, format, args...))
	case len(d.errs) == maxProblems:
		e := d.problem(node, "")
		e.Err, e.line = errors.New("and more problems, which are not shown"), math.MaxInt
		d.errs = append(d.errs, e)
	}
}

func (d *decoder) warn(n *yaml.Node, format string, args ...any) {
	if len(d.warns) < maxProblems {
		d.warns = append(d.warns, d.problem(n, format, args...))
	}
}

// full reports whether enough problems were found to stop.
func (d *decoder) full() bool { return len(d.errs) > maxProblems }

// unknown reports an unknown field, with the severity that the options say.
func (d *decoder) unknown(key *yaml.Node, allowed []string) {
	message := "unknown field %q"
	args := []any{key.Value}
	if guess := words.Nearest(key.Value, allowed); guess != "" {
		message += "; did you mean %q?"
		args = append(args, guess)
	}
	if d.opts.UnknownFields == SeverityWarning {
		d.warn(key, message, args...)
	} else {
		d.fail(key, message, args...)
	}
}

// visit must be called before the content of a node is read. It follows an alias, and returns false for a node that
// must not be read: too deep, or too much. If it returns true, leave must be called afterwards.
func (d *decoder) visit(node *yaml.Node) (*yaml.Node, bool) {
	if node.Kind == yaml.AliasNode {
		d.aliases++
		if node.Alias.Kind == yaml.AliasNode {
			d.fail(node, "alias of an alias")
			d.aliases--
			return node, false
		}
	}
	target := deref(node)
	var err error
	switch {
	case d.aliases > 0 && !d.spend(costOfANode+len(target.Value)+costOfAnElement*len(target.Content)):
		err = errAliased
	case len(d.fieldPath) > maxDepth:
		err = errTooDeep
	case d.full():
		d.leave(node)
		return node, false
	}
	if err != nil {
		d.fail(node, "%w", err)
		d.leave(node)
		return node, false
	}
	return target, true
}

// leave ends a visit of a node.
func (d *decoder) leave(n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		d.aliases--
	}
}

// deref returns the target of an alias, and any other node itself.
func deref(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// entries returns the keys and values of a mapping, alternately, like its Content, with merge keys ("<<") resolved.
// Every key is a string; duplicates and other keys are reported and left out.
func (d *decoder) entries(node *yaml.Node) []*yaml.Node {
	content := node.Content
	if len(content) > 64 {
		return d.checkEntries(node)
	}
	for i := 0; i < len(content); i += 2 {
		key := content[i]
		if !isName(key) || repeats(content, i) {
			return d.checkEntries(node)
		}
	}
	return content
}

// isName reports whether a key is a string, as keys of mappings must be.
func isName(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Tag == "!!str" && !isOldBool(key)
}

// repeats reports whether content[i] is equal to a key before it.
func repeats(content []*yaml.Node, i int) bool {
	for j := 0; j < i; j += 2 {
		if content[j].Value == content[i].Value {
			return true
		}
	}
	return false
}

// checkEntries is entries for an unusual mapping.
func (d *decoder) checkEntries(node *yaml.Node) []*yaml.Node {
	content := make([]*yaml.Node, 0, len(node.Content))
	nodes := make(map[string]*yaml.Node, len(node.Content)/2)
	for i := 0; i < len(node.Content); i += 2 {
		key, value := deref(node.Content[i]), node.Content[i+1]
		switch first := nodes[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			d.fail(node.Content[i], "want a name as the key, got %s", d.describe(key))
		case key.Tag == "!!merge":
		case !isName(key) && key.Tag != "!!int":
			d.fail(node.Content[i], "want a name as the key, got %s; put it in quotes if it is one", d.describe(key))
		case first != nil:
			d.fail(node.Content[i], "duplicate key%s, first in line %d", d.quoteKey(key.Value), d.base+first.Line)
		default:
			nodes[key.Value] = key
			content = append(content, key, value)
		}
	}
	for i := 0; i < len(node.Content); i += 2 {
		if key := deref(node.Content[i]); key.Kind == yaml.ScalarNode && key.Tag == "!!merge" {
			content = d.merge(content, nodes, node.Content[i+1])
		}
	}
	return content
}

// quoteKey returns a key for a message, after a blank, or an empty text if it must not be quoted.
func (d *decoder) quoteKey(key string) string {
	if !d.isObject && !slices.Contains(envelopeFields, key) && !slices.Contains(listFields, key) {
		return ""
	}
	return fmt.Sprintf(" %q", key)
}

// merge appends to content the entries of value, a mapping or a list of mappings, except those whose key nodes has.
// YAML 1.1's merge key does the same.
func (d *decoder) merge(content []*yaml.Node, nodes map[string]*yaml.Node, value *yaml.Node) []*yaml.Node {
	if d.merges == maxMerges {
		d.fail(value, "%w", errTooMerged)
		return content
	}
	d.merges++
	defer func() { d.merges-- }()
	sources := []*yaml.Node{value}
	if v := deref(value); v.Kind == yaml.SequenceNode {
		sources = v.Content
	}
	d.inField("<<", func() {
		for _, source := range sources {
			from, ok := d.visit(source)
			if !ok {
				return
			}
			if from.Kind != yaml.MappingNode {
				d.fail(source, "want a mapping to merge, got %s", d.describe(from))
				d.leave(source)
				continue
			}
			entries := d.entries(from)
			for i := 0; i < len(entries); i += 2 {
				key := entries[i]
				if nodes[key.Value] != nil {
					continue
				}
				nodes[key.Value] = key
				// As an alias, so that merged nodes count as such.
				content = append(content, key, &yaml.Node{
					Kind: yaml.AliasNode, Alias: deref(entries[i+1]), Line: key.Line, Column: key.Column,
				})
			}
			d.leave(source)
		}
	})
	return content
}
