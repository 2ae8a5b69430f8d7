package model

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"tributary/resource"
)

// Observation has the immutable logs and traces of the listeners of a profile; nil has none.
type Observation struct {
	Logs      []*accesslogv3.AccessLog // of requests and connections
	Unmatched []*accesslogv3.AccessLog // of connections that belong to no filter chain
	Tracing   *hcmv3.HttpConnectionManager_Tracing
	Random    bool // sampling does not depend on the id of a request

	Objects  []resource.Key // behind it
	Findings Findings
	From     string // equal for equal content
}

// Equal reports whether both log and trace the same. Either may be nil.
func (o *Observation) Equal(next *Observation) bool {
	return o == next || o != nil && next != nil && o.From == next.From
}
