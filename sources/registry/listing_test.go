package registry

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var start = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func after(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }

func TestSettle(t *testing.T) {
	before := []Known[string]{{Value: "a", Since: after(0)}, {Value: "b", Since: after(1)}, {Value: "c"}}
	missing := func(k Known[string]) Known[string] { k.Missing = after(9); return k }
	for name, c := range map[string]struct {
		now   []string
		stays string
		want  []Known[string]
		held  int
	}{
		"all are listed":  {[]string{"a", "b", "c"}, "", before, 0},
		"one has gone":    {[]string{"a", "c"}, "", []Known[string]{before[0], before[2]}, 0},
		"one is in doubt": {[]string{"a", "c"}, "b", []Known[string]{before[0], missing(before[1]), before[2]}, 1},
		"one is new": {
			[]string{"a", "aa", "b", "c"},
			"",
			[]Known[string]{before[0], {Value: "aa", Since: after(9)}, before[1], before[2]},
			0,
		},
		"nothing is listed":                {nil, "", nil, 0},
		"nothing is listed, some in doubt": {nil, "ac", []Known[string]{missing(before[0]), missing(before[2])}, 2},
		"new ones around one in doubt": {
			[]string{"0", "d"},
			"b",
			[]Known[string]{{Value: "0", Since: after(9)}, missing(before[1]), {Value: "d", Since: after(9)}},
			1,
		},
	} {
		l := Listing[string]{Until: func(k Known[string]) time.Time {
			if strings.Contains(c.stays, k.Value) {
				return after(12)
			}
			return after(9)
		}}
		for _, one := range c.now {
			l.Reports = append(l.Reports, Report[string]{one, Listed})
		}
		got, held, next := l.Settle(before, cmp.Compare[string], after(9))
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.held, held, name)
		assert.Equal(t, held > 0, next.Equal(after(12)), name)
	}
}

// TestStates has every state of what was known and of what was not.
func TestStates(t *testing.T) {
	since := func(is, missing int) []Known[string] {
		k := Known[string]{Value: "k", Since: after(is)}
		if missing > 0 {
			k.Missing = after(missing)
		}
		return []Known[string]{k}
	}
	for name, c := range map[string]struct {
		state State
		until int
		known []Known[string]
		new   []Known[string]
		held  int
	}{
		"listed":           {Listed, 0, since(1, 0), since(9, 0), 0},
		"disabled":         {Disabled, 12, nil, nil, 0},
		"unreadable":       {Unreadable, 0, since(1, 0), nil, 1},
		"missing":          {Unlisted, 9, nil, nil, 0},
		"missing in doubt": {Unlisted, 12, since(1, 5), nil, 1},
	} {
		l := Listing[string]{
			Reports: []Report[string]{{"k", c.state}}, Until: func(k Known[string]) time.Time {
				assert.Equal(t, after(5), k.Missing)
				return after(c.until)
			},
		}
		got, held, _ := l.Settle(since(1, 5), cmp.Compare[string], after(9))
		assert.Equal(t, c.known, got, name)
		assert.Equal(t, c.held, held, name)
		got, held, _ = l.Settle(nil, cmp.Compare[string], after(9))
		assert.Equal(t, c.new, got, name)
		assert.Zero(t, held, name)
	}
}

// TestSeveralReportsOfOne has the stronger one count, in whatever order they come.
func TestSeveralReportsOfOne(t *testing.T) {
	settle := func(states ...State) int {
		l := Listing[string]{Until: func(Known[string]) time.Time { return Forever }}
		for _, s := range states {
			l.Reports = append(l.Reports, Report[string]{"k", s})
		}
		known := []Known[string]{{Value: "a", Since: after(1)}, {Value: "k", Since: after(1)}, {Value: "z", Since: after(1)}}
		got, _, next := l.Settle(known, cmp.Compare[string], after(9))
		assert.Zero(t, next, "a hold without an end")
		return len(got)
	}
	assert.Equal(t, 3, settle(Disabled, Listed))
	assert.Equal(t, 3, settle(Listed, Disabled))
	assert.Equal(t, 2, settle(Unreadable, Disabled))
	assert.Equal(t, 2, settle(Unlisted, Disabled, Unreadable))
	assert.Equal(t, 3, settle(Unlisted, Unreadable))
}

func TestSuspicion(t *testing.T) {
	s := Suspicion{From: after(5), End: after(7)}
	assert.Equal(t, after(7), s.Until(time.Time{}, after(5)), "of an earlier run")
	assert.Equal(t, after(7), s.Until(after(4), after(6)), "of before the outage")
	assert.Equal(t, after(6), s.Until(after(3), after(4)), "already missing when the suspicion began")
	assert.Zero(t, s.Until(after(5), after(6)), "registered when the registry was back")
	assert.Zero(t, Suspicion{}.Until(after(4), after(6)), "there is none")
	assert.Equal(t, Forever, s.Leave(after(6)).Until(after(4), after(5)), "nobody could register meanwhile")
	assert.Equal(t, after(7), s.Leave(after(8)).End, "it was over")
	assert.Zero(t, Suspicion{}.Leave(after(8)).Until(after(4), after(8)))

	away := s.Leave(after(6)).Leave(after(7))
	begun, pause := away.Return(after(9), 2)
	assert.Equal(t, after(9).Sub(after(6)), pause, "since it left first")
	assert.Equal(t, Suspicion{From: after(9), End: after(9).Add(2)}, begun)
	_, pause = away.Return(after(1), 2)
	assert.Zero(t, pause, "a clock that goes back")
	assert.Equal(t, Suspicion{Away: after(9)}, Suspicion{End: after(7), Away: after(9)}.Settle(after(7)), "it is away nevertheless")
}

func TestEarlier(t *testing.T) {
	assert.Equal(t, after(1), Earlier(after(1), after(2)))
	assert.Equal(t, after(1), Earlier(after(2), after(1)))
	assert.Equal(t, after(1), Earlier(after(1), time.Time{}))
	assert.Equal(t, after(1), Earlier(time.Time{}, after(1)))
}
