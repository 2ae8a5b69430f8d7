package envoytest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSelect(t *testing.T) {
	documents := map[string]json.RawMessage{
		"A/one": json.RawMessage(`{"name": "one", "list": [{"name": "x.y", "v": {"w": "1", "z": 2}}, {"name": "b"}],
			"map": {"k.l": {"v": true}}}`),
		"A/two": json.RawMessage(`{"name": "two"}`),
	}
	for lines, want := range map[string]string{
		"# select: A/two\n":                       "A/two: {name: two}\n",
		"# select: A/* name\n":                    "A/one: {name: one}\nA/two: {name: two}\n",
		"# select: A/one list[x.y].v.{w,z} map\n": "A/one: {list: [{v: {w: \"1\", z: 2}}], map: {k.l: {v: true}}}\n",
		"# select: A/one list.name map.*.v\n":     "A/one: {list: [{name: x.y}, {name: b}], map: {k.l: {v: true}}}\n",
		"# select: A/one list.none none\n":        "A/one: {list: [{}, {}]}\n",
		"# another\n# select: B/one name\n":       "B/one: null\n",
		"# select: A/two\n# select: A/one name\n": "A/two: {name: two}\nA/one: {name: one}\n",
	} {
		got, err := Select(documents, lines)
		require.NoError(t, err)
		require.Equal(t, want, got, lines)
	}
}
