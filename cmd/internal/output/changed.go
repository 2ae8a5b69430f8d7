package output

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"tributary/resource"
)

// ChangedFields returns the paths of what is different between two versions of an object, in order. Lists are looked at as a whole.
func ChangedFields(was, is *resource.Resource) ([]string, error) {
	a, err := fields(was)
	if err != nil {
		return nil, err
	}
	b, err := fields(is)
	if err != nil {
		return nil, err
	}
	return changedPaths("", a, b), nil
}

func fields(r *resource.Resource) (m map[string]any, err error) {
	text, err := resource.MarshalJSON(r)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

func changedPaths(path string, a, b map[string]any) (paths []string) {
	keys := make(map[string]any)
	maps.Copy(keys, a)
	maps.Copy(keys, b)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		at := path + key
		left, isMap := a[key].(map[string]any)
		right, bothMaps := b[key].(map[string]any)
		switch {
		case isMap && bothMaps:
			paths = append(paths, changedPaths(at+".", left, right)...)
		case !reflect.DeepEqual(a[key], b[key]):
			paths = append(paths, at)
		}
	}
	return paths
}
