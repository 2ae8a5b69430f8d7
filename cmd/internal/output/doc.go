// Package output formats for people: answers of the admin server, tables of objects, resources of Envoy and differences
// between two sets of objects. It fits them to the screen and escapes control characters.
package output
