package relay

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"os"
	"strings"
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

// instance names this process among those that read from each other: by its host, for people, and by chance, since a host
// may have several.
func instance() string {
	host, _ := os.Hostname()
	return cmp.Or(strings.ReplaceAll(host, "/", "-"), "tributary") + "-" + rand.Text()[:6]
}
