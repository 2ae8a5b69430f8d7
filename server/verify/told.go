package verify

import (
	"encoding/json"
	"time"
)

// Told is what an Envoy is to be served now, and what is known of what it rejects.
type Told struct {
	Connected bool      `json:"connected"` // somebody is who calls itself as this Envoy does
	OnDemand  bool      `json:"on_demand"` // it asks for each virtual host and cluster that it uses
	Refusals  []Refusal `json:"refusals"`
	// Dump is all of it, in the form of an Envoy's config_dump.
	Dump json.RawMessage `json:"dump"`
}

// Refusal is something that Envoys reject.
type Refusal struct {
	TypeURL   string    `json:"type_url"`
	Resources []string  `json:"resources,omitempty"` // as far as is known
	Error     string    `json:"error"`               // as an Envoy put it
	Node      string    `json:"node"`                // of that one
	At        time.Time `json:"at,omitzero"`
	// Object is in quarantine for it, so that what is served is something else; it is empty if what is served is rejected.
	Object string `json:"object,omitempty"`
	Origin string `json:"origin,omitempty"` // of the object
}
