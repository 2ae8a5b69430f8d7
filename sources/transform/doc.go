// Package transform selects and changes the objects of a source by declarative rules, before validation: namespaces,
// hosts, labels and annotations. It is pure: equal objects get equal results.
package transform
