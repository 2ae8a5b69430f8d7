package presence

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSuspicion_Deadline(t *testing.T) {
	suspicion := Suspicion{From: after(5), End: after(7)}
	assert.Equal(t, after(7), suspicion.Deadline(time.Time{}, after(5)), "of an earlier run")
	assert.Equal(t, after(7), suspicion.Deadline(after(4), after(6)), "from before the outage")
	assert.Equal(t, after(6), suspicion.Deadline(after(3), after(4)), "already missing when the suspicion began")
	assert.Zero(t, suspicion.Deadline(after(5), after(6)), "registered when the registry was back")
	assert.Zero(t, Suspicion{}.Deadline(after(4), after(6)), "there is none")
	assert.Equal(t, Forever, suspicion.Leave(after(6)).Deadline(after(4), after(5)), "nothing could register meanwhile")
	assert.Equal(t, after(7), suspicion.Leave(after(8)).Deadline(after(4), after(6)), "it was over")
	assert.Zero(t, Suspicion{}.Leave(after(8)).Deadline(after(4), after(8)))
}

func TestSuspicion_Away(t *testing.T) {
	suspicion := Suspect(after(5), 2*time.Minute, "it was wiped")
	assert.Equal(t, Suspicion{From: after(5), End: after(7), Why: "it was wiped"}, suspicion)
	assert.True(t, suspicion.Holds(after(6)))
	assert.False(t, suspicion.Holds(after(7)))
	assert.False(t, Suspicion{}.Holds(after(7)))
	away := suspicion.Leave(after(6)).Leave(after(8))
	assert.True(t, away.Holds(after(9)), "no hold runs")
	assert.Zero(t, away.Next())
	assert.Equal(t, 3*time.Minute, away.AwayFor(after(9)), "since it left first")
	assert.Zero(t, away.AwayFor(after(1)), "a clock that goes back")
	assert.Equal(t, after(10), away.Return(after(9)).Next(), "a minute was left")
	assert.Equal(t, away.Return(after(9)), away.Return(after(9)).Return(after(20)))
	assert.Zero(t, Suspicion{}.Leave(after(1)).Return(after(9)))
}

func TestSuspicion_Expire(t *testing.T) {
	suspicion := Suspicion{End: after(7)}
	assert.Equal(t, suspicion, suspicion.Expire(after(6)))
	assert.Zero(t, suspicion.Expire(after(7)))
	assert.Equal(t, Suspicion{Away: after(9)}, suspicion.Leave(after(9)).Expire(after(9)), "it is away nevertheless")
	assert.Equal(t, suspicion.Leave(after(6)), suspicion.Leave(after(6)).Expire(after(9)))
}

func TestSuspicion_Restored(t *testing.T) {
	const hold = 2 * time.Minute
	stored := func(s Suspicion) (read Suspicion) {
		text, err := json.Marshal(s)
		assert.NoError(t, err)
		assert.NoError(t, json.Unmarshal(text, &read))
		return read
	}
	s := Suspect(after(5), hold, "why")
	assert.Equal(t, after(7), stored(s).Restored(after(6), hold).End)
	assert.Equal(t, after(3), stored(s).Restored(after(1), hold).End, "the clock was wrong when it was stored, or is now")
	assert.False(t, stored(s).Restored(after(9), hold).Holds(after(9)), "it ended between the runs")
	away := stored(s.Leave(after(6))).Restored(after(20), hold)
	assert.True(t, away.Holds(after(30)))
	assert.Equal(t, after(31), away.Return(after(30)).End, "a minute was left")
	assert.Zero(t, stored(Suspicion{}).Restored(after(6), hold))
	endless := Suspicion{Why: "as earlier versions stored it"}.Restored(after(6), hold)
	assert.Zero(t, endless.Next())
	assert.Equal(t, after(11), endless.Return(after(9)).End)
}

func TestEarlier(t *testing.T) {
	assert.Equal(t, after(1), Earlier(after(1), after(2)))
	assert.Equal(t, after(1), Earlier(after(2), after(1)))
	assert.Equal(t, after(1), Earlier(after(1), time.Time{}))
	assert.Equal(t, after(1), Earlier(time.Time{}, after(1)))
}
