// Package index keeps the decoded objects for Envoys. It lists the hosts that a change of an object touches, and builds
// the view of a host for the clients of a profile.
package index
