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
	before := []Known[string]{{"a", after(0)}, {"b", after(1)}, {"c", time.Time{}}}
	for name, c := range map[string]struct {
		now   []string
		stays string
		want  []Known[string]
		held  int
	}{
		"all are listed":  {[]string{"a", "b", "c"}, "", before, 0},
		"one has gone":    {[]string{"a", "c"}, "", []Known[string]{before[0], before[2]}, 0},
		"one is in doubt": {[]string{"a", "c"}, "b", before, 1},
		"one is new": {
			[]string{"a", "aa", "b", "c"},
			"",
			[]Known[string]{before[0], {"aa", after(9)}, before[1], before[2]},
			0,
		},
		"nothing is listed":                {nil, "", nil, 0},
		"nothing is listed, some in doubt": {nil, "ac", []Known[string]{before[0], before[2]}, 2},
		"new ones around one in doubt":     {[]string{"0", "d"}, "b", []Known[string]{{"0", after(9)}, before[1], {"d", after(9)}}, 1},
	} {
		r := Reading[string]{
			Unsaid:  func(string) Judgement { return Missing },
			InDoubt: func(k Known[string]) bool { return strings.Contains(c.stays, k.Of) },
		}
		for _, one := range c.now {
			r.Said = append(r.Said, Said[string]{one, Listed})
		}
		got, held := r.Settle(before, cmp.Compare[string], after(9))
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.held, held, name)
	}
}

// TestReading has every judgement of what was known and of what was not.
func TestReading(t *testing.T) {
	known := []Known[string]{{"k", after(1)}}
	for name, c := range map[string]struct {
		is      Judgement
		doubted bool
		known   []Known[string]
		new     []Known[string]
		held    int
	}{
		"listed":           {Listed, false, known, []Known[string]{{"k", after(9)}}, 0},
		"off":              {Off, true, nil, nil, 0},
		"unreadable":       {Unreadable, false, known, nil, 1},
		"missing":          {Missing, false, nil, nil, 0},
		"missing in doubt": {Missing, true, known, nil, 1},
	} {
		r := Reading[string]{
			Said: []Said[string]{{"k", c.is}}, Unsaid: func(string) Judgement {
				return Missing
			}, InDoubt: func(Known[string]) bool { return c.doubted },
		}
		got, held := r.Settle(known, cmp.Compare[string], after(9))
		assert.Equal(t, c.known, got, name)
		assert.Equal(t, c.held, held, name)
		got, held = r.Settle(nil, cmp.Compare[string], after(9))
		assert.Equal(t, c.new, got, name)
		assert.Zero(t, held, name)
		if c.is == Listed {
			continue
		}
		r.Said, r.Unsaid = nil, func(string) Judgement { return c.is }
		got, held = r.Settle(known, cmp.Compare[string], after(9))
		assert.Equal(t, c.known, got, name+", and not named")
		assert.Equal(t, c.held, held, name)
	}
}

// TestReadingOfSeveralThingsSaidOfOne has the stronger one count, in whatever order they come.
func TestReadingOfSeveralThingsSaidOfOne(t *testing.T) {
	settle := func(is ...Judgement) int {
		r := Reading[string]{Unsaid: func(string) Judgement { return Missing }, InDoubt: func(Known[string]) bool { return true }}
		for _, j := range is {
			r.Said = append(r.Said, Said[string]{"k", j})
		}
		got, _ := r.Settle([]Known[string]{{"a", after(1)}, {"k", after(1)}, {"z", after(1)}}, cmp.Compare[string], after(9))
		return len(got)
	}
	assert.Equal(t, 3, settle(Off, Listed))
	assert.Equal(t, 3, settle(Listed, Off))
	assert.Equal(t, 2, settle(Unreadable, Off))
	assert.Equal(t, 2, settle(Missing, Off, Unreadable))
	assert.Equal(t, 3, settle(Missing, Unreadable))
}

func TestSuspicion(t *testing.T) {
	s := Suspicion{From: after(5), Until: after(7)}
	assert.True(t, s.Covers(time.Time{}, after(6)), "of an earlier run")
	assert.True(t, s.Covers(after(4), after(6)), "of before the outage")
	assert.False(t, s.Covers(after(5), after(6)), "registered when the registry was back")
	assert.False(t, s.Covers(after(4), after(7)), "it is over")
	assert.False(t, Suspicion{}.Covers(after(4), after(6)), "there is none")
	assert.True(t, s.Away(after(6)).Covers(after(4), after(1000)), "nobody could register meanwhile")
	assert.False(t, s.Away(after(8)).Covers(after(4), after(8)), "it was over")
	assert.Zero(t, Suspicion{}.Away(after(8)))
}

func TestEmpty(t *testing.T) {
	since, kept := Empty(time.Time{}, false, after(1), time.Hour)
	assert.True(t, kept)
	assert.Equal(t, after(1), since)
	since, kept = Empty(since, false, after(60), time.Hour)
	assert.True(t, kept)
	assert.Equal(t, after(1), since)
	_, kept = Empty(since, false, after(61), time.Hour)
	assert.False(t, kept)
	since, kept = Empty(since, true, after(61), time.Hour)
	assert.True(t, kept)
	assert.Zero(t, since)
}

func TestEarlier(t *testing.T) {
	assert.Equal(t, after(1), Earlier(after(1), after(2)))
	assert.Equal(t, after(1), Earlier(after(2), after(1)))
	assert.Equal(t, after(1), Earlier(after(1), time.Time{}))
	assert.Equal(t, after(1), Earlier(time.Time{}, after(1)))
}
