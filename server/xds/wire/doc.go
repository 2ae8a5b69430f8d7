// Package wire decodes discovery requests of both variants of the protocol. The resume versions, which may be large,
// stay encoded.
package wire
