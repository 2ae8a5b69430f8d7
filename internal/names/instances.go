package names

import (
	"slices"
	"strings"
)

// Instances of tributary that read from each other name the instances that their content came through. A server names
// them to its readers, and never the other way: no client can add an instance.
const (
	// InstancesHeader is the key of a header with the names, which comes with the first response of a stream.
	InstancesHeader = "tributary-instances"
	// InstancesType is the URL of a type of one resource, a string with the present names.
	InstancesType = "tributary/v1/Instances"
	// MaxInstances bounds the names.
	MaxInstances = 500

	instanceLength = 2 * hashed
)

// Instance returns the public ID of an instance. It does not reveal the name.
func Instance(name string) string { return Hash(name) }

// JoinInstances makes a text of IDs.
func JoinInstances(ids []string) string { return strings.Join(ids[:min(len(ids), MaxInstances)], " ") }

// SplitInstances returns the IDs in a text. It leaves out invalid ones, and those beyond MaxInstances.
func SplitInstances(text string) (ids []string) {
	for len(text) > 0 && len(ids) < MaxInstances {
		var id string
		id, text, _ = strings.Cut(text, " ")
		if isInstance(id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func isInstance(id string) bool {
	return len(id) == instanceLength && !strings.ContainsFunc(id, func(digit rune) bool {
		return (digit < '0' || digit > '9') && (digit < 'a' || digit > 'f')
	})
}
