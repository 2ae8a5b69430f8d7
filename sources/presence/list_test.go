package presence

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func after(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }

func TestFold(t *testing.T) {
	before := []Item[string]{{Value: "a", FirstListed: after(0)}, {Value: "b", FirstListed: after(1)}, {Value: "c"}}
	missing := func(k Item[string]) Item[string] { k.Missing = after(9); return k }
	for name, c := range map[string]struct {
		now   []string
		stays string
		want  []Item[string]
		held  int
	}{
		"all are listed":  {[]string{"a", "b", "c"}, "", before, 0},
		"one has gone":    {[]string{"a", "c"}, "", []Item[string]{before[0], before[2]}, 0},
		"one is in doubt": {[]string{"a", "c"}, "b", []Item[string]{before[0], missing(before[1]), before[2]}, 1},
		"one is new": {
			[]string{"a", "aa", "b", "c"},
			"",
			[]Item[string]{before[0], {Value: "aa", FirstListed: after(9)}, before[1], before[2]},
			0,
		},
		"nothing is listed":                {nil, "", nil, 0},
		"nothing is listed, some in doubt": {nil, "ac", []Item[string]{missing(before[0]), missing(before[2])}, 2},
		"new ones around one in doubt": {
			[]string{"0", "d"},
			"b",
			[]Item[string]{{Value: "0", FirstListed: after(9)}, missing(before[1]), {Value: "d", FirstListed: after(9)}},
			1,
		},
	} {
		var reports []Report[string]
		for _, value := range c.now {
			reports = append(reports, Report[string]{value, Listed})
		}
		items, held, next := Fold(before, reports, cmp.Compare[string], func(item Item[string]) time.Time {
			if strings.Contains(c.stays, item.Value) {
				return after(12)
			}
			return after(9)
		}, after(9))
		assert.Equal(t, c.want, items, name)
		assert.Equal(t, c.held, held, name)
		assert.Equal(t, held > 0, next.Equal(after(12)), name)
	}
}

// TestStates has every state of what was known and of what was not.
func TestStates(t *testing.T) {
	since := func(is, missing int) []Item[string] {
		k := Item[string]{Value: "k", FirstListed: after(is)}
		if missing > 0 {
			k.Missing = after(missing)
		}
		return []Item[string]{k}
	}
	for name, c := range map[string]struct {
		state State
		until int
		known []Item[string]
		new   []Item[string]
		held  int
	}{
		"listed":           {Listed, 0, since(1, 0), since(9, 0), 0},
		"disabled":         {Disabled, 12, nil, nil, 0},
		"unreadable":       {Unreadable, 0, since(1, 0), nil, 1},
		"missing":          {Unlisted, 9, nil, nil, 0},
		"missing in doubt": {Unlisted, 12, since(1, 5), nil, 1},
	} {
		fold := func(before []Item[string]) ([]Item[string], int, time.Time) {
			return Fold(before, []Report[string]{{"k", c.state}}, cmp.Compare[string], func(item Item[string]) time.Time {
				assert.Equal(t, after(5), item.Missing)
				return after(c.until)
			}, after(9))
		}
		items, held, _ := fold(since(1, 5))
		assert.Equal(t, c.known, items, name)
		assert.Equal(t, c.held, held, name)
		items, held, _ = fold(nil)
		assert.Equal(t, c.new, items, name)
		assert.Zero(t, held, name)
	}
}

// TestSeveralReportsOfOne has the stronger one count, in whatever order they come.
func TestSeveralReportsOfOne(t *testing.T) {
	settle := func(states ...State) int {
		var reports []Report[string]
		for _, state := range states {
			reports = append(reports, Report[string]{"k", state})
		}
		known := []Item[string]{{Value: "a", FirstListed: after(1)}, {Value: "k", FirstListed: after(1)}, {Value: "z", FirstListed: after(1)}}
		got, _, next := Fold(known, reports, cmp.Compare[string], func(Item[string]) time.Time { return Forever }, after(9))
		assert.Zero(t, next, "a hold without an end")
		return len(got)
	}
	assert.Equal(t, 3, settle(Disabled, Listed))
	assert.Equal(t, 3, settle(Listed, Disabled))
	assert.Equal(t, 2, settle(Unreadable, Disabled))
	assert.Equal(t, 2, settle(Unlisted, Disabled, Unreadable))
	assert.Equal(t, 3, settle(Unlisted, Unreadable))
}
