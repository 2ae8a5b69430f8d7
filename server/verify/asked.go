package verify

import (
	"strings"

	"tributary/resource"
)

// CommandLine is the id by which the commands of the program ask a server, unless told otherwise; of the form that istiod wants.
const CommandLine = "sidecar~127.0.0.1~tributary-cli.default~default.svc.cluster.local"

// CommandAgent is the user agent of the commands of the program.
const CommandAgent = "tributary-cli"

// Asked gathers which kinds the clients of a server ask for.
type Asked map[resource.Kind]bool

// Client adds what a client asks for. One of the command line asks for what somebody looks at, which says nothing of istiods.
func (a Asked) Client(nodeID string, typeURLs ...string) {
	if nodeID == CommandLine {
		return
	}
	for _, url := range typeURLs {
		if parts := strings.Split(url, "/"); len(parts) == 3 {
			a[resource.Kind(parts[2])] = true
		}
	}
}

// For reports whether anybody asks for a kind. It is nil if nobody asks for any: an istiod that is cut off is no client, and what it would
// ask for is not known.
func (a Asked) For() func(resource.Kind) bool {
	if len(a) == 0 {
		return nil
	}
	return func(kind resource.Kind) bool { return a[kind] }
}
