package verify

import (
	"encoding/json"
	"time"
)

// Expected is the configuration that an Envoy should have now, and what it rejects.
type Expected struct {
	Connected bool      `json:"connected"` // a client with the Envoy's node id is connected
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
