package judge

import (
	"encoding/json"
	"fmt"
	"time"
)

// Record is what has to outlive a run, and the process, to judge the first answer after it as any other: without it
// a restart would take what a Consul that lost its data does not list yet for gone.
type Record struct {
	Index   uint64 `json:"index"`             // of the answer that was believed last
	Cluster string `json:"cluster,omitempty"` // that gave it, if it is known
	// Names are those of the things that there were, and Made when some of them, or of what they are on, were created.
	Names []string `json:"names,omitempty"`
	Made  Made     `json:"made,omitempty"`
	// Held are the names of what stays although Consul does not list it, because of the suspicion.
	Held []string `json:"held,omitempty"`
	Suspicion
}

// Records are those of the parts of Consul that a source reads, by name, and of what they were read.
type Records struct {
	// Of names the settings that select what is read. Indexes and names of others cannot be compared; suspicions, and what is held
	// because of them, can.
	Of    string            `json:"of"`
	Parts map[string]Record `json:"parts"`
}

// Encode returns the records as they are kept.
func (r Records) Encode() []byte {
	text, err := json.Marshal(r)
	if err != nil { // of plain data
		panic(err)
	}
	return text
}

// Decode reads what Encode wrote, for a source whose settings are named of. What cannot be read is as if it had not been kept. No
// suspicion lasts longer than for hold from now: the clock may have been wrong when it was kept, or hold another.
func Decode(text []byte, of string, now time.Time, hold time.Duration) (Records, error) {
	fresh := Records{Of: of, Parts: make(map[string]Record)}
	if len(text) == 0 {
		return fresh, nil
	}
	var kept Records
	if err := json.Unmarshal(text, &kept); err != nil {
		return fresh, fmt.Errorf("what was kept of an earlier run: %w", err)
	}
	for name, part := range kept.Parts {
		if kept.Of != of {
			part = Record{Held: part.Held, Suspicion: part.Suspicion}
		}
		if !part.Until.IsZero() {
			part.Until = now.Add(min(hold, part.Until.Sub(now))) // from here on it does not follow a clock that is set
		}
		fresh.Parts[name] = part
	}
	return fresh, nil
}
