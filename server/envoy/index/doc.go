// Package index keeps the objects that Envoys are served, decoded. It says which hosts a change of an object touches, and makes the view
// that clients of a profile have of a host.
package index
