package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/sources/presence"
)

// The answers of the tables.
var (
	watch      = Answer{Index: 9}                                    // of a query that waited, or of any server
	certain    = Answer{Index: 9, Confirmed: true}                   // of the leader, for sure
	filtered   = Answer{Index: 9, Confirmed: true, Filtered: true}   // of a token that does not show all
	leaderless = Answer{Index: 9, Confirmed: true, Leaderless: true} // without Consul's headers, but for the index
	strange    = Answer{Confirmed: true, Leaderless: true}           // without any: a 404 of a proxy
	late       = Answer{Index: 9, Late: true}                        // of a server that has lost sight of its leader
)

func withIndex(index uint64, a Answer) Answer { a.Index = index; return a }

// TestPresenceAndAbsence is the table of the verdicts on answers: the baseline has three names at index 5.
func TestPresenceAndAbsence(t *testing.T) {
	baseline := Compared{HasBaseline: true, Index: 5, Before: 3, Now: 3}
	same := baseline
	same.Same = true
	fewer := func(n int) Compared { c := baseline; c.Now, c.Missing = 3-n, n; return c }
	older := baseline
	older.Older = true
	unordered := fewer(1)
	unordered.Index = 0
	replaced := baseline // one has gone, and there is another
	replaced.Missing = 1
	first := Compared{Now: 3}
	restart := Compared{Before: 3, Now: 2, Missing: 1} // an earlier run published one more
	for name, c := range map[string]struct {
		c     Compared
		a     Answer
		want  Verdict
		reset bool
	}{
		"the same, by a watch":                                    {c: same, a: watch, want: Unchanged},
		"the same, to a token that does not show all":             {c: same, a: filtered, want: Unchanged},
		"the same, without headers":                               {c: same, a: withIndex(9, leaderless), want: Unchanged},
		"something else, by a watch":                              {c: baseline, a: watch, want: Changed},
		"something else, by a server that lags behind":            {c: baseline, a: late, want: Doubtful},
		"the same, by a server that lags behind":                  {c: same, a: late, want: Doubtful},
		"the first time, by a server that lags behind":            {c: first, a: late, want: Doubtful},
		"one less, by a watch":                                    {c: fewer(1), a: watch, want: Doubtful},
		"one less, for certain":                                   {c: fewer(1), a: certain, want: Changed},
		"one in the place of another, by a watch":                 {c: replaced, a: watch, want: Doubtful},
		"one in the place of another, filtered":                   {c: replaced, a: filtered, want: Partial},
		"one less, filtered":                                      {c: fewer(1), a: filtered, want: Partial},
		"one less, without a leader":                              {c: fewer(1), a: leaderless, want: Foreign},
		"none, by a watch":                                        {c: fewer(3), a: watch, want: Doubtful},
		"none, for certain":                                       {c: fewer(3), a: certain, want: Changed},
		"none, filtered":                                          {c: fewer(3), a: filtered, want: Denied},
		"none, without a leader":                                  {c: fewer(3), a: leaderless, want: Foreign},
		"none, without an index":                                  {c: fewer(3), a: strange, want: Foreign},
		"none, without an index, by a watch":                      {c: fewer(3), a: Answer{}, want: Foreign},
		"an older thing, by a watch":                              {c: older, a: watch, want: Doubtful},
		"an older thing, for certain":                             {c: older, a: certain, want: Changed},
		"at an older index, by a watch":                           {c: same, a: withIndex(4, watch), want: Doubtful},
		"at an older index, for certain":                          {c: same, a: withIndex(4, certain), want: Unchanged, reset: true},
		"one less at an older index, for certain":                 {c: fewer(1), a: withIndex(4, certain), want: Changed, reset: true},
		"one less where indexes cannot be compared":               {c: unordered, a: withIndex(1, certain), want: Changed},
		"the first time, by a watch":                              {c: first, a: watch, want: Changed},
		"the first time, filtered":                                {c: first, a: filtered, want: Changed},
		"less than an earlier run published, by a watch":          {c: restart, a: watch, want: Doubtful},
		"less than an earlier run published, for certain":         {c: restart, a: certain, want: Changed},
		"less than an earlier run published, filtered":            {c: restart, a: filtered, want: Partial},
		"less than an earlier run published, without a leader":    {c: restart, a: leaderless, want: Foreign},
		"less than an earlier run published, by one that is late": {c: restart, a: late, want: Doubtful},
		"the first time, none, by a watch":                        {c: Compared{}, a: watch, want: Doubtful},
		"the first time, none, for certain":                       {c: Compared{}, a: certain, want: Changed},
		"the first time, none, filtered":                          {c: Compared{}, a: filtered, want: Denied},
		"the first time, none, without a leader":                  {c: Compared{}, a: leaderless, want: Foreign},
		"the first time, none, and it has no index":               {c: Compared{}, a: strange, want: Foreign},
	} {
		assert.Equal(t, c.want, Judge(c.c, c.a), name)
		if c.want == Unchanged || c.want == Changed || c.want == Partial { // other verdicts do not use it
			assert.Equal(t, c.reset, Reset(c.c, c.a), name)
		}
	}
}

// TestLossOfData is the table of the signs of lost data: the baseline has ten names at index 5.
func TestLossOfData(t *testing.T) {
	missing := func(n int, changes ...func(*Compared)) Compared {
		compared := Compared{HasBaseline: true, Index: 5, Before: 10, Now: 10 - n, Missing: n}
		for _, f := range changes {
			f(&compared)
		}
		return compared
	}
	outage := func(c *Compared) { c.Outage = true }
	services := func(c *Compared) { c.OneByOne = true }
	unchanged := func(c *Compared) { c.SameCreation = 3 }
	once := func(c *Compared) { c.SameCreation = 1 }
	remade := func(c *Compared) { c.Recreated = 3 }
	otherCluster := func(c *Compared) { c.OtherCluster = true }
	rewritten := func(c *Compared) { c.Recreated, c.Rewritten = 1, true }
	for name, c := range map[string]struct {
		c    Compared
		a    Answer
		want bool
	}{
		"one, while all was well":                       {missing(1), certain, false},
		"most, while all was well":                      {missing(9, services), certain, false},
		"all services, while all was well":              {missing(10, services), certain, true},
		"all keys, while all was well":                  {missing(10), certain, false},
		"all keys, in an outage":                        {missing(10, outage), certain, true},
		"most, in an outage":                            {missing(6, outage), certain, true},
		"most, in an outage, and the rest is as it was": {missing(6, outage, unchanged), certain, false},
		"half, in an outage":                            {missing(5, outage), certain, false},
		"some, and all others were recreated":           {missing(2, remade), certain, true},
		"some, and some others were recreated":          {missing(2, remade, unchanged), certain, false},
		"none, and all others were recreated":           {missing(0, remade), certain, false},
		"some, and another was made when it was not":    {missing(2, unchanged, rewritten), certain, true},
		"one, of another cluster":                       {missing(1, unchanged, otherCluster), certain, true},
		"none, of another cluster":                      {missing(0, unchanged, otherCluster), certain, true},
		"some, at an older index":                       {missing(2), withIndex(4, certain), true},
		"some, at an older index, and the rest is as it was": {
			missing(2, unchanged), withIndex(4, certain),
			true,
		}, // it may be recreated at the same index
		"most, in an outage, and one other is as it was": {missing(6, outage, once), certain, true}, // the same
		"none, at an older index, and all is as it was": {
			missing(0, once), withIndex(4, certain),
			false,
		}, // deletions are forgotten after minutes
		"none, at an older index, and some was recreated": {missing(0, unchanged, remade), withIndex(4, certain), true},
	} {
		assert.Equal(t, c.want, Reset(c.c, c.a), name)
	}
	assert.False(t, Reset(Compared{Before: 10, Missing: 10, Outage: true, OneByOne: true}, certain), "a first answer has no baseline")
}

func TestIsOtherCluster(t *testing.T) {
	assert.True(t, IsOtherCluster("a", "b"))
	assert.False(t, IsOtherCluster("a", "a"))
	assert.False(t, IsOtherCluster("", "b"), "the earlier identity is unknown")
	assert.False(t, IsOtherCluster("a", ""), "the present identity is unknown")
}

func TestCreateIndexes_Compare(t *testing.T) {
	before := CreateIndexes{"kept": 3, "remade": 4, "gone": 5, "unknown": 0}
	var compared Compared
	before.Compare(CreateIndexes{"kept": 3, "remade": 8, "new": 9, "unknown": 2}, 7, &compared)
	assert.Equal(t, Compared{SameCreation: 1, Recreated: 1}, compared)
	before.Compare(CreateIndexes{"remade": 7}, 7, &compared)
	assert.Equal(t, Compared{SameCreation: 1, Recreated: 2, Rewritten: true}, compared, "at index 7 it had been made at 4")
}

func TestWhy(t *testing.T) {
	assert.Equal(t, "Consul seems to have lost its data: it had 20 services at index 31, and has 12 of them at index 12",
		Why(Compared{Index: 31, Before: 20, Missing: 8}, withIndex(12, certain), "services"))
}

func TestRecords_Persist(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	suspicion := presence.Suspicion{End: now.Add(time.Minute), Why: "why"}
	records := Records{Settings: "these", Scopes: map[string]Record{"": {
		Index: 7, Cluster: "c", Names: []string{"a"}, CreateIndexes: CreateIndexes{"n": 3},
		Held: []string{"b"}, Suspicion: suspicion,
	}}}
	got, err := Decode(records.Encode(), "these", now, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, records, got)
	got, err = Decode(records.Encode(), "others", now, time.Minute)
	require.NoError(t, err)
	assert.Equal(t, Records{Settings: "others", Scopes: map[string]Record{"": {Held: []string{"b"}, Suspicion: suspicion}}}, got,
		"records of other settings cannot be compared")
	got, err = Decode(records.Encode(), "these", now.AddDate(-20, 0, 0), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, now.AddDate(-20, 0, 0).Add(time.Minute), got.Scopes[""].End, "the clock was wrong when it was kept, or is now")
	records.Scopes[""] = Record{Suspicion: presence.Suspicion{Why: "why"}}
	got, err = Decode(records.Encode(), "these", now, time.Minute)
	require.NoError(t, err)
	assert.True(t, got.Scopes[""].Holds(now.Add(time.Hour)), "until something happens")
	got, err = Decode(nil, "these", now, time.Minute)
	require.NoError(t, err)
	assert.Empty(t, got.Scopes)
	got, err = Decode([]byte("{"), "these", now, time.Minute)
	require.Error(t, err)
	assert.NotNil(t, got.Scopes)
}
