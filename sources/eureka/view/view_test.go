package view_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/sources/eureka/view"
	"tributary/sources/eureka/wire"
)

// one is an instance of an application A: with what became of it, and when.
func one(id, status, action string, at int64) wire.Instance {
	i := wire.Instance{Key: wire.Key{App: "A", ID: id}, Status: status, Action: action, Registered: at, Updated: at}
	if action == wire.Deleted {
		i.Registered, i.Evicted = 1, at
	}
	return i
}

func answer(hash string, all ...wire.Instance) *wire.Answer {
	return &wire.Answer{Hash: hash, Instances: all}
}

func ids(v view.View) (all []string) {
	for _, i := range v.Instances() {
		all = append(all, i.ID+" "+i.Status)
	}
	return all
}

// TestChanges is the table of what changes make of two instances, which were taken at 10 and 20.
func TestChanges(t *testing.T) {
	all := view.All(answer("UP_2_", one("a", "UP", "ADDED", 10), one("b", "UP", "ADDED", 20)), view.View{})
	require.True(t, all.Whole())
	for name, c := range map[string]struct {
		changes *wire.Answer
		want    []string
		whole   bool
	}{
		"none":                                {answer("UP_2_"), []string{"a UP", "b UP"}, true},
		"none, and there was one":             {answer("UP_3_"), []string{"a UP", "b UP"}, false},
		"none, and it cannot be read all":     {&wire.Answer{Hash: "UP_2_", Nameless: 1}, []string{"a UP", "b UP"}, false},
		"one came":                            {answer("UP_3_", one("c", "UP", "ADDED", 30)), []string{"a UP", "b UP", "c UP"}, true},
		"one is down":                         {answer("DOWN_1_UP_1_", one("a", "DOWN", "MODIFIED", 30)), []string{"a DOWN", "b UP"}, true},
		"one was down, earlier":               {answer("UP_2_", one("b", "DOWN", "MODIFIED", 19)), []string{"a UP", "b UP"}, true},
		"one went":                            {answer("UP_1_", one("b", "UP", wire.Deleted, 30)), []string{"a UP"}, true},
		"one went, and came again since then": {answer("UP_2_", one("b", "UP", wire.Deleted, 19)), []string{"a UP", "b UP"}, true},
		"one went, and we missed another":     {answer("UP_2_", one("b", "UP", wire.Deleted, 30)), []string{"a UP"}, false},
		"one went that was not known":         {answer("UP_2_", one("c", "UP", wire.Deleted, 30)), []string{"a UP", "b UP"}, true},
		"all went":                            {answer("", one("a", "UP", wire.Deleted, 30), one("b", "UP", wire.Deleted, 30)), nil, true},
	} {
		after := all.Change(c.changes)
		assert.Equal(t, c.want, ids(after), name)
		assert.Equal(t, c.whole, after.Whole(), name)
	}
	require.Len(t, all.Instances(), 2, "a view does not change")
	require.True(t, view.View{}.Change(answer("UP_1_", one("c", "UP", "ADDED", 30))).Whole())
}

// TestFits is the table of changes that prove nothing by themselves, of two instances that were taken at 10 and 20.
func TestFits(t *testing.T) {
	all := view.All(answer("UP_2_", one("a", "UP", "ADDED", 10), one("b", "UP", "ADDED", 20)), view.View{})
	went := one("b", "UP", wire.Deleted, 30)
	ended := went
	ended.Registered = 20
	for name, c := range map[string]struct {
		changes *wire.Answer
		want    bool
	}{
		"none":                                    {answer("UP_2_"), true},
		"one came":                                {answer("UP_3_", one("c", "UP", "ADDED", 30)), true},
		"one came, and there are others":          {answer("UP_7_", one("c", "UP", "ADDED", 30)), false},
		"the one that is listed went":             {answer("UP_1_", ended), true},
		"one went, as another server had it":      {answer("UP_1_", went), false},
		"one went that was not known":             {answer("UP_2_", one("c", "UP", wire.Deleted, 30)), true},
		"one had gone before that was taken then": {answer("UP_2_", one("b", "UP", wire.Deleted, 19)), true},
	} {
		assert.Equal(t, c.want, all.Fits(c.changes), name)
	}
}

// TestWhatCannotBeReadIsAsItWas has an instance that becomes unreadable.
func TestWhatCannotBeReadIsAsItWas(t *testing.T) {
	good := one("a", "UP", "ADDED", 10)
	good.IP = "10.0.0.1"
	before := view.All(answer("UP_1_", good), view.View{})
	bad := wire.Instance{Key: good.Key, Status: wire.Unknown, Broken: errors.New("no")}
	for name, after := range map[string]view.View{
		"all":     view.All(answer("UP_1_", bad), before),
		"changes": before.Change(answer("UP_1_", bad)),
		"twice":   before.Change(answer("UP_1_", bad)).Change(answer("UP_1_", bad)),
	} {
		require.Equal(t, []wire.Instance{good}, after.Instances(), name)
		require.True(t, after.Whole(), name)
		require.Len(t, after.Broken(), 1, name)
		require.Empty(t, after.Change(answer("UP_1_", good)).Broken(), name)
		require.Empty(t, after.Change(answer("", one("a", "UP", wire.Deleted, 30))).Broken(), name)
	}
	down := bad
	down.Status = wire.Down
	require.Equal(t, []string{"a DOWN"}, ids(before.Change(answer("DOWN_1_", down))), "its word counts as far as it can be read")
	never := view.All(answer("UNKNOWN_1_", bad), view.View{})
	require.Error(t, never.Instances()[0].Broken)
	require.True(t, never.Whole())
}

// TestContinues is the table of what tells a server from another one, or from itself before it was started anew.
func TestContinues(t *testing.T) {
	before := view.Marks{"a": 1, "b": 2, "c": 3}
	for name, c := range map[string]struct {
		now  view.Marks
		want bool
	}{
		"the same":             {before, true},
		"one went":             {view.Marks{"a": 1, "b": 2}, true},
		"two went":             {view.Marks{"a": 1}, true},
		"two were replaced":    {view.Marks{"a": 1, "d": 4, "e": 5}, true},
		"one registered again": {view.Marks{"a": 1, "b": 2, "c": 9}, true},
		"all went":             {view.Marks{}, false},
		"all were replaced":    {view.Marks{"d": 4}, false},
		"all registered again": {view.Marks{"a": 7, "b": 8, "c": 9}, false},
		"it is another server, of which one is alike":  {view.Marks{"a": 1, "b": 8, "c": 9}, false},
		"one is left, and that has registered again":   {view.Marks{"a": 7}, false},
		"one is as it was, and one registered again":   {view.Marks{"a": 1, "b": 8}, true},
		"one registered again, and others are not old": {view.Marks{"a": 7, "d": 4}, false},
	} {
		assert.Equal(t, c.want, before.Continues(c.now), name)
	}
	require.False(t, view.Marks{}.Continues(before), "there was nothing")
	a := answer("", one("a", "UP", "ADDED", 10), one("b", "UP", "ADDED", 0))
	require.Equal(t, view.Marks{one("a", "", "", 0).String(): 10}, view.MarksOf(a))
	require.Equal(t, view.Marks{"a": 1, "b": 2, "c": 9, "d": 4}, before.With(view.Marks{"c": 9, "d": 4}))
	require.Empty(t, before.In(view.All(a, view.View{})))
	require.Equal(t, view.MarksOf(a), view.MarksOf(a).With(before).In(view.All(a, view.View{})))
	many := view.Marks{}
	for i := range 200 {
		many[string(rune('a'+i))] = int64(200 - i)
	}
	require.Len(t, many.Oldest(), view.MaxMarks)
	require.Contains(t, many.Oldest(), string(rune('a'+199)))
	require.True(t, many.Oldest().Continues(many))
}
