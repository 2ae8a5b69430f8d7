package names

import (
	"fmt"
	"slices"
	"strings"
)

// tries is how many hashes are tried for a name. More than one is needed only if two of 64 bits are the same.
const tries = 8

// Distinct gives each of all things a name of its own, no part of which is that part of another's: the host, and the name of the object. Of
// those that would have one name the first in the order of compare has it, and others get one with a hash, so that the order of ids does
// not matter. name returns the name of a thing and its parts; with something to hash, all of them have to differ from those with something
// else. What finds no name has none.
func Distinct[ID interface {
	comparable
	fmt.Stringer
}, Name any](ids []ID, compare func(a, b ID) int, name func(id ID, toHash string) (n Name, host, object string)) map[ID]Name {
	ids = slices.Compact(slices.SortedFunc(slices.Values(ids), compare))
	given := make(map[ID]Name, len(ids))
	hosts, objects := make(map[string]bool, len(ids)), make(map[string]bool, len(ids))
	for _, id := range ids {
		toHash := ""
		for try := range tries {
			n, host, object := name(id, toHash)
			if !hosts[host] && !objects[object] {
				given[id], hosts[host], objects[object] = n, true, true
				break
			}
			toHash = strings.Repeat("+", try) + id.String()
		}
	}
	return given
}
