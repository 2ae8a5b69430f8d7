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
	Dump json.RawMessage `json:"dump,omitempty"`
}

// Refusal is a resource that an Envoy rejects.
type Refusal struct {
	TypeURL  string    `json:"type_url"`
	Resource string    `json:"resource,omitempty"` // empty if it is not known
	Error    string    `json:"error"`              // the Envoy's words
	Node     string    `json:"node"`               // of the Envoy
	At       time.Time `json:"at,omitzero"`
}
