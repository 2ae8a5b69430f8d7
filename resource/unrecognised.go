package resource

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"tributary/internal/words"
)

// Unrecognised is the kind in the key of a text that may be an object that restricts traffic. The name in such a key is
// the place. Without a namespace, the object may be in any.
const Unrecognised Kind = "unrecognised object"

// Restricts reports whether objects of a kind restrict traffic: without them, requests may pass that are to be denied.
func Restricts(kind Kind) bool {
	return kind == MeshConfig || kind == Unrecognised || slices.Contains(SecurityKinds, kind)
}

var (
	// restrictingWords are parts of kinds and groups that restrict, in compact form.
	restrictingWords = []string{
		"security.istio.io", "authorizationpolic", "requestauthentication", "peerauthentication", "meshconfig",
		"corev1alpha1",
	}
	// restrictingFields are the fields that name these. A text that is cut off may end within one.
	restrictingFields = []string{
		"apiversion:security.istio.io", "apiversion:corev1alpha1", "kind:authorizationpolicy", "kind:requestauthentication",
		"kind:peerauthentication", "kind:meshconfig",
	}
)

// escapedLetter is a character of ASCII in JSON or YAML: \u0073 or \x73.
var escapedLetter = regexp.MustCompile(`\\(?:u00|x)[2-7][0-9a-fA-F]`)

func unescapeLetter(escaped []byte) []byte {
	letter, _ := hex.DecodeString(string(escaped[len(escaped)-2:]))
	return letter
}

// looksRestricting reports whether a text that is no object may be meant as one that restricts. It ignores case,
// quotes, blanks and zero bytes, and so finds such texts in UTF-16, too. Lines that are comments do not count.
func looksRestricting(text []byte) bool {
	if bytes.IndexByte(text, '\\') >= 0 {
		text = escapedLetter.ReplaceAllFunc(text, unescapeLetter)
	}
	compact, begins, comment := make([]byte, 0, len(text)), true, false
	for _, char := range text {
		switch {
		case strings.IndexByte("\n\r\x85\xa8\xa9", char) >= 0: // the last bytes of all line breaks of YAML
			begins, comment = true, false
			continue
		case comment, begins && (char == ' ' || char == '\t' || char == 0):
			continue
		case begins && char == '#':
			comment = true
			continue
		}
		begins = false
		switch {
		case char >= 'A' && char <= 'Z':
			compact = append(compact, char-'A'+'a')
		case char >= 'a' && char <= 'z', char >= '0' && char <= '9', char == '.', char == ':':
			compact = append(compact, char)
		}
	}
	letters := string(compact)
	return slices.ContainsFunc(restrictingWords, func(word string) bool { return strings.Contains(letters, word) }) ||
		slices.ContainsFunc(restrictingFields, func(field string) bool {
			name, _, _ := strings.Cut(field, ":")
			return strings.HasPrefix(field, letters[max(strings.LastIndex(letters, name+":"), 0):])
		})
}

// maxVisited bounds the inspected nodes of a document. A document with more may restrict.
const maxVisited = 1 << 16

// envelopeText returns the parts of a document that identify its objects: each apiVersion, also if it is mistyped, and
// each kind that is not a field of another object, as in Helm's values. A dot stands for all other fields. It reports
// whether the document was read to its end.
func envelopeText(root *yaml.Node) (text []byte, complete bool) {
	visited := 0
	var visit func(n *yaml.Node, inner bool)
	visit = func(node *yaml.Node, inner bool) {
		if visited++; visited > maxVisited {
			return
		}
		node = deref(node)
		for i, child := range node.Content {
			switch {
			case node.Kind != yaml.MappingNode:
				visit(child, inner)
			case i%2 == 1:
				name := strings.ToLower(node.Content[i-1].Value)
				if !inner && strings.Trim(name, "ak") != name && name != "kind" && name != "apiversion" {
					name = strings.ToLower(words.Nearest(name, envelopeFields))
				}
				switch {
				case name == "<<":
					visit(child, inner)
				case name == "apiversion", name == "kind" && !inner:
					text = append(append(text, name...), ':')
					visit(child, false)
				default:
					visit(child, true)
					text = append(text, '.')
				}
			}
		}
		if !inner {
			text = append(text, node.Value...)
		}
	}
	visit(root, false)
	return text, visited <= maxVisited
}

// suspect notes whether a document with errors may restrict traffic, unless its key says which object it is.
func (doc *Document) suspect(root *yaml.Node, head *envelope) {
	switch {
	case doc.Foreign, head.items != nil:
		return
	case head.schema != nil:
		doc.MayRestrict = doc.Key.Name == "" && Restricts(head.schema.Kind)
	default:
		text, complete := envelopeText(root)
		doc.MayRestrict = !complete || errors.Is(doc.Errors[0], errObjects) ||
			len(text) > 0 && looksRestricting(text)
	}
	if doc.Key.Name == "" && doc.MayRestrict {
		doc.Key = Key{Namespace: head.namespace}
		if head.schema != nil {
			doc.Key.Kind = head.schema.Kind
		}
	}
	doc.explainRefusal()
}

// explainRefusal adds the consequence to the first error if the document may restrict traffic.
func (doc *Document) explainRefusal() {
	if !doc.MayRestrict {
		return
	}
	clients := "all Envoys refuse"
	if doc.Key.Namespace != "" {
		clients = fmt.Sprintf("Envoys of namespace %s refuse", doc.Key.Namespace)
	}
	first := doc.Errors[0]
	first.Err = fmt.Errorf("%w (this may be a security object or a MeshConfig: %s all requests until it is valid or "+
		"removed, "+
		"unless it was valid before)", first.Err, clients)
}
