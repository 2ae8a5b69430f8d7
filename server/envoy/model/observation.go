package model

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"tributary/resource"
)

// Observation is what clients of a profile log and trace, in all of their listeners. It is not modified once it was made; nil is nothing.
type Observation struct {
	Logs      []*accesslogv3.AccessLog // of requests and connections
	Unmatched []*accesslogv3.AccessLog // of connections that belong to no filter chain
	Tracing   *hcmv3.HttpConnectionManager_Tracing
	Random    bool // whether a request is traced does not depend on its id

	Objects  []resource.Key // of which it was made
	Findings Findings
	From     string // equal for what is equal
}

// Equal says whether both log and trace the same. Either may be nil.
func (o *Observation) Equal(other *Observation) bool {
	return o == other || o != nil && other != nil && o.From == other.From
}
