package relay

import (
	"encoding/json"
	"os"
)

// identifier names this server in every response, in the form that istioctl reads (istio.io/istio/pilot/pkg/xds,
// IstioControlPlaneInstance, as of 1.27).
func identifier(version string) string {
	host, _ := os.Hostname() // a server without a name is a nameless server
	type info struct {
		Version string `json:"version"`
	}
	text, err := json.Marshal(struct {
		Component string
		ID        string
		Info      info
	}{"tributary", host, info{version}})
	if err != nil {
		return "tributary"
	}
	return string(text)
}
