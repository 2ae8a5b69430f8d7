package derive

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tributary/resource"
)

// node is a value in an object: its spec, or something in that.
type node struct {
	*derivation
	*object
	field string // its path, "spec.rules[0]"; empty for the object as a whole
	value any    // nil if it is left out
}

func (d *derivation) spec(o *object) node { return node{d, o, "spec", o.content} }

func (n node) raw(name string) any {
	all, _ := n.value.(record)
	for _, f := range all {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// get returns the value of a field.
func (n node) get(name string) node {
	return node{n.derivation, n.object, n.field + "." + name, n.raw(name)}
}

func (n node) has(name string) bool { return n.raw(name) != nil }

func (n node) list(name string) (all []node) {
	values, _ := n.raw(name).([]any)
	for i, value := range values {
		all = append(all, node{n.derivation, n.object, fmt.Sprintf("%s.%s[%d]", n.field, name, i), value})
	}
	return all
}

// text returns a field, or what stands for it if it is left out.
func (n node) text(name string, leftOut ...string) string {
	if s, ok := n.raw(name).(string); ok || len(leftOut) == 0 {
		return s
	}
	return leftOut[0]
}

func (n node) texts(name string) (all []string) {
	values, _ := n.raw(name).([]any)
	for _, value := range values {
		s, _ := value.(string)
		all = append(all, s)
	}
	return all
}

func (n node) labels(name string) map[string]string {
	all, _ := n.raw(name).(record)
	labels := make(map[string]string, len(all))
	for _, f := range all {
		labels[f.name], _ = f.value.(string)
	}
	return labels
}

func (n node) number(name string, leftOut int64) int64 {
	if i, ok := n.raw(name).(int64); ok {
		return i
	}
	return leftOut
}

func (n node) port() uint32 { return uint32(n.number("port", 0)) }

// reference is what an object refers to.
type reference struct {
	group string
	resource.Key
}

// reference returns what n refers to; it may leave out the group, the kind and the namespace.
func (n node) reference(group, kind string) reference {
	return reference{n.text("group", group), resource.Key{
		Kind: resource.Kind(n.text("kind", kind)), Namespace: cmp.Or(n.text("namespace"), n.Namespace), Name: n.text("name"),
	}}
}

// is reports whether a reference is to one of some kinds.
func (r reference) is(group string, kinds ...resource.Kind) bool {
	return r.group == group && slices.Contains(kinds, r.Kind)
}

// report adds a problem: its place, the object, the field, and what is wrong and what follows.
func (n node) report(format string, args ...any) {
	text := n.key().String() + ": "
	if n.origin != (resource.Origin{}) {
		text = n.origin.String() + ": " + text
	}
	if n.field != "" {
		text += n.field + ": "
	}
	n.problems = append(n.problems, text+fmt.Sprintf(format, args...))
}

// refuse reports what makes the whole route worthless that is converted, as istiod has it.
func (n node) refuse(format string, args ...any) {
	n.report("%s: nothing is made of this route", fmt.Sprintf(format, args...))
	n.worthless = true
}

// unread reports whether there is something in n that is not read.
func (n node) unread() bool {
	return slices.ContainsFunc(n.strange, func(f strangeField) bool { return strings.HasPrefix(f.field, n.field+".") })
}
