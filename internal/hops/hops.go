// Package hops has what instances of tributary that read from each other tell of the way that their content came: through
// which instances. It goes from who is read to who reads, each of whom trusts the other with its content anyway, and never
// the other way: nobody who can connect can claim anything. It is a package of its own since both ends use it, sources/xds and server/mcp.
package hops

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

const (
	// Header is the key of a header that comes with the first response of a stream.
	Header = "tributary-instances"
	// TypeURL is that of a type of one resource, a string, which has what the header has, and later what it has become.
	TypeURL = "tributary/v1/Instances"
)

// Max is how many instances are told of at most.
const Max = 500

// idLength is that of an ID: half of it in bytes are 64 bits, which do not meet by chance.
const idLength = 16

// ID makes of the name of an instance what identifies it to others, who need not know the name.
func ID(instance string) string {
	sum := sha256.Sum256([]byte(instance))
	return hex.EncodeToString(sum[:idLength/2])
}

// Format puts IDs into one text, the first one first.
func Format(ids []string) string { return strings.Join(ids[:min(len(ids), Max)], " ") }

// Parse is the inverse of Format. What is not an ID is left out, and so is what is more than there can be.
func Parse(text string) (ids []string) {
	for len(text) > 0 && len(ids) < Max {
		var id string
		id, text, _ = strings.Cut(text, " ")
		if valid(id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func valid(id string) bool {
	return len(id) == idLength && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'f')
	})
}
